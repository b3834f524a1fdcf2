"""Write the pages of results, docs/results*.md, and their figures from paper/results/*.json: `python -m paper page`.

results.md is the first page (`paper.front_page`). results-claims.md has the cases behind the verdicts,
results-missing.md the experiments whose data cannot be had (`paper.missing_data`), and results-<data>.md all tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paper.claims import Case, Verdict, verdicts
from paper.experiment import Experiment, load_all
from paper.figures import Panels, results_figure
from paper.findings import Results, merged_store, read_results
from paper.front_page import CLAIMS, MISSING, Section, data_name, findings_figures, front_page, page_of
from paper.missing_data import missing_page
from paper.tables import (
    Block,
    TextTable,
    blocks,
    choice_results,
    choice_tables,
    collect,
    markdown,
    markdown_table,
)
from reweigh.lab.figures import write_figures

ROOT = Path(__file__).resolve().parent.parent

LEGEND = """Written by `python -m paper page` from the records in `paper/results`; [the first page](results.md) has the
summary. Accuracies are in percent, mean ± standard deviation over seeds. *final* is the accuracy at the end of
training; *best* was selected on the test set and is therefore optimistic. *paper* is the number that the paper
prints; numbers with a name in brackets are quoted by the paper from elsewhere. Results of different protocols, or in
different arithmetic, are in separate tables. A run appears in every table that it is part of. Tables marked "one
seed" show single runs: differences of a point or two in them may be chance."""


@dataclass(frozen=True)
class Site:
    """The pages of results, by file name in docs, and their figures, by file name in docs/figures."""

    pages: Mapping[str, str]
    figures: Mapping[str, Panels]


def build(root: Path = ROOT) -> Site:
    """Return all pages and figures."""
    experiments = {each.name: each for each in load_all(sorted((root / "paper" / "experiments").glob("*.py")))}
    trained = {name: each for name, each in experiments.items() if each.cells}
    saved = [read_results(path) for path in sorted((root / "paper" / "results").glob("*.json"))]
    own = {each.experiment.name: with_current_texts(each, experiments) for each in saved}
    results = with_shared_runs(own, trained)
    drawn = {name: panels for name, each in results.items() if (panels := results_figure(each)) is not None}
    figures = {f"result-{name}.svg": panels for name, panels in drawn.items()} | findings_figures(results)
    judged = verdicts(own)
    sections = [Section(name, each.experiment.title, page_of(each)) for name, each in results.items()]
    left = [each for name, each in trained.items() if name not in results]
    pages = {"results.md": front_page(results, judged, sections, left, figures), CLAIMS: claims_page(judged)}
    for page in dict.fromkeys(section.page for section in sections):
        here = {section.name: results[section.name] for section in sections if section.page == page}
        data = next((e.finding.run.data for each in here.values() for e in each.entries), "")
        parts = [f"# Results: {data_name(data)}", LEGEND, results_sections(here, drawn, trained)]
        pages[page] = "\n\n".join(parts)
    pages[MISSING] = missing_page(left, root)
    return Site(pages, figures)


def write_pages(root: Path = ROOT) -> list[Path]:
    """Write the pages and figures, remove earlier ones that no longer exist, and return the paths of the pages."""
    site, docs = build(root), root / "docs"
    for name, panels in site.figures.items():
        write_figures(panels.figures, docs / "figures" / name, columns=panels.columns)
    for stale in {path.name for path in docs.glob("results-*.md")} - site.pages.keys():
        (docs / stale).unlink()
    for name, text in site.pages.items():
        (docs / name).write_text(text, encoding="utf-8")
    return [docs / name for name in site.pages]


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


def results_sections(
    results: Mapping[str, Results], figures: Mapping[str, Panels], experiments: Mapping[str, Experiment]
) -> str:
    """Return a section with tables and figure for every experiment."""
    parts = []
    for name, each in results.items():
        measured, left = split_measured(blocks(each))
        choices = choice_results(experiments[name], each.store) if name in experiments else []
        parts.append(markdown(each.experiment, measured, choice_tables(choices), level=2).rstrip())
        if left:
            parts.append(f"Not measured: {'; '.join(left)}.")
        if name in figures:
            parts.append(f"![{each.experiment.title}](figures/result-{name}.svg)")
        parts.append(provenance(each))
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


CLAIMS_HEAD = """# The paper's claims, in detail

Every claim is split into cases, such as the rows of a table. The value of a case is held against three thresholds, from
strict to lenient. The middle one decides: the claim **holds** if at least 95 % of the cases meet it, **holds
mostly** if at least two thirds do, and otherwise **does not hold**. With fewer than three cases it **cannot be
said**. A claim that something exists holds if three cases meet the middle threshold. Accuracies are final ones and
means over seeds; the line *by the best test checkpoint* repeats the count with what most of the paper's tables
print: the best of 30 checkpoints, selected on the test set. Lines of protocols: *text* is as printed in the paper,
*authors* as the authors trained by their public history (balanced batches, weight decay 5e-4), *ours* the same for
all rows, where the paper does not say."""
SHOWN = 12  # exceptions listed of a claim


def claims_page(judged: Sequence[Verdict]) -> str:
    """Return the page with the cases of every claim."""
    parts = [CLAIMS_HEAD]
    for number, each in enumerate(judged, 1):
        claim = each.claim
        parts.append(f"## {number}. {claim.text}\n\n**{each.verdict.capitalize()}.** {claim.why}")
        if not each.cases:
            parts.append("Nothing is measured for it.")
            continue
        parts.append(f"Value of a case: {claim.value}.\n\n{markdown_table(threshold_table(each))}")
        if exceptions := each.exceptions:
            head = "Cases that meet it:" if claim.exists else "Exceptions:"
            listed = [f"- {case.where} ({value_text(case)})" for case in exceptions[:SHOWN]]
            if len(exceptions) > SHOWN:
                listed.append(f"- and {len(exceptions) - SHOWN} more")
            parts.append("\n".join([head, "", *listed]))
    return "\n\n".join(parts) + "\n"


def value_text(case: Case) -> str:
    """Return the value of a case, with its number of seeds."""
    seeds = f"{case.seeds} seed{'s' * (case.seeds > 1)}"
    return f"{case.value:.2f}; {seeds}"


def threshold_table(verdict: Verdict) -> TextTable:
    """Return how many cases meet each threshold: of all, of each protocol, and by the best test checkpoint."""
    strict, fair, lenient = verdict.claim.words
    groups = [("all", verdict.cases)]
    protocols = list(dict.fromkeys(case.protocol for case in verdict.cases))
    if len(protocols) > 1:
        groups += [(f"protocol {p}", [case for case in verdict.cases if case.protocol == p]) for p in protocols]
    if best := [case._replace(value=case.best) for case in verdict.cases if case.best is not None]:
        groups.append(("by the best test checkpoint", best))
    rows = [
        (
            name,
            ", ".join(sorted({case.data for case in cases})),
            seeds_text(cases),
            *(f"{count} of {len(cases)}" for count in verdict.counts(cases)),
        )
        for name, cases in groups
    ]
    return TextTable("", ("cases", "data", "seeds of a case", strict, f"{fair} (decides)", lenient), rows)


def seeds_text(cases: Sequence[Case]) -> str:
    """Return the smallest and largest number of seeds of cases."""
    seeds = sorted({case.seeds for case in cases})
    return f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


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
