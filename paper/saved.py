"""Results that are kept: experiments/results/NAME.json, from which tables are made again without the runs.

    {"format": 1, "experiment": {"name", "title", "protocol", "metrics", "differs", "cost", "cost_on", "figure",
                                 "figure_rate"},
     "cells": [{"row", "column", "reported", "note"}],
     "entries": [{"row", "column", "seed", "chosen", "finding": {...}}],
     "trials": [{...}],                      findings that choices were made by
     "environments": [{...}]}                commit, versions and device; findings name them by number

A file that is there is added to. Findings in it count as measured, so that work can go on where the runs no longer are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paper.finding import FINDING, Finding, Store, without_columns
from paper.plan import tasks, trials
from paper.table import Block, Entry, blocks, entries, kind_of
from paper.values import Cell, Experiment, Reported
from reweigh.errors import DataError
from reweigh.lab.record.files import jsonable, make_folder, read_json, replace_file
from reweigh.lab.record.rows import RENAMED
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of, string

FORMAT = 1
_TOLD = ("name", "title", "protocol", "metrics", "differs", "cost", "cost_on", "figure", "figure_rate")
_PLACE = {"row": string, "column": string}
_REPORTED = object_of({"metric": string, "value": number}, {"quoted": string, "deviation": nullable(number)})
_EXPERIMENT = object_of(
    {"name": string, "title": string, "protocol": string, "metrics": list_of(string)},
    {
        "differs": string,
        "cost": nullable(number),
        "cost_on": string,
        "figure": nullable(string),
        "figure_rate": nullable(number),
    },
)
_SAVED = object_of(
    {
        "experiment": _EXPERIMENT,
        "cells": list_of(object_of({**_PLACE, "reported": list_of(_REPORTED), "note": string})),
        "entries": list_of(object_of({**_PLACE, "seed": integer, "chosen": string, "finding": FINDING})),
        "trials": list_of(FINDING),
        "environments": list_of(object_of()),
    }
)


@dataclass(frozen=True)
class Saved:
    """The results of an experiment.

    Attributes:
        experiment: its cells have no runs, only what was reported.
        entries: what was measured.
        trials: what choices were made by.
    """

    experiment: Experiment
    entries: tuple[Entry, ...] = ()
    trials: tuple[Finding, ...] = ()

    @property
    def store(self) -> Store:
        """All findings by name."""
        return {found.name: found for found in (*self.trials, *(entry.finding for entry in self.entries))}

    @property
    def environments(self) -> list[Mapping[str, Any]]:
        """All that took part, each once."""
        found: list[Mapping[str, Any]] = []
        for entry in self.entries:
            found += [each for each in entry.finding.header.environments if each not in found]
        return found

    def blocks(self) -> list[Block]:
        """As tables."""
        return blocks(self.experiment, self.entries)


def collect(experiment: Experiment, seeds: Sequence[int], store: Store, before: Saved | None = None) -> Saved:
    """The results of an experiment with these findings, added to those there were before.

    Where a cell has become another run since, or its choice another one, what it was goes once the new one is measured.
    """
    found = entries(experiment, seeds, store)
    judged = [without_columns(store[name]) for run in trials(experiment) if (name := run.folder_name()) in store]
    if before is None:
        return Saved(experiment, tuple(found), tuple(judged))
    new = {_place(experiment, entry) for entry in found}
    rows = {(cell.row, cell.column) for cell in experiment.cells}
    planned = tasks(experiment, sorted({entry.seed for entry in before.entries}), store)
    names = {(task.cell.row, task.cell.column, task.seed): task.name for task in planned}
    anew = {_line(experiment, entry) for entry in found}
    kept = [
        entry
        for entry in before.entries
        if _place(experiment, entry) not in new
        and (_line(experiment, entry) not in anew or entry.finding.name == names[entry.row, entry.column, entry.seed])
    ]
    cells = [*experiment.cells, *(c for c in before.experiment.cells if (c.row, c.column) not in rows)]
    older = [trial for trial in before.trials if trial.name not in {each.name for each in judged}]
    whole = replace(experiment, cells=tuple(cells))
    return Saved(whole, (*kept, *found), (*older, *judged))


def shared(several: Iterable[Saved]) -> Store:
    """All findings of several results by name; of one that is there twice the first, but rather with its columns."""
    found: dict[str, Finding] = {}
    for saved in several:
        for name, finding in saved.store.items():
            if name not in found or (finding.columns and not found[name].columns):
                found[name] = finding
    return found


def _line(experiment: Experiment, entry: Entry) -> tuple[object, ...]:
    """What is averaged."""
    return entry.row, entry.column, kind_of(experiment, entry)


def _place(experiment: Experiment, entry: Entry) -> tuple[object, ...]:
    return *_line(experiment, entry), entry.seed


def save(saved: Saved, path: Path) -> None:
    """Write results, sorted, so that the same findings give the same bytes."""
    environments: list[Mapping[str, Any]] = []
    rows, columns = saved.experiment.rows, saved.experiment.columns

    def order(entry: Entry) -> tuple[int, int, int, str]:
        return columns.index(entry.column), rows.index(entry.row), entry.seed, entry.finding.name

    content = {
        "format": FORMAT,
        "experiment": {name: getattr(saved.experiment, name) for name in _TOLD},
        "cells": [
            {
                "row": cell.row,
                "column": cell.column,
                "reported": [vars(number) for number in cell.reported],
                "note": cell.note,
            }
            for cell in saved.experiment.cells
        ],
        "entries": [
            entry._asdict() | {"finding": entry.finding.to_mapping(environments)}
            for entry in sorted(saved.entries, key=order)
        ],
        "trials": [trial.to_mapping(environments) for trial in sorted(saved.trials, key=lambda finding: finding.name)],
        "environments": environments,
    }
    make_folder(path.parent)
    written = json.dumps(jsonable(content), allow_nan=False, indent=None, separators=(",", ":"))
    # one entry a line: a change shows as the lines that changed
    written = written.replace('{"row":', '\n{"row":').replace('{"name":', '\n{"name":') + "\n"
    replace_file(path, lambda file: file.write(written.encode()))


def read_saved(path: Path) -> Saved:
    """What `save` wrote; DataError where it is damaged or of another format."""
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: format is {content.get('format')!r}; this version reads {FORMAT}")
    check_schema(path, content, _SAVED)
    try:
        told = content["experiment"]
        cells = tuple(
            Cell(
                cell["row"],
                cell["column"],
                None,
                tuple(Reported(**number) for number in cell["reported"]),
                note=cell["note"],
            )
            for cell in content["cells"]
        )
        experiment = Experiment(
            **told | {"metrics": tuple(RENAMED.get(name, name) for name in told["metrics"]), "cells": cells}
        )
        environments = content["environments"]

        def finding(mapping: Mapping[str, Any]) -> Finding:
            return Finding.from_mapping(mapping, environments)

        found = tuple(Entry(**entry | {"finding": finding(entry["finding"])}) for entry in content["entries"])
        return Saved(experiment, found, tuple(map(finding, content["trials"])))
    except (TypeError, ValueError, IndexError) as error:
        raise DataError(f"{path}: {type(error).__name__}: {error}") from error
