"""Tables of results: our numbers and the paper's, mean and standard deviation over seeds, as text, Markdown and JSON.

Results of different protocols, precision or determinism, or on data that changed, are never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from paper.experiment import LABELS, METRICS, PROTOCOLS, Cell, Choice, Experiment, Reported
from paper.findings import Entry, Results, Store, without_columns
from paper.plan import SCORE, decide, tasks, trials
from reweigh.lab.record.header import data_versions
from reweigh.lab.report.collect import spread


class Kind(NamedTuple):
    """What results must share to be averaged; `data` is the start of their hash where data differ between runs."""

    protocol: str
    precision: str
    deterministic: bool
    data: str | None = None

    def __str__(self) -> str:
        text = f"protocol {self.protocol}, {self.precision}, {'' if self.deterministic else 'not '}deterministic"
        return text if self.data is None else f"{text}, data {self.data}"


class Measured(NamedTuple):
    """A metric over seeds, as a share; the standard deviation is None for one seed."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True)
class Line:
    """One row of a column: measured and reported numbers, seeds, and how many of them diverged."""

    row: str
    measured: dict[str, Measured]
    reported: tuple[Reported, ...]
    seeds: tuple[int, ...]
    chosen: str
    note: str
    diverged: int


@dataclass(frozen=True)
class Block:
    """One column of an experiment with results of one kind; the kind is None if nothing is measured."""

    experiment: str
    column: str
    kind: Kind | None
    lines: tuple[Line, ...]


class ChoiceResult(NamedTuple):
    """A choice and the hold-out accuracies of its trials.

    Attributes:
        place: the cell's row, and its column where the experiment has several.
        parameter: such as "lr".
        scores: by option; None where a trial is missing or has no score.
        chosen: such as "lr 0.1"; None while undecided.
    """

    place: str
    parameter: str
    scores: dict[str, float | None]
    chosen: str | None


