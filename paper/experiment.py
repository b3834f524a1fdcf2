"""Experiments: tables whose cells are runs, with the paper's numbers, in Python files."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from reweigh.checks import nearest
from reweigh.errors import DataError
from reweigh.lab.spec import Run

Protocol: TypeAlias = Literal["text", "authors", "ours"]
PROTOCOLS: Mapping[str, str] = {
    "text": "as printed in the paper",
    "authors": "as the authors trained, by their public history",
    "ours": "our own, the same for all rows",
}
METRICS: Mapping[str, str] = {
    "final": "test accuracy at the end",
    "best": "best test accuracy during training, selected on the test set",
    "corrupted": "accuracy on the training labels as given",
    "intact": "accuracy on the true training labels",
    "fit_clean": "share of clean training labels that are fitted",
    "fit_noisy": "share of noisy training labels that are fitted",
    "collapsed_classes": "share of classes whose training labels have a mean p below half of chance",
    "retrained": "test accuracy at the end of a second training on corrected labels",
    "mAP": "mean average precision of retrieval",
    "CMC-1": "share of queries whose first match is correct",
    "printed": "a number of which the paper does not say whether it is final or best",
}
"""Measured values are shares from 0 to 1; reported ones are in percent, as papers print them."""
LABELS: Mapping[str, str] = {
    "corrupted": "train (given)",
    "intact": "train (true)",
    "fit_clean": "clean fitted",
    "fit_noisy": "noisy fitted",
    "collapsed_classes": "collapsed classes",
}
"""Column headings of metrics, where they are not the metric's own name."""


@dataclass(frozen=True)
class Reported:
    """A number from the paper, in percent.

    Attributes:
        metric: one of `METRICS`.
        value: the number.
        quoted: the source, for a number that the paper quotes; empty for the paper's own.
        deviation: standard deviation over trials, where one is printed.
    """

    metric: str
    value: float
    quoted: str = ""
    deviation: float | None = None

    def __post_init__(self) -> None:
        check_metric(self.metric)


@dataclass(frozen=True)
class Option:
    """One candidate of a choice: its label, the trial that scores it, and the run if it wins."""

    label: str
    trial: Run
    run: Run


@dataclass(frozen=True)
class Choice:
    """A choice among runs, made by trials that are scored on a hold-out of the training data.

    Attributes:
        parameter: the name of what is chosen, such as "beta".
        options: in order; the first of equal scores wins.
    """

    parameter: str
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError(f"the choice of {self.parameter} has no options")
        for option in self.options:
            if option.trial.validation == 0:
                raise ValueError(f"the choice of {self.parameter}: trial {option.label} has no hold-out")


@dataclass(frozen=True)
class Procedure:
    """A procedure of several runs: the name of a function in `paper.procedures.PROCEDURES`, and its settings."""

    name: str
    settings: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        row, column: its place.
        source: a run with seed 0, a choice among runs, or None if there is only a number to quote.
        reported: the paper's numbers.
        procedure: applied to the run, in place of the run alone.
        note: a remark for readers.
    """

    row: str
    column: str
    source: Run | Choice | None = None
    reported: tuple[Reported, ...] = ()
    procedure: Procedure | None = None
    note: str = ""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs that the cell may show."""
        if isinstance(self.source, Choice):
            return tuple(option.run for option in self.source.options)
        return () if self.source is None else (self.source,)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        name: identifier; the name of its results file.
        title: heading.
        protocol: one of `PROTOCOLS`.
        cells: in the order of rows; tables are shown column by column.
        metrics: columns to show, of `METRICS`.
        seeds: default seeds.
        differs: differences from the paper, and what the paper leaves open.
        cost: measured seconds of a run on `cost_on`; None if not measured.
        cost_on: the device.
        figure: the paper's figure drawn from these runs: "1b", "2" or "grid".
        figure_rate: the noise rate of figure 2's curves; None for the most frequent one.
        scored: "retrieval" to evaluate the models by tracklet retrieval, too.
    """

    name: str
    title: str
    protocol: Protocol
    cells: tuple[Cell, ...]
    metrics: tuple[str, ...] = ("final", "best")
    seeds: tuple[int, ...] = (0,)
    differs: str = ""
    cost: float | None = None
    cost_on: str = ""
    figure: str | None = None
    figure_rate: float | None = None
    scored: Literal["retrieval"] | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol is {self.protocol!r}; {nearest(self.protocol, list(PROTOCOLS))}")
        for metric in self.metrics:
            check_metric(metric)
        places = [(cell.row, cell.column) for cell in self.cells]
        if len(set(places)) < len(places):
            twice = next(place for place in places if places.count(place) > 1)
            raise ValueError(f"{self.name}: duplicate cell {' / '.join(twice)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names, in the order of their first cells."""
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def rows(self) -> tuple[str, ...]:
        """Row names, in the order of their first cells."""
        return tuple(dict.fromkeys(cell.row for cell in self.cells))

    def only(self, *phrases: str) -> Experiment:
        """Keep the cells that match one of the phrases: all its words occur in row, column, protocol and name.

        A word matches at the beginning of a word, a number as a whole: "symmetric" does not match "asymmetric", nor 0
        0.2. Case is ignored. Without phrases all cells are kept.
        """

        def pattern(word: str) -> re.Pattern[str]:
            return re.compile(rf"(?<![a-z0-9.]){re.escape(word)}{'(?![0-9.])' if word[-1].isdigit() else ''}")

        wanted = [[pattern(word) for word in phrase.lower().split()] for phrase in phrases or ("",)]

        def matches(cell: Cell) -> bool:
            text = f"{self.name} {self.protocol} {cell.row} {cell.column}".lower()
            return any(all(word.search(text) for word in words) for words in wanted)

        return replace(self, cells=tuple(cell for cell in self.cells if matches(cell)))

    def map_runs(self, change: Callable[[Run], Run]) -> Experiment:
        """Return the experiment with `change` applied to every run in it."""

        def changed(source: Run | Choice | None) -> Run | Choice | None:
            if not isinstance(source, Choice):
                return None if source is None else change(source)
            options = (Option(option.label, change(option.trial), change(option.run)) for option in source.options)
            return replace(source, options=tuple(options))

        return replace(self, cells=tuple(replace(cell, source=changed(cell.source)) for cell in self.cells))


