"""The report on runs and the weighting explorer: HTML pages that contain everything and load nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from reweigh import __version__
from reweigh.lab.figures.figure import short, to_mapping
from reweigh.lab.report.catalogue import explorer
from reweigh.lab.report.collect import Collected, Group, RunSummary, group, objective_name, spread
from reweigh.lab.report.figures import densities, dynamics, group_figures

SCRIPTS = ("weightings.js", "emphasis.js", "elements.js", "figure.js", "explorer.js", "report.js")
MAX_BYTES = 1_000_000
# maximum evaluations in a line and in a figure of a group, and maximum classes: the first that fit in MAX_BYTES
_DETAIL = ((48, 32, 100), (32, 20, 50), (24, 12, 20), (16, 8, 10), (10, 0, 0))


def report_page(collected: Collected, title: str = "Report", explore: str = "DM(0.5, 8)") -> str:
    """Return the report on runs, with the explorer below it, with as much detail as fits in 1 MB.

    Args:
        collected: the runs, from `collect`.
        title: title of the page.
        explore: first weighting of the explorer.
    """
    sets, page = _sets(collected.runs), ""
    for lines, depth, classes in _DETAIL:
        content = _content(collected, sets, lines, depth, classes)
        page = assemble(title, {"report": content, "explore": explorer(explore)})
        if len(page.encode()) < MAX_BYTES:
            break
    return page


def _sets(runs: Sequence[RunSummary]) -> dict[str, list[Group]]:
    """Return the groups of each data set, since results on different data are not comparable.

    Trials of a search are a set of their own: they were trained on a part of the data, and the best was selected.
    """
    sets: dict[str, list[RunSummary]] = {}
    for run in sorted(runs, key=lambda run: run.trial):
        name = run.header.run.data
        sets.setdefault(f"{name}, trials of a search" if run.trial else name, []).append(run)
    return {name: group(members) for name, members in sets.items()}


def explorer_page(explore: str = "DM(0.5, 8)") -> str:
    """Return the page of the explorer alone, with its first weighting."""
    return assemble("Weighting explorer", {"report": None, "explore": explorer(explore)})


def assemble(
    title: str,
    content: dict[str, Any],
    scripts: Sequence[str] = SCRIPTS,
    styles: Sequence[str] = ("page.css",),
) -> str:
    """Fill the template with styles, scripts and data; a security policy forbids other scripts and all loading."""
    assets = files("reweigh.lab.report") / "assets"
    style = "\n".join((assets / name).read_text("utf-8") for name in styles)
    parts = [(assets / name).read_text("utf-8") for name in scripts]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"
    data = json.dumps({**content, "version": __version__}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    sources = f"style-src {_digest(style)}; script-src {_digest(script)}; img-src data:"
    policy = f"default-src 'none'; {sources}; base-uri 'none'"
    filled = {
        "policy": policy,
        "title": html.escape(_encodable(title)),
        "style": style,
        "script": script,
        # the name of a class may be </script>
        "data": _encodable(data).replace("<", "\\u003c"),
    }
    page = (assets / "page.html").read_text("utf-8")
    pieces = page.split("{{")
    return pieces[0] + "".join(filled[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:]))


def _encodable(text: str) -> str:
    """Escape characters that UTF-8 cannot encode, as in a folder name of another encoding, in the way of JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _content(
    collected: Collected, sets: Mapping[str, Sequence[Group]], lines: int, depth: int, classes: int
) -> dict[str, Any]:
    environments, xs = list[Any](), list[Any]()
    content = []
    for name, groups in sets.items():
        emphasis = densities(groups)
        figures = [
            to_mapping(figure) for figure in (*dynamics(groups, lines), *([] if emphasis is None else [emphasis]))
        ]
        for figure in figures:  # many lines have the same steps
            for series in figure["series"]:
                series["x"] = _index(xs, series["x"])
        details = [
            [to_mapping(figure) for figure in group_figures(member, depth, classes)] if depth else []
            for member in groups
        ]
        content.append(
            {
                "name": name,
                "groups": [_group(member) for member in groups],
                "runs": [_run(run, environments) for member in groups for run in member.runs],
                "figures": figures,
                "details": details,
            }
        )
    return {"sets": content, "environments": environments, "xs": xs, "problems": collected.problems}


def _group(member: Group) -> dict[str, Any]:
    run, noise = member.run, member.details.get("noise") or {}
    return {
        "label": member.label,
        "objective": objective_name(run),
        "data": run.data,
        "net": run.net,
        "noise": None if run.noise is None else f"{run.noise}{'' if run.rate is None else f' {run.rate:g}'}",
        "measured": short(noise.get("measured")),
        "holdout": member.holdout,
        "varying": {name: value for name, value in member.varying.items() if name not in _SHOWN and value is not None},
        "seeds": [each.header.run.seed for each in member.runs],
        "done": sum(each.result is not None for each in member.runs),
        "diverged": sum(each.diverged is not None for each in member.runs),
        **{which: _score(member.score(which)) for which in ("final", "best")},
    }


_SHOWN = ("weighting", "loss", "method", "data", "net", "noise", "rate")


def _score(scores: list[float]) -> list[float | None] | None:
    return None if not scores else list(spread(scores))


def _run(run: RunSummary, environments: list[Any]) -> dict[str, Any]:
    header = run.header
    return {
        "folder": run.folder.resolve().name,
        "state": run.state,
        "step": run.rows[-1]["step"] if run.rows else None,
        "seconds": (run.result or {}).get("seconds"),
        "hash": header.run.hash(),
        "run": header.run.to_mapping(),
        "data": header.data_hash,
        "labels": header.label_hash,
        "examples": header.examples,
        "environments": [_index(environments, dict(entry)) for entry in header.environments],
    }


def _index(known: list[Any], value: Any) -> int:
    if value not in known:
        known.append(value)
    return known.index(value)
