"""One self-contained HTML page: no network, no framework, everything inline."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from reweigh import __version__
from reweigh.lab.report.catalogue import CURVE_AT, catalogue, start
from reweigh.lab.report.collect import Collected, Group, Told, group, spread, taught_by
from reweigh.lab.report.dynamics import densities, dynamics
from reweigh.lab.report.figure import Lines, short, to_mapping
from reweigh.lab.report.inside import inside

SCRIPTS = (
    *("logs.js", "weightings.js", "density.js"),
    *("element.js", "axes.js", "marks.js", "figure.js"),
    *("table.js", "report.js", "knobs.js", "explore.js", "copy.js", "theme.js", "page.js"),
)
LARGEST = 1_000_000  # bytes
# evaluations in a line, in a figure from inside, and classes: as many as the size allows
_DETAIL = ((48, 32, 100), (32, 20, 50), (24, 12, 20), (16, 8, 10), (10, 0, 0))


def report_page(collected: Collected, title: str = "Runs", explore: str = "DM(0.5, 8)") -> str:
    """The report on runs, with the explorer below it; thinned until it is under 1 MB.

    Args:
        collected: what `collect` found.
        title: of the page.
        explore: the weighting that the explorer starts from.
    """
    groups = group(collected.runs)
    emphasis, page = densities(groups), ""
    for lines, depth, classes in _DETAIL:
        figures = [*dynamics(groups, lines), *([] if emphasis is None else [emphasis])]
        content = _content(collected, groups, figures, depth, classes)
        page = assemble(title, {"report": content, "explore": _explorer(explore)})
        if len(page.encode()) < LARGEST:
            break
    return page


def explorer_page(explore: str = "DM(0.5, 8)") -> str:
    """The explorer alone, starting from a weighting."""
    return assemble("Weighting explorer", {"report": None, "explore": _explorer(explore)})


def assemble(
    title: str,
    content: dict[str, Any],
    scripts: Sequence[str] = SCRIPTS,
    styles: Sequence[str] = ("page.css",),
) -> str:
    """The template with styles, scripts and data in their places; a policy lets nothing else run and nothing load."""
    assets = files("reweigh.lab.report") / "assets"
    style = "\n".join((assets / name).read_text("utf-8") for name in styles)
    parts = [(assets / name).read_text("utf-8") for name in scripts]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"
    data = json.dumps({**content, "version": __version__}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    sources = f"style-src {_digest(style)}; script-src {_digest(script)}; img-src data:"
    policy = f"default-src 'none'; {sources}; base-uri 'none'"
    filled = {
        "policy": policy,
        "title": html.escape(_writable(title)),
        "style": style,
        "script": script,
        # a class may be called </script>
        "data": _writable(data).replace("<", "\\u003c"),
    }
    page = (assets / "page.html").read_text("utf-8")
    pieces = page.split("{{")
    return pieces[0] + "".join(filled[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:]))


def _writable(text: str) -> str:
    """The text in UTF-8: a folder may be called in another encoding; JSON escapes such letters the same way."""
    return text.encode("utf-8", "backslashreplace").decode()


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _explorer(explore: str) -> dict[str, Any]:
    return {"catalogue": catalogue(), "curveAt": CURVE_AT, "start": start(explore)}


def _content(
    collected: Collected, groups: Sequence[Group], lines: Sequence[Lines], depth: int, classes: int
) -> dict[str, Any]:
    environments: list[Any] = []
    figures, xs = [to_mapping(figure) for figure in lines], list[Any]()
    for figure in figures:  # many lines share their steps
        for series in figure["series"]:
            series["x"] = _index(xs, series["x"])
    return {
        "groups": [_group(member) for member in groups],
        "runs": [_run(told, i, environments) for i, member in enumerate(groups) for told in member.runs],
        "environments": environments,
        "figures": figures,
        "xs": xs,
        "inside": [
            [to_mapping(figure) for figure in inside(member, depth, classes)] if depth else [] for member in groups
        ],
        "problems": collected.problems,
    }


def _group(member: Group) -> dict[str, Any]:
    run, noise = member.run, member.details.get("noise") or {}
    return {
        "label": member.label,
        "taught": taught_by(run),
        "data": run.data,
        "net": run.net,
        "noise": None if run.noise is None else f"{run.noise}{'' if run.rate is None else f' {run.rate:g}'}",
        "measured": short(noise.get("measured")),
        "holdout": member.holdout,
        "also": {name: value for name, value in member.varying.items() if name not in _SHOWN and value is not None},
        "seeds": [told.header.run.seed for told in member.runs],
        "done": sum(told.result is not None for told in member.runs),
        "diverged": sum(told.diverged is not None for told in member.runs),
        **{which: _score(member.score(which)) for which in ("final", "best")},
    }


_SHOWN = ("weighting", "loss", "method", "data", "net", "noise", "rate")


def _score(scores: list[float]) -> list[float | None] | None:
    return None if not scores else list(spread(scores))


def _run(told: Told, number: int, environments: list[Any]) -> dict[str, Any]:
    header = told.header
    return {
        "group": number,
        "folder": told.folder.resolve().name,
        "state": told.state,
        "step": told.rows[-1]["step"] if told.rows else None,
        "seconds": (told.result or {}).get("seconds"),
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