def check_metric(metric: str) -> None:
    """Raise ValueError for a metric that is not in `METRICS`."""
    if metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; {nearest(metric, list(METRICS))}")


def numbers(text: str) -> list[float | None]:
    """Read the numbers of a printed line; a dash is None.

    >>> numbers("-- 76 71.5")
    [None, 76.0, 71.5]
    """
    return [None if word in ("-", "--") else float(word) for word in text.split()]


@dataclass(frozen=True)
class Row:
    """A row of a table: how to make its cells, and the numbers printed in it.

    Attributes:
        name: of the row.
        make: column -> run, choice or None.
        printed: the numbers, column by column, as `numbers` reads them; empty if the paper has no such row.
        quoted: their source, if they are not the paper's own.
        metric: of these numbers.
        procedure: column -> procedure of the cell, or None.
        note: for every cell of the row.
    """

    name: str
    make: Callable[[str], Run | Choice | None]
    printed: str = ""
    quoted: str = ""
    metric: str = "printed"
    procedure: Callable[[str], Procedure | None] = field(default=lambda column: None)
    note: str = ""


def grid(columns: Sequence[str], rows: Iterable[Row]) -> tuple[Cell, ...]:
    """Return the cells of a table, column by column; cells with neither run nor number are left out."""
    lines = [(row, numbers(row.printed) if row.printed else [None] * len(columns)) for row in rows]
    for row, values in lines:
        if len(values) != len(columns):
            raise ValueError(f"row {row.name} has {len(values)} numbers for {len(columns)} columns")
    cells = []
    for i, column in enumerate(columns):
        for row, values in lines:
            value, source = values[i], row.make(column)
            reported = () if value is None else (Reported(row.metric, value, row.quoted),)
            if source is not None or reported:
                cells.append(Cell(row.name, column, source, reported, row.procedure(column), row.note))
    return tuple(cells)


def load(path: Path) -> tuple[Experiment, ...]:
    """Execute a Python file and return its `EXPERIMENT`, one or a list of them.

    The file runs with all rights of its caller: load only files whose author you trust.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix != ".py":
        raise DataError(f"{path}: an experiment is a Python file, .py")
    try:
        value: object = runpy.run_path(str(path)).get("EXPERIMENT")
    except SyntaxError as error:
        raise DataError(f"{path}, line {error.lineno}: {error.msg}") from error
    several = list(value) if isinstance(value, Sequence) else [value]
    experiments = [each for each in several if isinstance(each, Experiment)]
    if not experiments or len(experiments) < len(several):
        raise DataError(f"{path}: EXPERIMENT must be an Experiment or a list of them, not {type(value).__name__}")
    return tuple(experiments)


def load_all(paths: Iterable[Path]) -> tuple[Experiment, ...]:
    """Load the experiments of several files; each file is executed once, and no two experiments may share a name."""
    files: dict[str, Path] = {}
    loaded = []
    for path in dict.fromkeys(paths):
        for experiment in load(path):
            if experiment.name in files:
                raise DataError(f"{path}: {files[experiment.name]} has an experiment {experiment.name!r}, too")
            files[experiment.name] = path
            loaded.append(experiment)
    return tuple(loaded)
