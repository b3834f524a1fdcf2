"""What came of one run, small enough to keep: its header, its result, and a few columns over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from reweigh.errors import DataError
from reweigh.lab.record import Header, current_names, read_header, read_result, read_rows
from reweigh.lab.record.files import read_json
from reweigh.lab.record.header import DETAILS
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of, string
from reweigh.lab.report.collect import Told
from reweigh.lab.report.figure import thin
from reweigh.lab.spec import Run, describe
from reweigh.metrics import collapsed_classes

COLUMNS = (
    *("step", "test_accuracy", "train_accuracy", "train_accuracy_clean"),
    *("p_clean", "p_noisy", "fit_clean", "fit_noisy"),
)
POINTS = 40  # rows that are kept of a run
DIGITS = 5
RETRIEVAL = "retrieval.json"
_METRICS = object_of(rest=nullable(number))
FINDING = object_of(
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
"""What `Finding.to_mapping` writes."""
_FINAL = {
    "final": "test_accuracy",
    "corrupted": "train_accuracy",
    "intact": "train_accuracy_clean",
    "fit_clean": "fit_clean",
    "fit_noisy": "fit_noisy",
    "validation": "validation_accuracy",
}


@dataclass(frozen=True)
class Finding:
    """A finished run.

    Attributes:
        name: of its folder, or of the procedure it belongs to.
        header: of the run that is looked at.
        metrics: name -> share, None where it is not a number.
        columns: of its rows, equally long lists.
        seconds: that the last process spent on it.
        diverged: the iteration at which training was found to have diverged; None where it did not.
    """

    name: str
    header: Header
    metrics: Mapping[str, float | None]
    columns: Mapping[str, list[float | None]] = field(default_factory=dict)
    seconds: float | None = None
    diverged: int | None = None

    @property
    def run(self) -> Run:
        """The run that is looked at."""
        return self.header.run

    def told(self) -> Told:
        """As a report reads it, for its figures."""
        keys = [key for key, values in self.columns.items() if values]
        count = len(self.columns[keys[0]]) if keys else 0
        rows: list[dict[str, Any]] = [{key: self.columns[key][i] for key in keys} for i in range(count)]
        result: dict[str, Any] = {which: {"test_accuracy": self.metrics.get(which)} for which in ("final", "best")}
        result["diverged"] = self.diverged
        return Told(Path(self.name), self.header, rows, result)

    def to_mapping(self, environments: list[Mapping[str, Any]]) -> dict[str, Any]:
        """In values that JSON has; `environments` is added to, and named by number.

        Fields of the run that say only where it was are left out: they name folders of somebody's machine. Of a file of
        weights the bare name stays, without which there is no run.
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
        content["environments"] = [_number(environments, each) for each in self.header.environments]
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
        """What `to_mapping` wrote, of the shape `FINDING`."""
        content = current_names(content)
        columns = content["columns"]
        if columns and {len(values) for values in columns.values()} != {len(columns.get("step", ()))}:
            raise ValueError(f"the columns of {content['name']} have not one number for each step")
        head = content["header"]
        header = Header(
            run=Run.from_mapping(head["run"]),
            data_hash=head["data_hash"],
            label_hash=head["label_hash"],
            examples=head["examples"],
            details=head["details"],
            environments=tuple(environments[number] for number in head["environments"]),
        )
        told = (content["name"], header, content["metrics"], columns, content["seconds"])
        return cls(*told, content.get("diverged"))


Store: TypeAlias = Mapping[str, Finding]
"""Findings by name."""


def find(folder: Path) -> Finding | None:
    """The finding of a run's folder, None where the run is not done or its record cannot be read."""
    try:
        result = read_result(folder) if (folder / "run.json").exists() else None
        if result is None:
            return None
        header, rows = read_header(folder), read_rows(folder)
        scores: dict[str, Any] = read_json(folder / RETRIEVAL) if (folder / RETRIEVAL).exists() else {}
        check_schema(folder / RETRIEVAL, scores, _METRICS)
    except DataError:
        return None
    final, best = result.get("final") or {}, result.get("best") or {}
    metrics: dict[str, float | None] = {name: final[key] for name, key in _FINAL.items() if key in final}
    if best.get("test_accuracy") is not None:
        metrics["best"] = best["test_accuracy"]
    if rows and (means := rows[-1].get("p_by_class")):
        metrics["collapsed_classes"] = len(collapsed_classes(means)) / len(means)
    diverged = result.get("diverged")
    if diverged is not None and "validation" in metrics:
        metrics["validation"] = None  # by which it could be chosen: it predicts one class for everything
    kept = [rows[i] for i in thin(len(rows), POINTS)]
    columns = {key: [row.get(key) for row in kept] for key in COLUMNS if any(key in row for row in kept)}
    # rounded here, so that a finding is the same from its folder and from a file of results
    return Finding(folder.name, header, rounded(metrics | scores), rounded(columns), result.get("seconds"), diverged)


def without_columns(finding: Finding) -> Finding:
    """For trials, of which only the score matters."""
    return replace(finding, columns={})


def _number(environments: list[Mapping[str, Any]], environment: Mapping[str, Any]) -> int:
    if environment not in environments:
        environments.append(environment)
    return environments.index(environment)


def rounded(value: Any) -> Any:
    """The value with every float in it at a few digits, which is more than accuracies have."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value
