"""Measured beside reported: entries of one kind together, mean and spread over seeds, never a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from paper.finding import Finding, Store
from paper.plan import tasks
from paper.values import Cell, Experiment, Reported
from reweigh.lab.record.header import data_versions
from reweigh.lab.report.collect import spread


class Entry(NamedTuple):
    """A finding in its place."""

    row: str
    column: str
    seed: int
    chosen: str
    finding: Finding


class Kind(NamedTuple):
    """What must never be mixed; `data` is how the hash of the data begins where they were not the same in all runs."""

    protocol: str
    precision: str
    deterministic: bool
    data: str | None = None

    def __str__(self) -> str:
        told = f"protocol {self.protocol}, {self.precision}, {'' if self.deterministic else 'not '}deterministic"
        return told if self.data is None else f"{told}, data {self.data}"


class Measured(NamedTuple):
    """A metric over seeds, as a share: its mean, its standard deviation (None for one seed), and how many there are."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True)
class Line:
    """One row of one column: what was measured and what was reported, by metric; and how many seeds diverged."""

    row: str
    measured: dict[str, Measured]
    reported: tuple[Reported, ...]
    seeds: tuple[int, ...]
    chosen: str
    note: str
    diverged: int


@dataclass(frozen=True)
class Block:
    """One column of an experiment, with one kind of entries."""

    experiment: str
    column: str
    kind: Kind | None  # None: nothing is measured
    lines: tuple[Line, ...]


def entries(experiment: Experiment, seeds: Sequence[int], store: Store) -> list[Entry]:
    """What is measured of an experiment."""
    return [
        Entry(task.cell.row, task.cell.column, task.seed, task.chosen, store[task.name])
        for task in tasks(experiment, seeds, store)
        if task.name is not None and task.name in store
    ]


def kind_of(experiment: Experiment, entry: Entry) -> Kind:
    """What an entry may be averaged with, as far as it alone can tell."""
    run = entry.finding.run
    return Kind(experiment.protocol, run.precision, run.deterministic)


def blocks(experiment: Experiment, found: Sequence[Entry]) -> list[Block]:
    """The columns of an experiment in order; one that was measured in two kinds is there twice, each by itself."""
    version = data_versions(entry.finding.header for entry in found)

    def kind_among_all(entry: Entry) -> Kind:
        return kind_of(experiment, entry)._replace(data=version(entry.finding.header))

    made = []
    for column in experiment.columns:
        cells = [cell for cell in experiment.cells if cell.column == column]
        here = [entry for entry in found if entry.column == column]
        kinds: list[Kind | None] = list(dict.fromkeys(map(kind_among_all, here))) or [None]
        seen = {entry.row for entry in here}
        for kind in kinds:
            alike = [entry for entry in here if kind_among_all(entry) == kind]
            own = {entry.row for entry in alike}
            # what nobody has measured is shown once, among the first
            shown = [cell for cell in cells if cell.row in own or (kind == kinds[0] and cell.row not in seen)]
            lines = tuple(_line(cell, experiment.metrics, [e for e in alike if e.row == cell.row]) for cell in shown)
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
