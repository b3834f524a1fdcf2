"""rows.jsonl, p.f16 and margins.bin: the measurements of each evaluation, in append-only files.

rows.jsonl    one JSON object per line, with an increasing integer "step"
p.f16         one record per evaluation: the step as int64, then p of every training example as float16,
              little-endian, without gaps; the number of examples is in run.json
margins.bin   one record per evaluation: the step as int64, then the logit of every training example's label minus its
              largest other logit as float16, then the class of that other logit as uint16; otherwise as p.f16

An incomplete line or record at the end, left by a killed process, is ignored by readers and overwritten by writers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reweigh.errors import DataError
from reweigh.lab.record.files import MAX_JSON, jsonable, open_file
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of
from reweigh.lab.spec import Run


class Rows(NamedTuple):
    """The rows of a file, and the byte offset at which each ends."""

    rows: list[dict[str, Any]]
    ends: list[int]


class History(NamedTuple):
    """p of every training example over time: steps (E,), p (N, E) float16."""

    steps: NDArray[np.int64]
    p: NDArray[np.float16]


class Margins(NamedTuple):
    """The margin of every training example over time: steps (E,), margins (N, E) float16, rivals (N, E) uint16.

    The rival is the class with the largest logit other than the label's: the predicted class is the label where the
    margin is positive, else the rival.
    """

    steps: NDArray[np.int64]
    margins: NDArray[np.float16]
    rivals: NDArray[np.uint16]


# columns that hold a list, as long in every row; the others hold a number, or null if it is not finite
LISTS = ("p_histogram", "p_histogram_clean", "p_histogram_noisy", "weight_histogram", "p_by_class", "confusion")
_ROW = object_of({"step": integer}, dict.fromkeys(LISTS, list_of(nullable(number))), rest=nullable(number))

RENAMED = {  # names that versions up to 0.1 wrote
    "corrupted_accuracy": "train_accuracy",
    "intact_accuracy": "train_accuracy_clean",
    "given_up": "collapsed_classes",
}

MAX_MARGIN = float(np.finfo(np.float16).max)
MAX_CLASSES = 2**16


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the names of earlier versions in a row or result, at the top level and one below.

    >>> current_names({"given_up": [], "final": {"step": 60, "corrupted_accuracy": 0.3}})
    {'collapsed_classes': [], 'final': {'step': 60, 'train_accuracy': 0.3}}
    """

    def rename(level: Mapping[str, Any]) -> dict[str, Any]:
        return {RENAMED.get(name, name): value for name, value in level.items()}

    return {name: rename(value) if isinstance(value, dict) else value for name, value in rename(values).items()}


def scan_rows(path: Path) -> Rows:
    """Return all complete rows; raise DataError with the line number if one of them is malformed."""
    try:
        with open_file(path, MAX_JSON) as file:
            content = file.read()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    lines = content.split(b"\n")[:-1]  # after the last newline is an incomplete line
    scanned, lengths = Rows([], []), dict[str, int]()
    end = 0
    for count, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            step = row["step"]
            good = isinstance(step, int) and (not scanned.rows or step > scanned.rows[-1]["step"])
        except (ValueError, KeyError, TypeError, RecursionError):
            good = False
        if not good:
            if count == len(lines):  # a crash can leave the blocks of one write out of order
                break
            raise DataError(f"{path}, line {count}: expected a JSON object with an increasing step, not {line[:60]!r}")
        check_schema(f"{path}, line {count}", row, _ROW)
        for name in LISTS:
            if name in row and len(row[name]) != (expected := lengths.setdefault(name, len(row[name]))):
                raise DataError(f"{path}, line {count}: {name} has {len(row[name])} numbers; expected {expected}")
        end += len(line) + 1
        scanned.rows.append(current_names(row))
        scanned.ends.append(end)
    return scanned


def row_bytes(row: dict[str, Any]) -> bytes:
    """Encode a row as one line of rows.jsonl."""
    if isinstance(row.get("step"), bool) or not isinstance(row.get("step"), int):
        raise ValueError(f"the step of a row must be an integer, not {row.get('step')!r}")
    content = jsonable(row)
    if (problem := _ROW(content)) is not None:  # it could not be read back
        raise ValueError(f"a row{problem}")
    return json.dumps(content, allow_nan=False).encode() + b"\n"


