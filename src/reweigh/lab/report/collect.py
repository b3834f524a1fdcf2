"""Collect the runs of a report, and group those that differ only in their seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

from reweigh.errors import DataError
from reweigh.lab.data.dataset import TEST
from reweigh.lab.objectives import brief
from reweigh.lab.record import Header, caveat, list_runs, read_run
from reweigh.lab.record.header import data_versions
from reweigh.lab.spec import Run, describe, parse

OBJECTIVES = ("weighting", "loss", "method")
HASH_OF_DATA = "hash of data"
_SEEDS = ("seed", "noise_seed")
_RECORDING = {field.name for field in describe() if field.records}


class RunSummary(NamedTuple):
    """The header, rows and result of one run."""

    folder: Path
    header: Header
    rows: list[dict[str, Any]]
    result: dict[str, Any] | None
    trial: bool = False  # of a search, which has trained the best setting again

    @property
    def state(self) -> str:
        if self.result is None:
            return "running or stopped"
        return f"done, but {warning}" if (warning := caveat(self.result)) else "done"

    @property
    def diverged(self) -> int | None:
        """The iteration at which a finished run was found to have diverged."""
        return (self.result or {}).get("diverged")


class Collected(NamedTuple):
    """Runs, and a message for each folder that was left out."""

    runs: list[RunSummary]
    problems: list[str]


def collect(paths: Iterable[Path]) -> Collected:
    """Return all runs of these folders, each of which is a run or contains runs.

    A damaged run in a folder of runs is left out with a message. Of copies of a run, which would count as extra seeds,
    the one with most progress is kept.

    Raises:
        DataError: a path is a damaged run, or contains no runs.
    """
    found: dict[Path, RunSummary] = {}
    problems: list[str] = []
    for path in paths:
        if (path / "run.json").exists():
            folders = [path]
        else:
            summaries = list_runs(path)
            if not summaries:
                raise DataError(f"{path}: neither a run nor a folder of runs")
            folders = [summary.folder for summary in summaries if summary.problem is None]
            problems += [summary.problem for summary in summaries if summary.problem is not None]
        trials = _trials_in(path)
        for folder in folders:
            found[folder.resolve()] = RunSummary(folder, *read_run(folder), folder.name in trials)
    kept: dict[tuple[str, ...], RunSummary] = {}
    for run in found.values():
        key = run.header.run.hash(), run.header.data_hash, run.header.label_hash
        first = kept.setdefault(key, run)
        if first is not run:
            kept[key], other = (run, first) if _progress(run) > _progress(first) else (first, run)
            problems.append(f"{other.folder}: a copy of {kept[key].folder}")
    return Collected(list(kept.values()), problems)


def _trials_in(root: Path) -> set[str]:
    """Return the names of the runs that are trials of the searches in a folder of runs, and not their final runs."""
    names = set[str]()
    for file in root.glob("*/search.json"):
        try:
            search = json.loads(file.read_text("utf-8"))
            final = {str(each.get("run")) for each in (search["final"] or {}).get("seeds", ())}
            names |= {str(trial["run"]) for trial in search["trials"] if trial.get("run")} - final
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not a search of this version: its runs count as any others
    return names


def _progress(run: RunSummary) -> tuple[bool, int]:
    return run.result is not None, len(run.rows)


@dataclass(frozen=True)
class Group:
    """Runs on the same data that differ only in their seed.

    Attributes:
        label: its loss or method, and the fields in which the groups differ.
        runs: ordered by seed.
        varying: the fields that differ between groups and can change a result, with their values. Fields that only
            decide what is recorded are included if they alone distinguish two groups; `HASH_OF_DATA`, with the start
            of the hash, if data of the same name differ.
    """

    label: str
    runs: tuple[RunSummary, ...]
    varying: dict[str, Any]

    @property
    def run(self) -> Run:
        return self.runs[0].header.run

    @property
    def details(self) -> dict[str, Any]:
        return dict(self.runs[0].header.details)

    @property
    def holdout(self) -> str:
        """The set it is evaluated on: "test" or "noisy hold-out"."""
        return str(self.details.get("holdout", TEST))

    @property
    def truth(self) -> bool:
        """Return whether the true labels are known."""
        return "noise" in self.details

    def curve(self, key: str) -> Curve:
        """Return a column of the rows over time: mean and standard deviation over the seeds that have the step."""
        by_step: dict[int, list[float]] = {}
        for run in self.runs:
            for row in run.rows:
                if isinstance(row.get(key), int | float):
                    by_step.setdefault(row["step"], []).append(row[key])
        steps = sorted(by_step)
        stats = [spread(by_step[step]) for step in steps]
        return Curve(steps, [mean for mean, _ in stats], [deviation for _, deviation in stats])

    def histogram(self, key: str) -> tuple[list[int], list[list[float | None]]]:
        """Return a column of lists over time, averaged over seeds: the steps, and a list for each."""
        by_step: dict[int, list[list[float | None]]] = {}
        for run in self.runs:
            for row in run.rows:
                if isinstance(row.get(key), list):
                    by_step.setdefault(row["step"], []).append(row[key])
        steps = sorted(by_step)
        return steps, [_mean_list(by_step[step]) for step in steps]

    def score(self, which: str) -> list[float]:
        """Return the "final" or "best" test accuracy of every finished run."""
        results = [(run.result or {}).get(which) or {} for run in self.runs]
        return [result["test_accuracy"] for result in results if result.get("test_accuracy") is not None]


class Curve(NamedTuple):
    """Means over seeds at each step, and standard deviations (None for a single seed)."""

    steps: list[int]
    mean: list[float]
    deviation: list[float | None]


def group(runs: Sequence[RunSummary]) -> list[Group]:
    """Group runs that differ only in their seed, in the order of their first run.

    Runs whose data have the same name but different content are in different groups.
    """
    hashed = [field.name for field in describe() if field.hashed and field.name not in _SEEDS]
    together: dict[tuple[str, str], list[RunSummary]] = {}
    for run in runs:
        values = {name: value for name, value in run.header.run.identity().items() if name in hashed}
        together.setdefault((json.dumps(values, sort_keys=True), run.header.data_hash), []).append(run)
    keys = [json.loads(key) for key in dict.fromkeys(fields for fields, _ in together)]
    differing = [name for name in hashed if len({json.dumps(key.get(name)) for key in keys}) > 1]
    varied = [name for name in differing if name not in _RECORDING]
    if len({json.dumps([key.get(name) for name in varied]) for key in keys}) < len(keys):
        varied = differing
    version = data_versions(run.header for run in runs)
    groups = []
    for members in together.values():
        header = members[0].header
        varying = {name: getattr(header.run, name) for name in varied}
        if (data_version := version(header)) is not None:
            varying[HASH_OF_DATA] = data_version
        ordered = tuple(sorted(members, key=lambda run: run.header.run.seed))
        groups.append(Group(_label(ordered[0].header.run, varying), ordered, varying))
    return groups


def leading(groups: Sequence[Group], most: int) -> list[Group]:
    """Return the `most` groups with the highest final accuracy, in their given order; unfinished groups come last."""
    best = sorted(groups, key=lambda member: -spread(member.score("final") or [-1.0])[0])[:most]
    return [member for member in groups if member in best]


def objective_name(run: Run) -> str:
    """Return the weighting, loss or method of a run in its canonical form.

    >>> objective_name(Run(data="digits", net="mlp", weighting="DM(beta=8.0, lam=0.5)"))
    'DM(0.5, 8)'
    """
    return str(brief(parse(next(value for name in OBJECTIVES if (value := getattr(run, name)) is not None))))


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the standard deviation with n - 1, or None for a single value.

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
        if name not in OBJECTIVES and value is not None
    ]
    return ", ".join([objective_name(run), *rest])


def _mean_list(lists: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the means of corresponding entries, without missing ones."""
    if len(lists) == 1:
        return list(lists[0])
    present = [[value for value in column if value is not None] for column in zip(*lists, strict=True)]
    return [sum(values) / len(values) if values else None for values in present]