class TextTable(NamedTuple):
    """A table of texts with a heading."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def entries(experiment: Experiment, seeds: Sequence[int], store: Store) -> list[Entry]:
    """Return the measured cells of an experiment."""
    return [
        Entry(task.cell.row, task.cell.column, task.seed, task.chosen, store[task.name])
        for task in tasks(experiment, seeds, store)
        if task.name is not None and task.name in store
    ]


def kind_of(experiment: Experiment, entry: Entry) -> Kind:
    """Return the kind of an entry, apart from its data."""
    run = entry.finding.run
    return Kind(experiment.protocol, run.precision, run.deterministic)


def collect(experiment: Experiment, seeds: Sequence[int], store: Store, before: Results | None = None) -> Results:
    """Return the results of an experiment with these findings, added to earlier results.

    Where the run of a cell has changed since, its earlier results are dropped once the new run has one.
    """
    new = entries(experiment, seeds, store)
    scored = [without_columns(store[name]) for run in trials(experiment) if (name := run.folder_name()) in store]
    if before is None:
        return Results(experiment, tuple(new), tuple(scored))

    def line(entry: Entry) -> tuple[object, ...]:  # what is averaged
        return entry.row, entry.column, kind_of(experiment, entry)

    new_places, new_lines = {(line(entry), entry.seed) for entry in new}, {line(entry) for entry in new}
    planned = tasks(experiment, sorted({entry.seed for entry in before.entries}), store)
    names = {(task.cell.row, task.cell.column, task.seed): task.name for task in planned}
    kept = [
        entry
        for entry in before.entries
        if (line(entry), entry.seed) not in new_places
        and (line(entry) not in new_lines or entry.finding.name == names[entry.row, entry.column, entry.seed])
    ]
    places = {(cell.row, cell.column) for cell in experiment.cells}
    cells = [*experiment.cells, *(c for c in before.experiment.cells if (c.row, c.column) not in places)]
    older = [trial for trial in before.trials if trial.name not in {each.name for each in scored}]
    return Results(replace(experiment, cells=tuple(cells)), (*kept, *new), (*older, *scored))


def blocks(results: Results) -> list[Block]:
    """Return the columns of an experiment in order; a column with results of several kinds gives a block for each."""
    experiment = results.experiment
    version = data_versions(entry.finding.header for entry in results.entries)

    def full_kind(entry: Entry) -> Kind:
        return kind_of(experiment, entry)._replace(data=version(entry.finding.header))

    made = []
    for column in experiment.columns:
        cells = [cell for cell in experiment.cells if cell.column == column]
        here = [entry for entry in results.entries if entry.column == column]
        measured_rows = {entry.row for entry in here}
        kinds: list[Kind | None] = list(dict.fromkeys(map(full_kind, here))) or [None]
        for kind in kinds:
            chosen = [entry for entry in here if full_kind(entry) == kind]
            rows = {entry.row for entry in chosen}
            if kind == kinds[0]:  # rows without results are shown once, in the first block
                rows |= {cell.row for cell in cells} - measured_rows
            lines = tuple(
                _line(cell, experiment.metrics, [entry for entry in chosen if entry.row == cell.row])
                for cell in cells
                if cell.row in rows
            )
            made.append(Block(experiment.name, column, kind, lines))
    return made


def _line(cell: Cell, metrics: Sequence[str], found: Sequence[Entry]) -> Line:
    measured = {}
    for metric in metrics:
        values = [value for entry in found if (value := entry.finding.metrics.get(metric)) is not None]
        if values:
            measured[metric] = Measured(*spread(values), len(values))
    chosen = ", ".join(dict.fromkeys(entry.chosen for entry in found if entry.chosen))
    seeds = tuple(sorted({entry.seed for entry in found}))
    diverged = sum(entry.finding.diverged is not None for entry in found)
    return Line(cell.row, measured, cell.reported, seeds, chosen, cell.note, diverged)


def choice_results(experiment: Experiment, store: Store) -> list[ChoiceResult]:
    """Return the choices that have a trial, in the order of their cells."""
    found = []
    for cell in experiment.cells:
        if not isinstance(cell.source, Choice):
            continue
        findings = {option.label: store.get(option.trial.folder_name()) for option in cell.source.options}
        if any(findings.values()):
            scores = {label: None if each is None else each.metrics.get(SCORE) for label, each in findings.items()}
            decision = decide(cell.source, store)
            place = f"{cell.row}, {cell.column}" if len(experiment.columns) > 1 else cell.row
            chosen = None if decision is None else decision[0]
            found.append(ChoiceResult(place, cell.source.parameter, scores, chosen))
    return found


def choice_tables(choices: Sequence[ChoiceResult]) -> list[TextTable]:
    """Return one table for all choices with the same options, one row for each choice.

    >>> choice_tables([ChoiceResult("CCE, own lr", "lr", {"0.1": 0.8512, "1": None}, "lr 0.1")])[0].rows
    [('CCE, own lr', '85.1', '-', 'lr 0.1')]
    """
    groups: dict[tuple[str, ...], list[ChoiceResult]] = {}
    for choice in choices:
        groups.setdefault((choice.parameter, *choice.scores), []).append(choice)
    tables = []
    for (parameter, *labels), group in groups.items():
        rows = [
            (
                choice.place,
                *("-" if score is None else f"{100 * score:.1f}" for score in choice.scores.values()),
                choice.chosen or "-",
            )
            for choice in group
        ]
        tables.append(
            TextTable(f"Trials of {parameter}: final accuracy on the hold-out", ("", *labels, "chosen"), rows)
        )
    return tables


def block_table(block: Block, metrics: Sequence[str]) -> TextTable:
    """Return a block as a table: for every metric our number and, where there is one, the paper's."""
    reported = {number.metric for line in block.lines for number in line.reported}
    shown = [metric for metric in metrics if metric in reported or any(metric in line.measured for line in block.lines)]
    shown = shown or list(metrics)
    names = [""]
    for metric in shown:
        names += [label(metric)] + (["paper"] if metric in reported else [])
    if "printed" in reported:
        names.append("paper" if len(reported) == 1 else "paper, unspecified")
    has_choices = any(line.chosen for line in block.lines)
    names += ["seeds", "chosen"] if has_choices else ["seeds"]
    rows = []
    for line in block.lines:
        cells = [line.row]
        for metric in shown:
            cells.append(measured_text(line.measured.get(metric), len(line.seeds)))
            if metric in reported:
                cells.append(_paper_text(line, metric))
        if "printed" in reported:
            cells.append(_paper_text(line, "printed"))
        diverged = f", {line.diverged} diverged" if line.diverged else ""
        cells.append(f"{len(line.seeds)}{diverged}" if line.seeds else "-")
        rows.append((*cells, line.chosen or "-") if has_choices else tuple(cells))
    kind = "nothing measured" if block.kind is None else str(block.kind)
    return TextTable(f"{block.column} ({kind}{'; one seed' * has_one_seed(block)})", tuple(names), rows)


