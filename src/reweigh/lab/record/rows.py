"""rows.jsonl, p.f16 and margins.bin: what was measured at each evaluation, appended and never rewritten.

rows.jsonl    one JSON object per line, with an integer "step"; steps rise
p.f16         one record per evaluation: the step as int64, then p of every training example as float16,
              little-endian, without gaps; the number of examples is in run.json
margins.bin   one record per evaluation: the step as int64, then for every training example the logit of its label less
              the largest other as float16, then which class that other is as uint16; all else as in p.f16

A line or record that a killed process left unfinished at the end is not there, for readers and for writers alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reweigh.errors import DataError
from reweigh.lab.record.files import jsonable
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of
from reweigh.lab.spec import Run


class Rows(NamedTuple):
    """The rows of a file, and where in it each of them ends."""

    rows: list[dict[str, Any]]
    ends: list[int]


class History(NamedTuple):
    """p of every training example over time: steps (E,), p (N, E) float16."""

    steps: NDArray[np.int64]
    p: NDArray[np.float16]


class Margins(NamedTuple):
    """The margin of every training example over time: steps (E,), margins (N, E) float16, rivals (N, E) uint16.

    A rival is the class with the largest logit beside the label's, so that the predicted class is the label where the
    margin is positive, else the rival.
    """

    steps: NDArray[np.int64]
    margins: NDArray[np.float16]
    rivals: NDArray[np.uint16]


# columns of a row that are lists, of one length; the others are numbers, and null stands for what is not finite
LISTS = ("p_histogram", "p_histogram_clean", "p_histogram_noisy", "weight_histogram", "p_by_class")
_ROW = object_of({"step": integer}, dict.fromkeys(LISTS, list_of(nullable(number))), rest=nullable(number))

RENAMED = {  # names that versions up to 0.1 wrote
    "corrupted_accuracy": "train_accuracy",
    "intact_accuracy": "train_accuracy_clean",
    "given_up": "collapsed_classes",
}

LARGEST_MARGIN = float(np.finfo(np.float16).max)
MOST_CLASSES = 2**16


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row, a result or the like with names of earlier versions replaced, at the top and one level below.

    >>> current_names({"given_up": [], "final": {"step": 60, "corrupted_accuracy": 0.3}})
    {'collapsed_classes': [], 'final': {'step': 60, 'train_accuracy': 0.3}}
    """

    def rename(level: Mapping[str, Any]) -> dict[str, Any]:
        return {RENAMED.get(name, name): value for name, value in level.items()}

    return {name: rename(value) if isinstance(value, dict) else value for name, value in rename(values).items()}


def scan_rows(path: Path) -> Rows:
    """All whole rows; DataError with the line where one in the middle is not what it should be."""
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    lines = content.split(b"\n")[:-1]  # what follows the last line's end is unfinished
    found, lengths = Rows([], []), dict[str, int]()
    end = 0
    for count, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            step = row["step"]
            good = isinstance(step, int) and (not found.rows or step > found.rows[-1]["step"])
        except (ValueError, KeyError, TypeError, RecursionError):
            good = False
        if not good:
            if count == len(lines):  # blocks of one write may reach the disk out of order
                break
            raise DataError(f"{path}, line {count}: expected a JSON object with a rising step, found {line[:60]!r}")
        check_schema(f"{path}, line {count}", row, _ROW)
        for name in LISTS:
            if name in row and len(row[name]) != (expected := lengths.setdefault(name, len(row[name]))):
                raise DataError(f"{path}, line {count}: {name} has {len(row[name])} numbers; expected {expected}")
        end += len(line) + 1
        found.rows.append(current_names(row))
        found.ends.append(end)
    return found


def row_bytes(row: dict[str, Any]) -> bytes:
    """One line of rows.jsonl."""
    if isinstance(row.get("step"), bool) or not isinstance(row.get("step"), int):
        raise ValueError(f"a row needs a whole number as its step, not {row.get('step')!r}")
    content = jsonable(row)
    if (problem := _ROW(content)) is not None:  # nobody could read it again
        raise ValueError(f"a row{problem}")
    return json.dumps(content, allow_nan=False).encode() + b"\n"


