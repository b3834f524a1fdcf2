"""docs/results.md from experiments/results/*.json: tables, figures, and a verdict on every claim of the paper.

python tools/results.py            writes docs/results.md and docs/figures/result-*.svg
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paper.claims import verdicts
from paper.drawing import panels_of
from paper.judged import grids, judged
from paper.load import load
from paper.render import markdown
from paper.saved import Saved, collect, read_saved, shared
from paper.table import Block
from paper.values import Experiment
from reweigh.lab.figures import write_figures

ROOT = Path(__file__).resolve().parent.parent

HEAD = """# Measured beside reported

What the paper's tables come to in this library. This page is written by `tools/results.py` from the records in
`experiments/results`; how to make them is in [Experiments](experiments.md). Accuracies are in percent, mean ± standard
deviation over seeds. *final* is at the end of training, *best* was chosen by looking at the test part and flatters.
Numbers in brackets are quoted by the paper from elsewhere. What was measured by different protocols, or in different
arithmetic, stands in tables of its own. A run stands in every table it is part of.
"""


def main(root: Path = ROOT) -> None:
    """Write the page and its figures."""
    planned = experiments(root / "experiments")
    own = read_results(root / "experiments" / "results")
    saved = with_shared(own, planned)
    figures = draw(saved, root / "docs" / "figures")
    told = "\n\n".join((HEAD.strip(), claims(own), page(saved, figures, planned)))
    (root / "docs" / "results.md").write_text(told, encoding="utf-8")


def read_results(folder: Path) -> dict[str, Saved]:
    """All results, by name."""
    found = [read_saved(path) for path in sorted(folder.glob("*.json"))]
    return {each.experiment.name: each for each in found}


def experiments(folder: Path) -> dict[str, Experiment]:
    """All experiments that train something, by name."""
    found = [each for path in sorted(folder.glob("*.py")) for each in load(path)]
    return {each.name: each for each in found if each.cells}


def with_shared(saved: Mapping[str, Saved], planned: Mapping[str, Experiment]) -> dict[str, Saved]:
    """The results, and those of other experiments that have some of the same runs.

    Of those with a figure only whole columns: from a part of its runs it would tell another story than its title.
    """
    store = shared(saved.values())
    seeds = sorted({finding.run.seed for finding in store.values()})
    found = dict(saved)
    for name, experiment in planned.items():
        if name in saved:
            continue
        each = collect(experiment, seeds, store)
        if experiment.figure is not None:
            each = replace(each, entries=tuple(entry for entry in each.entries if is_whole(each, entry.column)))
        if each.entries:
            found[name] = each
    return {name: found[name] for name in sorted(found)}


def is_whole(saved: Saved, column: str) -> bool:
    """Whether all cells of a column are measured."""
    cells = {cell.row for cell in saved.experiment.cells if cell.column == column}
    return cells <= {entry.row for entry in saved.entries if entry.column == column}


def draw(saved: Mapping[str, Saved], folder: Path) -> dict[str, str]:
    """Figures as SVG files; name of the experiment -> name of the file."""
    written = {}
    for name, each in saved.items():
        panels = panels_of(each)
        if panels is not None:
            written[name] = f"result-{name}.svg"
            write_figures(panels.figures, folder / written[name], columns=panels.columns)
    return written


def page(saved: Mapping[str, Saved], figures: Mapping[str, str], planned: Mapping[str, Experiment]) -> str:
    """The tables and figures of all experiments."""
    parts = []
    for name, each in saved.items():
        measured, left = divided(each.blocks())
        trials = grids(judged(planned[name], each.store)) if name in planned else []
        parts.append(markdown(each.experiment, measured, trials, level=2).rstrip())
        if left:
            parts.append(f"Not measured: {'; '.join(left)}.")
        if name in figures:
            parts.append(f"![{each.experiment.title}](figures/{figures[name]})")
        parts.append(provenance(each))
    if unmeasured := [each for name, each in planned.items() if name not in saved]:
        told = [f"- {each.title} (`{each.name}`)" for each in unmeasured]
        parts.append("\n".join(["## Not measured here", "", *told]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def divided(blocks: Sequence[Block]) -> tuple[list[Block], list[str]]:
    """Columns with something measured, without rows of which nothing is known; and in words what is left out."""
    measured, left = [], list[str]()
    for block in blocks:
        missing = [line.row for line in block.lines if not (line.seeds or line.reported)]
        if block.kind is None:
            left.append(f"all of {block.column}")
            continue
        measured.append(replace(block, lines=tuple(line for line in block.lines if line.row not in missing)))
        if missing:
            left.append(f"{block.column}: {', '.join(missing)}")
    return measured, left


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

    def every(*keys: str) -> str:
        """All values of the first of the keys that an environment has."""
        found = (next((each[key] for key in keys if each.get(key) is not None), None) for each in environments)
        return ", ".join(dict.fromkeys(str(value) for value in found if value is not None))

    told = [f"{len(saved.entries)} runs", f"seeds {', '.join(map(str, seeds))}"]
    told += [f"{key} {every(key)}" for key in ("commit", "torch") if every(key)]
    device = every("device_name", "device")
    return f"*{'; '.join([*told, device] if device else told)}.*"


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