def has_one_seed(block: Block) -> bool:
    """Return whether no measured row has more than one seed."""
    return max((len(line.seeds) for line in block.lines), default=0) == 1


def sentence(block: Block) -> str:
    """Return which row ends highest, how far ahead of the next and of CCE; empty with fewer than two rows.

    >>> lines = [Line(row, {"final": Measured(final, 0.004, 3)}, (), (0, 1, 2), "", "", 0)
    ...          for row, final in (("CCE", 0.776), ("GCE", 0.869), ("DM(0.5, 12)", 0.866))]
    >>> sentence(Block("a", "r = 0.4", None, tuple(lines)))
    'GCE ends highest, at 86.9 ± 0.4, but within a deviation of DM(0.5, 12), and 9.3 points above CCE.'
    """
    ranked = sorted(
        ((line.measured["final"], line.row) for line in block.lines if "final" in line.measured),
        key=lambda each: -each[0].mean,
    )
    if len(ranked) < 2:
        return ""
    (first, row), (second, next_row) = ranked[:2]
    parts = [f"{row} ends highest, at {measured_text(first, first.seeds)}"]
    deviations = [each.deviation for each in (first, second) if each.deviation is not None]
    if deviations and first.mean - second.mean < max(deviations):
        parts.append(f"but within a deviation of {next_row}")
    cce = next((each for each, name in ranked if name == "CCE"), None)
    if cce is not None and row != "CCE":
        parts.append(f"{'and ' * (len(parts) > 1)}{100 * (first.mean - cce.mean):.1f} points above CCE")
    return ", ".join(parts) + "."


def label(metric: str) -> str:
    """Return the column heading of a metric."""
    return LABELS.get(metric, metric)


def measured_text(value: Measured | None, seeds: int) -> str:
    """Format a share in percent with its standard deviation, and its number of seeds where it is not the row's.

    >>> m = Measured
    >>> measured_text(m(0.8512, 0.004, 3), 3), measured_text(m(0.8512, None, 1), 3), measured_text(None, 3)
    ('85.1 ± 0.4', '85.1 (1 seed)', '-')
    """
    if value is None:
        return "-"
    deviation = "" if value.deviation is None else f" ± {100 * value.deviation:.1f}"
    fewer = "" if value.seeds == seeds else f" ({value.seeds} {'seed' if value.seeds == 1 else 'seeds'})"
    return f"{100 * value.mean:.1f}{deviation}{fewer}"


def _paper_text(line: Line, metric: str) -> str:
    return next((reported_text(number) for number in line.reported if number.metric == metric), "-")


def reported_text(number: Reported) -> str:
    """Format a number of the paper, with the source of a quoted one in brackets.

    >>> reported_text(Reported("best", 58.8, "SL")), reported_text(Reported("printed", 55.7, deviation=0.3))
    ('58.8 [SL]', '55.7 ± 0.3')
    """
    deviation = "" if number.deviation is None else f" ± {number.deviation:g}"
    return f"{number.value:.1f}{deviation}{f' [{number.quoted}]' if number.quoted else ''}"


