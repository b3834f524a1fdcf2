"""Findings: finished runs, reduced to what tables need; and the files in paper/results that keep them.

    {"format": 1, "experiment": {"name", "title", "protocol", "metrics", "differs", "cost", "cost_on", "figure",
                                 "figure_rate"},
     "cells": [{"row", "column", "reported", "note"}],
     "entries": [{"row", "column", "seed", "chosen", "finding": {...}}],
     "trials": [{...}],                      findings of the trials of choices
     "environments": [{...}]}                commit, versions and device, referred to by index

A run in such a file need not be repeated, so work can continue on a machine without the run folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from paper.experiment import Cell, Experiment, Reported
from reweigh.errors import DataError
from reweigh.lab.figures.figure import thin
from reweigh.lab.record import Header, current_names, read_header, read_result, read_rows
from reweigh.lab.record.files import jsonable, make_folder, read_json, replace_file
from reweigh.lab.record.header import DETAILS
from reweigh.lab.record.rows import RENAMED
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of, string
from reweigh.lab.report.collect import RunSummary
from reweigh.lab.spec import Run, describe
from reweigh.metrics import collapsed_classes

FORMAT = 1
RETRIEVAL = "retrieval.json"  # scores in a run's folder
COLUMNS = (
    *("step", "test_accuracy", "train_accuracy", "train_accuracy_clean"),
    *("p_clean", "p_noisy", "fit_clean", "fit_noisy"),
)
FINAL_METRICS = {
    "final": "test_accuracy",
    "corrupted": "train_accuracy",
    "intact": "train_accuracy_clean",
    "fit_clean": "fit_clean",
    "fit_noisy": "fit_noisy",
    "validation": "validation_accuracy",
}
POINTS = 40  # rows kept of a run
DIGITS = 5

_METRICS = object_of(rest=nullable(number))
_FINDING = object_of(
    {
        "name": string,
        "header": object_of(
            {
                "run": object_of(),
                "data_hash": string,
                "label_hash": string,
                "examples": integer,
                "details": DETAILS,
                "environments": list_of(integer),
            }
        ),
        "metrics": _METRICS,
        "columns": object_of({}, {"step": list_of(integer)}, rest=list_of(nullable(number))),
        "seconds": nullable(number),
    },
    {"diverged": nullable(integer)},
)
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
_EXPERIMENT_FIELDS = ("name", "title", "protocol", "metrics", "differs", "cost", "cost_on", "figure", "figure_rate")
_RESULTS = object_of(
    {
        "experiment": _EXPERIMENT,
        "cells": list_of(object_of({**_PLACE, "reported": list_of(_REPORTED), "note": string})),
        "entries": list_of(object_of({**_PLACE, "seed": integer, "chosen": string, "finding": _FINDING})),
        "trials": list_of(_FINDING),
        "environments": list_of(object_of()),
    }
)


@dataclass(frozen=True)
class Finding:
    """A finished run.

    Attributes:
        name: of the run's folder; with the procedure's name in front if it has one.
        header: of the run.
        metrics: name -> share, None where it is not a number.
        columns: of its rows, lists of equal length.
        seconds: spent by the last process that trained it.
        diverged: the iteration at which training diverged, None if it did not.
    """

    name: str
    header: Header
    metrics: Mapping[str, float | None]
    columns: Mapping[str, list[float | None]] = field(default_factory=dict)
    seconds: float | None = None
    diverged: int | None = None

    @property
    def run(self) -> Run:
        """The run."""
        return self.header.run

    def run_summary(self) -> RunSummary:
        """Return the finding as figures of runs expect it."""
        columns = {key: values for key, values in self.columns.items() if values}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        result: dict[str, Any] = {which: {"test_accuracy": self.metrics.get(which)} for which in ("final", "best")}
        return RunSummary(Path(self.name), self.header, rows, result | {"diverged": self.diverged})

    def to_mapping(self, environments: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Return JSON values; environments are added to the list and referred to by index.

        Fields that only say where a run was made are left out. Of `init_file` the bare name is kept, because a run with
        `init_hash` needs one.
        """
        content = self.header.to_mapping()
        del content["format"], content["hash"]
        hashed = {item.name for item in describe() if item.hashed}
        content["run"] = {key: value for key, value in content["run"].items() if key in hashed}
        if self.run.init_file is not None:
            content["run"]["init_file"] = Path(self.run.init_file).name
        details = content["details"]
        noise = details.get("noise")
        content["details"] = {key: details[key] for key in ("name", "holdout") if key in details}
        if noise is not None:
            content["details"]["noise"] = {key: noise[key] for key in ("kind", "rate", "measured", "hash")}
        for each in self.header.environments:
            if each not in environments:
                environments.append(each)
        content["environments"] = [environments.index(each) for each in self.header.environments]
        return {
            "name": self.name,
            "header": content,
            "metrics": dict(self.metrics),
            "columns": dict(self.columns),
            "seconds": self.seconds,
            **({} if self.diverged is None else {"diverged": self.diverged}),
        }

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], environments: list[Mapping[str, Any]]) -> Finding:
        """Read what `to_mapping` wrote."""
        metrics, columns = current_names(content["metrics"]), current_names(content["columns"])
        if columns and {len(values) for values in columns.values()} != {len(columns.get("step", ()))}:
            raise ValueError(f"the columns of {content['name']} do not have one number for each step")
        head = content["header"]
        header = Header(
            run=Run.from_mapping(head["run"]),
            data_hash=head["data_hash"],
            label_hash=head["label_hash"],
            examples=head["examples"],
            details=head["details"],
            environments=tuple(environments[number] for number in head["environments"]),
        )
        diverged = content.get("diverged")
        return cls(content["name"], header, metrics, columns, content["seconds"], diverged)


