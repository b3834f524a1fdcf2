"""Blocks as text: the grid that a terminal shows, Markdown, and what JSON has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from paper.table import Block, Line, Measured
from paper.values import METRICS, PROTOCOLS, Experiment, Reported


class Grid(NamedTuple):
    """A table as texts, with a heading of its own."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def grid_of(block: Block, metrics: Sequence[str]) -> Grid:
    """A block as a grid: for every metric what was measured and, where there is one, what the paper prints."""
    reported = {number.metric for line in block.lines for number in line.reported}
    names, columns = [""], list[str]()
    shown = [metric for metric in metrics if metric in reported or any(metric in line.measured for line in block.lines)]
    for metric in shown or list(metrics):
        columns.append(metric)
        names += [called(metric)] + (["paper"] if metric in reported else [])
    if "printed" in reported:  # beside numbers whose kind is known it must be told apart
        names.append("paper" if len(reported) == 1 else "paper, unspecified")
    names += ["seeds", "chosen"] if any(line.chosen for line in block.lines) else ["seeds"]
    rows = []
    for line in block.lines:
        cells = [line.row]
        for metric in columns:
            cells.append(measured(line.measured.get(metric), len(line.seeds)))
            if metric in reported:
                cells.append(printed(line, metric))
        if "printed" in reported:
            cells.append(printed(line, "printed"))
        diverged = f", {line.diverged} diverged" if line.diverged else ""
        cells.append(f"{len(line.seeds)}{diverged}" if line.seeds else "-")
        rows.append(tuple([*cells, line.chosen or "-"] if "chosen" in names else cells))
    kind = "nothing measured" if block.kind is None else str(block.kind)
    return Grid(f"{block.column} ({kind})", tuple(names), rows)


def called(metric: str) -> str:
    """The head of its column."""
    return metric.replace("_", " ")


def measured(value: Measured | None, seeds: int) -> str:
    """A share in percent, with its standard deviation over seeds; with their number where it is not that of the row.

    >>> measured(Measured(0.8512, 0.004, 3), 3), measured(Measured(0.8512, None, 1), 3), measured(None, 3)
    ('85.1 ± 0.4', '85.1 (1 seed)', '-')
    """
    if value is None:
        return "-"
    spread = "" if value.deviation is None else f" ± {100 * value.deviation:.1f}"
    fewer = "" if value.seeds == seeds else f" ({value.seeds} {'seed' if value.seeds == 1 else 'seeds'})"
    return f"{100 * value.mean:.1f}{spread}{fewer}"


def printed(line: Line, metric: str) -> str:
    """The paper's number, and in brackets whose it is where it is quoted."""
    return next((reported(number) for number in line.reported if number.metric == metric), "-")


def reported(number: Reported) -> str:
    """A number of the paper.

    >>> reported(Reported("best", 58.8, "SL")), reported(Reported("printed", 55.7, deviation=0.3))
    ('58.8 [SL]', '55.7 ± 0.3')
    """
    spread = "" if number.deviation is None else f" ± {number.deviation:g}"
    return f"{number.value:.1f}{spread}{f' [{number.quoted}]' if number.quoted else ''}"


def notes(experiment: Experiment, found: Sequence[Block]) -> list[str]:
    """What a reader must know: protocol, what differs, cost, what the columns are, that data have changed."""
    told = [f"Protocol {experiment.protocol}: {PROTOCOLS[experiment.protocol]}."]
    if experiment.differs:
        told.append(f"Differs: {experiment.differs}")
    cost = "not measured" if experiment.cost is None else f"{experiment.cost:g} s of {experiment.cost_on} a run"
    if experiment.cells:
        told.append(f"Cost: {cost}.")
    more = [f"{called(each)}, {METRICS[each]}" for each in experiment.metrics if each not in ("final", "best")]
    if experiment.cells and more:
        told.append(f"Columns: {'; '.join(more)}.")
    quoted = sorted({number.quoted for cell in experiment.cells for number in cell.reported if number.quoted})
    if quoted:
        told.append(f"[{'], ['.join(quoted)}]: numbers that the paper quotes; the others are its own runs.")
    if any(block.kind is not None and block.kind.data is not None for block in found):
        told.append("The data were not the same in all runs: each table says how the hash of its data begins.")
    return told


def markdown(experiment: Experiment, found: Sequence[Block], more: Sequence[Grid] = (), level: int = 1) -> str:
    """An experiment as Markdown: its blocks, then more tables."""
    parts = [f"{'#' * level} {experiment.title}", "\n".join(f"- {note}" for note in notes(experiment, found))]
    for grid in (*(grid_of(block, experiment.metrics) for block in found), *more):
        head = [_row(grid.columns), _row(["---", *["---:"] * (len(grid.columns) - 1)])]
        parts += [f"{'#' * (level + 1)} {grid.title}", "\n".join([*head, *map(_row, grid.rows)])]
    remarks = {f"{cell.row}: {cell.note}" for cell in experiment.cells if cell.note}
    if remarks:
        parts.append("\n".join(f"- {remark}" for remark in sorted(remarks)))
    return "\n\n".join(parts) + "\n"


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def mapping(experiment: Experiment, found: Sequence[Block]) -> dict[str, Any]:
    """An experiment in values that JSON has; measured numbers are shares, reported ones in percent."""
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
                "rows": [_line(line) for line in block.lines],
            }
            for block in found
        ],
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "row": line.row,
        "measured": {metric: value._asdict() for metric, value in line.measured.items()},
        "reported": [vars(number) for number in line.reported],
        "seeds": list(line.seeds),
        "diverged": line.diverged,
        "chosen": line.chosen or None,
    }
