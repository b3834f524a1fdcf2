"""What an experiment is: cells of runs in rows and columns, with the paper's numbers beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from reweigh.checks import nearest
from reweigh.lab.spec import Run

Protocol: TypeAlias = Literal["text", "authors", "ours"]
PROTOCOLS: Mapping[str, str] = {
    "text": "as the paper's text says",
    "authors": "as its authors ran, by their public history",
    "ours": "our own, the same for all rows",
}
METRICS: Mapping[str, str] = {
    "final": "test accuracy at the end",
    "best": "best test accuracy on the way, chosen by looking at the test part",
    "corrupted": "accuracy on the training labels as given",
    "intact": "accuracy on the true training labels",
    "fit_clean": "share of right training labels that are fitted",
    "fit_noisy": "share of wrong training labels that are fitted",
    "collapsed_classes": "share of classes whose training labels have a mean p below half of chance",
    "retrained": "test accuracy at the end of a new training on corrected labels",
    "mAP": "mean average precision of retrieval",
    "CMC-1": "share of queries whose first hit is right",
    "printed": "a number whose kind the paper does not say",
}
"""Everything measured is a share from 0 to 1; everything reported is in percent, as papers print it."""


@dataclass(frozen=True)
class Reported:
    """A number of the paper, in percent.

    Attributes:
        metric: one of `METRICS`; "printed" where the paper does not say whether it is final or best.
        value: the number.
        quoted: whose number it is where the paper quotes it; empty for the paper's own run.
        deviation: over trials, where one is printed.
    """

    metric: str
    value: float
    quoted: str = ""
    deviation: float | None = None

    def __post_init__(self) -> None:
        check_metric(self.metric)


@dataclass(frozen=True)
class Option:
    """One way a cell could be run: what it is called, the trial that judges it, and the run if it is chosen."""

    label: str
    trial: Run
    run: Run


@dataclass(frozen=True)
class Choice:
    """What is found by search on a held-out part of the training data before the cell is run.

    Attributes:
        what: the name of what is chosen, such as "beta".
        options: in order; of equal scores the first is taken.
    """

    what: str
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError(f"the choice of {self.what} has no options")
        for option in self.options:
            if option.trial.validation == 0:
                raise ValueError(f"the choice of {self.what}: its trial {option.label} holds nothing out to judge by")


@dataclass(frozen=True)
class Procedure:
    """A cell that takes several runs, by the name of a function in `reweigh.lab.procedures` or of this package."""

    name: str
    settings: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Cell:
    """One place in a table.

    Attributes:
        row, column: where.
        what: a run with seed 0, a choice among runs, or None where there is only a number to quote.
        reported: the paper's numbers.
        procedure: carried out on the run in place of the run alone.
        note: what should be known about it.
    """

    row: str
    column: str
    what: Run | Choice | None = None
    reported: tuple[Reported, ...] = ()
    procedure: Procedure | None = None
    note: str = ""

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs it could be."""
        if isinstance(self.what, Choice):
            return tuple(option.run for option in self.what.options)
        return () if self.what is None else (self.what,)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes:
        name: of its results.
        title: for people.
        protocol: `PROTOCOLS` says what each means.
        cells: in the order of rows; results are shown column by column.
        metrics: what is shown, of `METRICS`.
        seeds: those to run where nothing else is asked for.
        differs: what is not as in the paper, or not said there.
        cost: seconds of a run on `cost_on`, measured; None where nobody has.
        cost_on: the device.
        figure: of the paper, drawn from these runs: "1b", "2" or "grid".
        figure_rate: the noise rate that figure 2 shows over time; None for the one that most settings have.
        scored: "retrieval" where runs are scored as a retrieval of tracklets besides.
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
            raise ValueError(f"{self.name}: the cell {' / '.join(twice)} is there twice")

    @property
    def columns(self) -> tuple[str, ...]:
        """In the order of their first cells."""
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def rows(self) -> tuple[str, ...]:
        """In the order of their first cells."""
        return tuple(dict.fromkeys(cell.row for cell in self.cells))

    def only(self, *phrases: str) -> Experiment:
        """The cells whose row, column, protocol and name hold all words of one of the phrases, whatever their case.

        A word counts from its beginning, and a number as a whole: "symmetric" is not in "asymmetric", nor 0 in 0.2.
        Without a phrase all stay.
        """

        def pattern(word: str) -> re.Pattern[str]:
            return re.compile(rf"(?<![a-z0-9.]){re.escape(word)}{'(?![0-9.])' if word[-1].isdigit() else ''}")

        wanted = [[pattern(word) for word in phrase.lower().split()] for phrase in phrases or ("",)]

        def chosen(cell: Cell) -> bool:
            text = f"{self.name} {self.protocol} {cell.row} {cell.column}".lower()
            return any(all(word.search(text) for word in words) for words in wanted)

        return replace(self, cells=tuple(cell for cell in self.cells if chosen(cell)))

    def adjusted(self, change: Callable[[Run], Run]) -> Experiment:
        """The experiment with every run in it changed."""
        return replace(self, cells=tuple(_adjusted(cell, change) for cell in self.cells))


def check_metric(metric: str) -> None:
    """Refuse what is not in `METRICS`."""
    if metric not in METRICS:
        raise ValueError(f"metric is {metric!r}; {nearest(metric, list(METRICS))}")


def numbers(text: str) -> list[float | None]:
    """The numbers of a printed line; a dash is none.

    >>> numbers("-- 76 71.5")
    [None, 76.0, 71.5]
    """
    return [None if word in ("-", "--") else float(word) for word in text.split()]


@dataclass(frozen=True)
class Row:
    """A line of a table: what its cells are, and the numbers printed in it, column by column.

    Attributes:
        name: of the row.
        make: column -> run, choice or None.
        printed: as `numbers` reads it; empty where the paper has no such row.
        quoted: whose numbers they are, where they are not the paper's own.
        metric: what those numbers are.
        procedure: column -> the procedure of the cell, or None.
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
    """The cells of a table with one number in each, column by column; one with neither run nor number is left out."""
    lines = [(row, numbers(row.printed) if row.printed else [None] * len(columns)) for row in rows]
    for row, values in lines:
        if len(values) != len(columns):
            raise ValueError(f"row {row.name} has {len(values)} numbers for {len(columns)} columns")
    cells = []
    for i, column in enumerate(columns):
        for row, values in lines:
            value, what = values[i], row.make(column)
            reported = () if value is None else (Reported(row.metric, value, row.quoted),)
            if what is not None or reported:
                cells.append(Cell(row.name, column, what, reported, row.procedure(column), row.note))
    return tuple(cells)


def _adjusted(cell: Cell, change: Callable[[Run], Run]) -> Cell:
    what = cell.what
    if isinstance(what, Choice):
        changed = (Option(option.label, change(option.trial), change(option.run)) for option in what.options)
        return replace(cell, what=replace(what, options=tuple(changed)))
    return replace(cell, what=None if what is None else change(what))