Store: TypeAlias = Mapping[str, Finding]
"""Findings by name."""


def read_finding(folder: Path) -> Finding | None:
    """Return the finding of a run's folder, None if the run is not finished or its record is damaged."""
    try:
        result = read_result(folder) if (folder / "run.json").exists() else None
        if result is None:
            return None
        header, rows = read_header(folder), read_rows(folder)
        scores: dict[str, Any] = read_json(folder / RETRIEVAL) if (folder / RETRIEVAL).exists() else {}
        check_schema(folder / RETRIEVAL, scores, _METRICS)
    except DataError:
        return None
    final, best = current_names(result.get("final") or {}), result.get("best") or {}
    metrics: dict[str, float | None] = {name: final[key] for name, key in FINAL_METRICS.items() if key in final}
    if best.get("test_accuracy") is not None:
        metrics["best"] = best["test_accuracy"]
    if rows and (means := rows[-1].get("p_by_class")):
        metrics["collapsed_classes"] = len(collapsed_classes(means)) / len(means)
    diverged = result.get("diverged")
    if diverged is not None and "validation" in metrics:
        metrics["validation"] = None  # a diverged trial predicts one class for everything and must not win
    kept = [current_names(rows[i]) for i in thin(len(rows), POINTS)]
    columns = {key: [row.get(key) for row in kept] for key in COLUMNS if any(key in row for row in kept)}
    # rounded here, so that a finding is the same from its folder and from a results file
    return Finding(folder.name, header, _rounded(metrics | scores), _rounded(columns), result.get("seconds"), diverged)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def without_columns(finding: Finding) -> Finding:
    """Drop the columns, for trials, of which only the score matters."""
    return replace(finding, columns={})


class Entry(NamedTuple):
    """A finding in its cell; `chosen` says what its choice came to, such as "beta 8"."""

    row: str
    column: str
    seed: int
    chosen: str
    finding: Finding


@dataclass(frozen=True)
class Results:
    """The results of an experiment.

    Attributes:
        experiment: when read from a file, its cells have only reported numbers, no runs.
        entries: the measured cells.
        trials: findings of the trials of choices.
    """

    experiment: Experiment
    entries: tuple[Entry, ...] = ()
    trials: tuple[Finding, ...] = ()

    @property
    def store(self) -> Store:
        """All findings by name."""
        return {finding.name: finding for finding in (*self.trials, *(entry.finding for entry in self.entries))}

    @property
    def environments(self) -> list[Mapping[str, Any]]:
        """The environments of all entries, without duplicates."""
        every = [each for entry in self.entries for each in entry.finding.header.environments]
        return [each for i, each in enumerate(every) if each not in every[:i]]


def merged_store(several: Iterable[Results]) -> Store:
    """Return all findings of several results; of duplicates the first, but one with columns before one without."""
    store: dict[str, Finding] = {}
    for results in several:
        for name, finding in results.store.items():
            if name not in store or (finding.columns and not store[name].columns):
                store[name] = finding
    return store


def write_results(results: Results, path: Path) -> None:
    """Write results, sorted, so that the same findings give the same bytes."""
    environments: list[Mapping[str, Any]] = []
    rows, columns = results.experiment.rows, results.experiment.columns

    def order(entry: Entry) -> tuple[int, int, int, str]:
        return columns.index(entry.column), rows.index(entry.row), entry.seed, entry.finding.name

    content = {
        "format": FORMAT,
        "experiment": {name: getattr(results.experiment, name) for name in _EXPERIMENT_FIELDS},
        "cells": [
            {
                "row": cell.row,
                "column": cell.column,
                "reported": [vars(number) for number in cell.reported],
                "note": cell.note,
            }
            for cell in results.experiment.cells
        ],
        "entries": [
            entry._asdict() | {"finding": entry.finding.to_mapping(environments)}
            for entry in sorted(results.entries, key=order)
        ],
        "trials": [trial.to_mapping(environments) for trial in sorted(results.trials, key=lambda each: each.name)],
        "environments": environments,
    }
    make_folder(path.parent)
    written = json.dumps(jsonable(content), allow_nan=False, indent=None, separators=(",", ":"))
    # one entry a line, for readable diffs
    written = written.replace('{"row":', '\n{"row":').replace('{"name":', '\n{"name":') + "\n"
    replace_file(path, lambda file: file.write(written.encode()))


def read_results(path: Path) -> Results:
    """Read what `write_results` wrote; raise DataError if it is damaged or of another format."""
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: format is {content.get('format')!r}; this version reads {FORMAT}")
    check_schema(path, content, _RESULTS)
    try:
        cells = tuple(
            Cell(
                cell["row"],
                cell["column"],
                reported=tuple(Reported(**number) for number in cell["reported"]),
                note=cell["note"],
            )
            for cell in content["cells"]
        )
        fields, environments = content["experiment"], content["environments"]
        metrics = tuple(RENAMED.get(name, name) for name in fields["metrics"])
        experiment = Experiment(**fields | {"metrics": metrics, "cells": cells})

        def finding(content: Mapping[str, Any]) -> Finding:
            return Finding.from_mapping(content, environments)

        entries = tuple(Entry(**entry | {"finding": finding(entry["finding"])}) for entry in content["entries"])
        return Results(experiment, entries, tuple(map(finding, content["trials"])))
    except (TypeError, ValueError, IndexError) as error:
        raise DataError(f"{path}: {type(error).__name__}: {error}") from error
