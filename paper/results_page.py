"""Write docs/results.md and docs/figures/result-*.svg from paper/results/*.json: `python -m paper page`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paper.claims import verdicts
from paper.experiment import Experiment, load_all
from paper.figures import results_figure
from paper.findings import Results, merged_store, read_results
from paper.tables import Block, blocks, choice_results, choice_tables, collect, markdown
from reweigh.lab.figures import write_figures

ROOT = Path(__file__).resolve().parent.parent

HEAD = """# Our results and the paper's

This page compares the paper's tables with the results of this library. `python -m paper page` writes it from the
records in `paper/results`; [Experiments](experiments.md) explains how to make them. Accuracies are in percent, mean ±
standard deviation over seeds. *final* is the accuracy at the end of training; *best* was selected on the test set and
is therefore optimistic. *paper* is the number that the paper prints; numbers with a name in brackets are quoted by the
paper from elsewhere. Results of different protocols, or in different arithmetic, are in separate tables. A run appears
in every table that it is part of.
"""


def write_page(root: Path = ROOT) -> Path:
    """Write the page and its figures, and return the page's path."""
    experiments = {each.name: each for each in load_all(sorted((root / "paper" / "experiments").glob("*.py")))}
    trained = {name: each for name, each in experiments.items() if each.cells}
    saved = [read_results(path) for path in sorted((root / "paper" / "results").glob("*.json"))]
    own = {each.experiment.name: with_current_texts(each, experiments) for each in saved}
    results = with_shared_runs(own, trained)
    figures = draw(results, root / "docs" / "figures")
    page = root / "docs" / "results.md"
    parts = (HEAD.strip(), claims_table(own), results_sections(results, figures, trained))
    page.write_text("\n\n".join(parts), encoding="utf-8")
    return page


def with_current_texts(results: Results, experiments: Mapping[str, Experiment]) -> Results:
    """Replace title, differences and notes by those of the experiment's file, which may be newer than the results."""
    current = experiments.get(results.experiment.name)
    if current is None:
        return results
    noted = {(cell.row, cell.column): cell.note for cell in current.cells}
    cells = tuple(
        replace(cell, note=noted.get((cell.row, cell.column), cell.note)) for cell in results.experiment.cells
    )
    experiment = replace(results.experiment, title=current.title, differs=current.differs, cells=cells)
    return replace(results, experiment=experiment)


def with_shared_runs(saved: Mapping[str, Results], experiments: Mapping[str, Experiment]) -> dict[str, Results]:
    """Add the results of experiments that share runs with saved ones, sorted by name.

    An experiment with a figure gets only its complete columns, because a part of its runs would draw a misleading one.
    """
    store = merged_store(saved.values())
    seeds = sorted({finding.run.seed for finding in store.values()})
    added = {}
    for name, experiment in experiments.items():
        if name in saved:
            continue
        results = collect(experiment, seeds, store)
        if experiment.figure is not None:
            complete = {column for column in experiment.columns if _is_complete(results, column)}
            results = replace(results, entries=tuple(entry for entry in results.entries if entry.column in complete))
        if results.entries:
            added[name] = results
    return dict(sorted({**saved, **added}.items()))


def _is_complete(results: Results, column: str) -> bool:
    rows = {cell.row for cell in results.experiment.cells if cell.column == column}
    return rows <= {entry.row for entry in results.entries if entry.column == column}


def draw(results: Mapping[str, Results], folder: Path) -> dict[str, str]:
    """Write the experiments' figures as SVG files and return their names, by experiment."""
    written = {}
    for name, each in results.items():
        panels = results_figure(each)
        if panels is not None:
            written[name] = f"result-{name}.svg"
            write_figures(panels.figures, folder / written[name], columns=panels.columns)
    return written


def results_sections(
    results: Mapping[str, Results], figures: Mapping[str, str], experiments: Mapping[str, Experiment]
) -> str:
    """Return a section with tables and figure for every experiment, and a list of those without results."""
    parts = []
    for name, each in results.items():
        measured, left = split_measured(blocks(each))
        choices = choice_results(experiments[name], each.store) if name in experiments else []
        parts.append(markdown(each.experiment, measured, choice_tables(choices), level=2).rstrip())
        if left:
            parts.append(f"Not measured: {'; '.join(left)}.")
        if name in figures:
            parts.append(f"![{each.experiment.title}](figures/{figures[name]})")
        parts.append(provenance(each))
    if unmeasured := [each for name, each in experiments.items() if name not in results]:
        listed = [f"- {each.title} (`{each.name}`)" for each in unmeasured]
        parts.append("\n".join(["## Not measured", "", *listed]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def split_measured(several: Sequence[Block]) -> tuple[list[Block], list[str]]:
    """Return the measured blocks without empty rows, and the rows and columns left out, in words."""
    measured, left = [], list[str]()
    for block in several:
        empty = [line.row for line in block.lines if not (line.seeds or line.reported)]
        if block.kind is None:
            left.append(f"all of {block.column}")
            continue
        measured.append(replace(block, lines=tuple(line for line in block.lines if line.row not in empty)))
        if empty:
            left.append(f"{block.column}: {', '.join(empty)}")
    return measured, left


def claims_table(results: Mapping[str, Results]) -> str:
    """Return a table with the verdict on every claim."""
    rows = ["## Claims of the paper", "", "| claim | rule | verdict | evidence |", "|---|---|---|---|"]
    for claim, rule, verdict, evidence in verdicts(results):
        mark = f"**{verdict}**" if verdict != "not measured" else verdict
        rows.append(f"| {claim} | {rule} | {mark} | {(evidence or '-').replace('|', '/')} |")
    return "\n".join(rows)


def provenance(results: Results) -> str:
    """Return seeds, commits, versions and devices of the results."""
    if not results.entries:
        return "*Nothing is trained for it.*"
    seeds = sorted({entry.seed for entry in results.entries})
    environments = results.environments

    def every(*keys: str) -> str:
        """Return the values of the first of the keys that each environment has."""
        values = (next((each[key] for key in keys if each.get(key) is not None), None) for each in environments)
        return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))

    facts = [f"{len(results.entries)} runs", f"seeds {', '.join(map(str, seeds))}"]
    facts += [f"{key} {every(key)}" for key in ("commit", "torch") if every(key)]
    device = every("device_name", "device")
    return f"*{'; '.join([*facts, device] if device else facts)}.*"
