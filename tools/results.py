"""docs/results.md from experiments/results/*.json: tables, figures, and a verdict on every claim of the paper.

python tools/results.py            writes docs/results.md and docs/figures/result-*.svg
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from reweigh.experiment.claims import verdicts
from reweigh.experiment.drawing import panels_of
from reweigh.experiment.judged import grids, judged
from reweigh.experiment.load import load
from reweigh.experiment.render import markdown
from reweigh.experiment.saved import Saved, read_saved
from reweigh.experiment.values import Experiment
from reweigh.report import write

ROOT = Path(__file__).resolve().parent.parent

HEAD = """# Measured beside reported

What the paper's tables come to in this library. This page is written by `tools/results.py` from the records in
`experiments/results`; how to make them is in [Experiments](experiments.md). Accuracies are in percent, mean ± standard
deviation over seeds. *final* is at the end of training, *best* was chosen by looking at the test part and flatters.
Numbers in brackets are quoted by the paper from elsewhere. What was measured by different protocols, or in different
arithmetic, stands in tables of its own.
"""


def main(root: Path = ROOT) -> None:
    """Write the page and its figures."""
    saved = read_results(root / "experiments" / "results")
    figures = draw(saved, root / "docs" / "figures")
    planned = experiments(root / "experiments")
    (root / "docs" / "results.md").write_text(page(saved, figures, planned), encoding="utf-8")


def read_results(folder: Path) -> dict[str, Saved]:
    """All results, by name."""
    found = [read_saved(path) for path in sorted(folder.glob("*.json"))]
    return {each.experiment.name: each for each in found}


def experiments(folder: Path) -> dict[str, Experiment]:
    """All experiments that train something, by name."""
    found = [each for path in sorted(folder.glob("*.py")) for each in load(path)]
    return {each.name: each for each in found if each.cells}


def draw(saved: Mapping[str, Saved], folder: Path) -> dict[str, str]:
    """Figures as SVG files; name of the experiment -> name of the file."""
    written = {}
    for name, each in saved.items():
        panels = panels_of(each)
        if panels is not None:
            written[name] = f"result-{name}.svg"
            write(panels.figures, folder / written[name], columns=panels.columns)
    return written


def page(saved: Mapping[str, Saved], figures: Mapping[str, str], planned: Mapping[str, Experiment]) -> str:
    """The whole page."""
    parts = [HEAD, claims(saved)]
    for name, each in saved.items():
        blocks = each.blocks()
        measured = [block for block in blocks if block.kind is not None]
        trials = grids(judged(planned[name], each.store)) if name in planned else []
        parts.append(markdown(each.experiment, measured, trials, level=2).rstrip())
        if left := [block.column for block in blocks if block.kind is None]:
            parts.append(f"Not measured: {', '.join(left)}.")
        if name in figures:
            parts.append(f"![{each.experiment.title}](figures/{figures[name]})")
        parts.append(provenance(each))
    if unmeasured := [each for name, each in planned.items() if name not in saved]:
        told = [f"- {each.title} (`{each.name}`)" for each in unmeasured]
        parts.append("\n".join(["## Not measured here", "", *told]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def claims(saved: Mapping[str, Saved]) -> str:
    """One row for every claim."""
    rows = ["## What the paper claims", "", "| claim | rule | verdict | seen |", "|---|---|---|---|"]
    for claim, rule, verdict, seen in verdicts(saved):
        mark = f"**{verdict}**" if verdict != "not measured" else verdict
        rows.append(f"| {claim} | {rule} | {mark} | {(seen or '-').replace('|', '/')} |")
    return "\n".join(rows)


def provenance(saved: Saved) -> str:
    """Where the numbers come from: seeds, commits, versions, devices."""
    if not saved.entries:
        return "*Nothing is trained for it.*"
    seeds = sorted({entry.seed for entry in saved.entries})
    environments = saved.environments

    def every(key: str) -> str:
        return ", ".join(dict.fromkeys(str(each[key]) for each in environments if each.get(key) is not None))

    told = [f"{len(saved.entries)} runs", f"seeds {', '.join(map(str, seeds))}"]
    told += [f"{key} {every(key)}" for key in ("commit", "torch") if every(key)]
    device = every("device_name") or every("device")
    return f"*{'; '.join([*told, device] if device else told)}.*"


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