def p_dtype(examples: int) -> np.dtype[np.void]:
    """Return the dtype of one record of p.f16."""
    return np.dtype([("step", "<i8"), ("p", "<f2", (examples,))])


def margins_dtype(examples: int) -> np.dtype[np.void]:
    """Return the dtype of one record of margins.bin."""
    return np.dtype([("step", "<i8"), ("margins", "<f2", (examples,)), ("rivals", "<u2", (examples,))])


def p_bytes(step: int, p: ArrayLike, examples: int) -> bytes:
    """Encode one record of p.f16; p is rounded to float16, NaN is kept."""
    values = _one_each("p", p, examples)
    if ((values < 0) | (values > 1)).any():
        raise ValueError("p must lie between 0 and 1")
    record = np.zeros(1, p_dtype(examples))
    record["step"], record["p"] = step, values
    return record.tobytes()


def margins_bytes(step: int, margins: ArrayLike, rivals: ArrayLike, examples: int) -> bytes:
    """Encode one record of margins.bin; margins are clipped to the range of float16, NaN is kept."""
    classes = _one_each("rivals", rivals, examples)
    if ((classes < 0) | (classes >= MAX_CLASSES)).any():
        raise ValueError(f"rivals must be class ids below {MAX_CLASSES}")
    record = np.zeros(1, margins_dtype(examples))
    record["step"], record["rivals"] = step, classes
    record["margins"] = np.clip(_one_each("margins", margins, examples), -MAX_MARGIN, MAX_MARGIN)
    return record.tobytes()


def _one_each(name: str, column: ArrayLike, examples: int) -> NDArray[np.float64]:
    values = np.asarray(column, dtype=np.float64)
    if values.shape != (examples,):
        raise ValueError(f"{name} has shape {values.shape}; expected ({examples},), one per training example")
    return values


def scan_p(path: Path, examples: int) -> History:
    """Return all complete records of p.f16."""
    records = _scan(path, p_dtype(examples), examples)
    return History(records["step"].astype(np.int64), records["p"].T)


def scan_margins(path: Path, examples: int) -> Margins:
    """Return all complete records of margins.bin."""
    records = _scan(path, margins_dtype(examples), examples)
    return Margins(records["step"].astype(np.int64), records["margins"].T, records["rivals"].T)


def _scan(path: Path, layout: np.dtype[np.void], examples: int) -> NDArray[np.void]:
    try:
        with open_file(path) as file:
            count = os.fstat(file.fileno()).st_size // layout.itemsize
            records = np.fromfile(file, layout, count)
    except FileNotFoundError:
        count, records = 0, np.zeros(0, layout)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if count > 1 and records["step"][-1] == 0:
        records = records[:-1]  # a power cut can leave zeros in place of the last record
    if (np.diff(records["step"]) <= 0).any():
        raise DataError(f"{path}: the steps do not increase; its records are not of {examples} examples")
    return records


def check_steps(path: Path, steps: Iterable[int], expected: Iterable[int]) -> None:
    """Raise DataError unless the file holds a record of every evaluated iteration, and of no other."""
    present, due = [int(step) for step in steps], list(expected)
    if present != due:
        missing = next((step for step in due if step not in set(present)), None)
        lacks = f"; there is none of iteration {missing}" if missing is not None else ""
        raise DataError(
            f"{path}: holds {len(present)} records, expected {len(due)}{lacks}. It is truncated or belongs to another "
            "run; restore it, or remove the run's folder and train again"
        )


def check_recorded(folder: Path, run: Run, p: Iterable[int], margins: Iterable[int], expected: Iterable[int]) -> None:
    """Apply `check_steps` to p.f16 and margins.bin, if the run records them.

    Args:
        folder: the run's folder.
        run: the run.
        p, margins: the iterations in each file.
        expected: the evaluated iterations.
    """
    due = list(expected)
    if run.record_p:
        check_steps(folder / "p.f16", p, due)
    if run.record_margins:
        check_steps(folder / "margins.bin", margins, due)