def column_type(examples: int) -> np.dtype[np.void]:
    """The layout of one record of p.f16."""
    return np.dtype([("step", "<i8"), ("p", "<f2", (examples,))])


def margin_type(examples: int) -> np.dtype[np.void]:
    """The layout of one record of margins.bin."""
    return np.dtype([("step", "<i8"), ("margins", "<f2", (examples,)), ("rivals", "<u2", (examples,))])


def column_bytes(step: int, p: ArrayLike, examples: int) -> bytes:
    """One record of p.f16; p is rounded to float16, NaN stays."""
    values = _one_each("p", p, examples)
    if ((values < 0) | (values > 1)).any():
        raise ValueError("p must lie between 0 and 1")
    record = np.zeros(1, column_type(examples))
    record["step"], record["p"] = step, values
    return record.tobytes()


def margin_bytes(step: int, margins: ArrayLike, rivals: ArrayLike, examples: int) -> bytes:
    """One record of margins.bin; margins are rounded to float16, NaN stays, infinities become its largest number."""
    classes = _one_each("rivals", rivals, examples)
    if ((classes < 0) | (classes >= MOST_CLASSES)).any():
        raise ValueError(f"rivals must be class ids below {MOST_CLASSES}")
    record = np.zeros(1, margin_type(examples))
    record["step"], record["rivals"] = step, classes
    record["margins"] = np.clip(_one_each("margins", margins, examples), -LARGEST_MARGIN, LARGEST_MARGIN)
    return record.tobytes()


def _one_each(name: str, column: ArrayLike, examples: int) -> NDArray[np.float64]:
    values = np.asarray(column, dtype=np.float64)
    if values.shape != (examples,):
        raise ValueError(f"{name} has shape {values.shape}; expected ({examples},), one per training example")
    return values


def scan_history(path: Path, examples: int) -> History:
    """All whole records of p.f16."""
    records = _scan(path, column_type(examples), examples)
    return History(records["step"].astype(np.int64), records["p"].T)


def scan_margins(path: Path, examples: int) -> Margins:
    """All whole records of margins.bin."""
    records = _scan(path, margin_type(examples), examples)
    return Margins(records["step"].astype(np.int64), records["margins"].T, records["rivals"].T)


def _scan(path: Path, layout: np.dtype[np.void], examples: int) -> NDArray[np.void]:
    try:
        count = path.stat().st_size // layout.itemsize if path.exists() else 0
        records = np.fromfile(path, layout, count) if count else np.zeros(0, layout)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if count > 1 and records["step"][-1] == 0:
        records = records[:-1]  # a power cut can leave zeros where the last record should be
    if (np.diff(records["step"]) <= 0).any():
        raise DataError(f"{path}: the steps of its records do not rise; it does not hold {examples} examples each")
    return records


def check_steps(path: Path, steps: Iterable[int], expected: Iterable[int]) -> None:
    """Refuse a file that holds records of other iterations than were evaluated: one of a whole run lacks none."""
    there, due = [int(step) for step in steps], list(expected)
    if there != due:
        missing = next((step for step in due if step not in set(there)), None)
        lacks = f"; there is none of iteration {missing}" if missing is not None else ""
        raise DataError(
            f"{path}: holds {len(there)} records, expected {len(due)}{lacks}: it was cut short or is another run's; "
            "put it back, or remove the run's folder and train again"
        )


def check_recorded(folder: Path, run: Run, p: Iterable[int], margins: Iterable[int], expected: Iterable[int]) -> None:
    """Refuse p.f16 or margins.bin with the records of other iterations than were evaluated, where the run writes it.

    Args:
        folder: of the run.
        run: says which of the two it writes.
        p, margins: the iterations that each file holds.
        expected: those that were evaluated.
    """
    due = list(expected)
    if run.record_p:
        check_steps(folder / "p.f16", p, due)
    if run.record_margins:
        check_steps(folder / "margins.bin", margins, due)