def notes(experiment: Experiment, several: Sequence[Block]) -> list[str]:
    """Return what a reader must know: protocol, differences, cost, meaning of columns, changes of the data."""
    lines = [f"Protocol {experiment.protocol}: {PROTOCOLS[experiment.protocol]}."]
    if experiment.differs:
        lines.append(f"Differences: {experiment.differs}")
    cost = "not measured" if experiment.cost is None else f"{experiment.cost:g} s per run on {experiment.cost_on}"
    if experiment.cells:
        lines.append(f"Cost: {cost}.")
    explained = [f"{label(each)}: {METRICS[each]}" for each in experiment.metrics if each not in ("final", "best")]
    if experiment.cells and explained:
        lines.append(f"Columns: {'; '.join(explained)}.")
    quoted = sorted({number.quoted for cell in experiment.cells for number in cell.reported if number.quoted})
    if quoted:
        lines.append(f"[{'], ['.join(quoted)}]: numbers that the paper quotes; the others are its own.")
    if any(block.kind is not None and block.kind.data is not None for block in several):
        lines.append("The data changed between runs: each table names the start of its data hash.")
    return lines


def text_lines(table: TextTable, left: int = 1) -> list[str]:
    """Return a table as aligned lines; the first `left` columns are flush left, the others flush right.

    >>> text_lines(TextTable("", ("", "final"), [("CCE", "61.2"), ("DM(0.5, 8)", "85.1")]))
    ['            final', 'CCE          61.2', 'DM(0.5, 8)   85.1']
    """
    rows = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = ([f"{cell:{'<' if i < left else '>'}{widths[i]}}" for i, cell in enumerate(row)] for row in rows)
    return ["  ".join(cells).rstrip() for cells in aligned]


def markdown(experiment: Experiment, several: Sequence[Block], more: Sequence[TextTable] = (), level: int = 1) -> str:
    """Return an experiment as Markdown: its blocks, then more tables."""
    parts = [f"{'#' * level} {experiment.title}", "\n".join(f"- {note}" for note in notes(experiment, several))]
    tables = [(block_table(block, experiment.metrics), sentence(block)) for block in several]
    for table, text in (*tables, *((each, "") for each in more)):
        parts += [f"{'#' * (level + 1)} {table.title}", *([text] if text else []), markdown_table(table)]
    remarks = {f"{cell.row}: {cell.note}" for cell in experiment.cells if cell.note}
    if remarks:
        parts.append("\n".join(f"- {remark}" for remark in sorted(remarks)))
    return "\n\n".join(parts) + "\n"


def markdown_table(table: TextTable) -> str:
    """Return the lines of a table in Markdown, without its title."""
    head = [_markdown_row(table.columns), _markdown_row(["---", *["---:"] * (len(table.columns) - 1)])]
    return "\n".join([*head, *map(_markdown_row, table.rows)])


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def mapping(experiment: Experiment, several: Sequence[Block], choices: Sequence[ChoiceResult] = ()) -> dict[str, Any]:
    """Return an experiment in JSON values; measured numbers are shares, reported ones in percent."""
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "protocol": experiment.protocol,
        "differs": experiment.differs,
        "metrics": {metric: METRICS[metric] for metric in experiment.metrics},
        "blocks": [
            {
                "column": block.column,
                "kind": None if block.kind is None else block.kind._asdict(),
                "rows": [
                    {
                        "row": line.row,
                        "measured": {metric: value._asdict() for metric, value in line.measured.items()},
                        "reported": [vars(number) for number in line.reported],
                        "seeds": list(line.seeds),
                        "diverged": line.diverged,
                        "chosen": line.chosen or None,
                    }
                    for line in block.lines
                ],
            }
            for block in several
        ],
        "choices": [
            {"place": each.place, "what": each.parameter, "scores": each.scores, "chosen": each.chosen}
            for each in choices
        ],
    }
