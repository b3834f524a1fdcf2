"""The runs of a report, and those that differ in nothing but the seed, and had the same data, as one group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

from reweigh.errors import DataError
from reweigh.lab.data.dataset import TEST
from reweigh.lab.record import Header, caveat, list_runs, read_run
from reweigh.lab.record.header import data_versions
from reweigh.lab.spec import Run, describe, parse
from reweigh.lab.spec.signatures import brief

TAUGHT = ("weighting", "loss", "method")
HASH_OF_DATA = "hash of data"
_SEEDS = ("seed", "noise_seed")
_RECORDS = {field.name for field in describe() if field.records}


class Told(NamedTuple):
    """One run as its folder tells it."""

    folder: Path
    header: Header
    rows: list[dict[str, Any]]
    result: dict[str, Any] | None

    @property
    def state(self) -> str:
        if self.result is None:
            return "running or stopped"
        return f"done, but {told}" if (told := caveat(self.result)) else "done"

    @property
    def diverged(self) -> int | None:
        """The first iteration at which numbers were not finite, of a finished run."""
        return (self.result or {}).get("diverged")


class Collected(NamedTuple):
    """The runs that were found, and a sentence for each that could not be read or is there already."""

    runs: list[Told]
    problems: list[str]


def collect(paths: Iterable[Path]) -> Collected:
    """All runs of the given folders, each the folder of a run or a folder of such folders; none twice.

    A damaged run among others is left out with a sentence; one that was named itself is refused, and so is a folder
    without runs. Of copies of a run, which would count as more seeds than there are, the one that got farthest stays.
    """
    found: dict[Path, Told] = {}
    problems: list[str] = []
    for path in paths:
        if (path / "run.json").exists():
            folders = [path]
        else:
            summaries = list_runs(path)
            if not summaries:
                raise DataError(f"{path}: neither the folder of a run nor a folder of such folders")
            folders = [summary.folder for summary in summaries if summary.problem is None]
            problems += [summary.problem for summary in summaries if summary.problem is not None]
        for folder in folders:
            found[folder.resolve()] = Told(folder, *read_run(folder))
    kept: dict[tuple[str, ...], Told] = {}
    for told in found.values():
        key = told.header.run.hash(), told.header.data_hash, told.header.label_hash
        first = kept.setdefault(key, told)
        if first is not told:
            kept[key], other = (told, first) if _progress(told) > _progress(first) else (first, told)
            problems.append(f"{other.folder}: the same run as {kept[key].folder}")
    return Collected(list(kept.values()), problems)


def _progress(told: Told) -> tuple[bool, int]:
    return told.result is not None, len(told.rows)


@dataclass(frozen=True)
class Group:
    """Runs of the same data that differ in nothing but the seed.

    Attributes:
        label: what tells it from the other groups: what it is taught by, and the fields in which they differ.
        runs: by seed.
        varying: those fields of the run, with their values, that are not the same in all groups and can change a
            result; where that leaves two groups alike, also those that say what is recorded. Where data of one name
            were not the same in all runs, `HASH_OF_DATA` is among them, with its beginning.
    """

    label: str
    runs: tuple[Told, ...]
    varying: dict[str, Any]

    @property
    def run(self) -> Run:
        return self.runs[0].header.run

    @property
    def details(self) -> dict[str, Any]:
        return dict(self.runs[0].header.details)

    @property
    def holdout(self) -> str:
        """What it is tested on: "test", or "noisy hold-out"."""
        return str(self.details.get("holdout", TEST))

    @property
    def truth(self) -> bool:
        """Whether the true labels are known."""
        return "noise" in self.details

    def curve(self, key: str) -> Curve:
        """A column of the rows over time: mean over the seeds that have the step, and standard deviation."""
        by_step: dict[int, list[float]] = {}
        for told in self.runs:
            for row in told.rows:
                if isinstance(row.get(key), int | float):
                    by_step.setdefault(row["step"], []).append(row[key])
        steps = sorted(by_step)
        stats = [spread(by_step[step]) for step in steps]
        return Curve(steps, [mean for mean, _ in stats], [deviation for _, deviation in stats])

    def histogram(self, key: str) -> tuple[list[int], list[list[float | None]]]:
        """A column of lists over time, averaged over seeds: steps, and one list for each."""
        by_step: dict[int, list[list[float | None]]] = {}
        for told in self.runs:
            for row in told.rows:
                if isinstance(row.get(key), list):
                    by_step.setdefault(row["step"], []).append(row[key])
        steps = sorted(by_step)
        return steps, [_mean_list(by_step[step]) for step in steps]

    def score(self, which: str) -> list[float]:
        """Test accuracy of every finished run: "final" or "best"."""
        results = [(told.result or {}).get(which) or {} for told in self.runs]
        return [result["test_accuracy"] for result in results if result.get("test_accuracy") is not None]


class Curve(NamedTuple):
    """Means over seeds at each step, and their standard deviations (None where there is one seed only)."""

    steps: list[int]
    mean: list[float]
    deviation: list[float | None]


def group(runs: Sequence[Told]) -> list[Group]:
    """Runs that differ only in their seeds together, in the order of their first.

    A run's fields say which data it is of, not what they held: those of data that have changed since stand apart.
    """
    hashed = [field.name for field in describe() if field.hashed and field.name not in _SEEDS]
    together: dict[tuple[str, str], list[Told]] = {}
    for told in runs:
        values = {name: value for name, value in told.header.run.identity().items() if name in hashed}
        together.setdefault((json.dumps(values, sort_keys=True), told.header.data_hash), []).append(told)
    keys = [json.loads(key) for key in dict.fromkeys(fields for fields, _ in together)]
    differing = [name for name in hashed if len({json.dumps(key.get(name)) for key in keys}) > 1]
    telling = [name for name in differing if name not in _RECORDS]
    if len({json.dumps([key.get(name) for name in telling]) for key in keys}) < len(keys):
        telling = differing
    version = data_versions(told.header for told in runs)
    groups = []
    for members in together.values():
        header = members[0].header
        varying = {name: getattr(header.run, name) for name in telling}
        if (told_apart := version(header)) is not None:
            varying[HASH_OF_DATA] = told_apart
        ordered = tuple(sorted(members, key=lambda told: told.header.run.seed))
        groups.append(Group(_label(ordered[0].header.run, varying), ordered, varying))
    return groups


def leading(groups: Sequence[Group], most: int) -> list[Group]:
    """The `most` groups with the best final accuracy, in their own order; unfinished ones come last."""
    best = sorted(groups, key=lambda member: -spread(member.score("final") or [-1.0])[0])[:most]
    return [member for member in groups if member in best]


def taught_by(run: Run) -> str:
    """The weighting, loss or method of a run, written one way however the run has it.

    >>> taught_by(Run(data="digits", net="mlp", weighting="DM(beta=8.0, lam=0.5)"))
    'DM(0.5, 8)'
    """
    return str(brief(parse(next(value for name in TAUGHT if (value := getattr(run, name)) is not None))))


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation with n - 1; None for a single value.

    >>> spread([1.0, 3.0]), spread([2.0])
    ((2.0, 1.4142135623730951), (2.0, None))
    """
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _label(run: Run, varying: dict[str, Any]) -> str:
    rest = [
        str(value) if name in ("data", "net", "noise") else f"{name.replace('_', ' ')} {value}"
        for name, value in varying.items()
        if name not in TAUGHT and value is not None
    ]
    return ", ".join([taught_by(run), *rest])


def _mean_list(lists: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Means entry by entry, over those that have one."""
    if len(lists) == 1:
        return list(lists[0])
    there = [[value for value in column if value is not None] for column in zip(*lists, strict=True)]
    return [sum(values) / len(values) if values else None for values in there]
