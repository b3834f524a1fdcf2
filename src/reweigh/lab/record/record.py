"""One run's folder: run.json first, rows as they come, result.json last.

run.json          the header
rows.jsonl        one row per evaluation
p.f16             p of every training example at every evaluation, if recorded
margins.bin       the margin and the rival class of each, if recorded
checkpoint.pt, checkpoint.previous.pt
model/            the trained model
result.json       the run is done
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias

from numpy.typing import ArrayLike

from reweigh.errors import DataError
from reweigh.lab.record.files import (
    Lock,
    RecordError,
    append_bytes,
    jsonable,
    make_folder,
    read_json,
    truncate,
    write_json,
)
from reweigh.lab.record.header import Header, check_same, read_header
from reweigh.lab.record.rows import (
    History,
    Margins,
    check_recorded,
    check_steps,
    column_bytes,
    column_type,
    current_names,
    margin_bytes,
    margin_type,
    row_bytes,
    scan_history,
    scan_margins,
    scan_rows,
)
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of, string
from reweigh.lab.spec import Run

_SCORES = object_of(rest=nullable(number))
_RESULT = object_of(
    {},
    {
        "final": _SCORES,
        "best": nullable(_SCORES),
        "holdout": string,
        "diverged": nullable(integer),
        "collapsed_classes": list_of(string),
        "reliability": list_of(object_of({"confidence": nullable(number), "accuracy": nullable(number)})),
        "per_class_accuracy": list_of(nullable(number)),
        "seconds": number,
    },
)

MAX_CLASSES_NAMED = 5

State: TypeAlias = Literal["done", "resumable", "broken"]


class Record:
    """The record of a run, open for writing; no other process can open it until `close`.

    A new folder gets its header. A folder that is there must hold the same run on the same data, unfinished; its
    rows stay, less a torn end, which is cut off by the first `rewind` or `append`. Before the first row, `rewind` to
    the checkpoint the run goes on from; append a step's row before saving its checkpoint, and no row is ever lost or
    repeated.

    Args:
        folder: the run's folder.
        header: what the run is.
        environment: versions, commit and device of this process; kept if it differs from the one before.
    """

    def __init__(self, folder: Path | str, header: Header, environment: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        make_folder(self.folder)
        self._lock = Lock(self.folder)
        try:
            self.header = self._begin(header, environment)
        except BaseException:
            self._lock.close()
            raise

    def _begin(self, header: Header, environment: Mapping[str, Any]) -> Header:
        path = self.folder / "run.json"
        for unfinished in self.folder.rglob("*.part"):  # by a process that was killed: this one holds the lock
            unfinished.unlink(missing_ok=True)
        if (self.folder / "result.json").exists():
            raise RecordError(f"{self.folder} is finished; a finished run is never repeated")
        if path.exists():
            there = read_header(self.folder)
            check_same(path, there, header)
            header = there
        here = jsonable(environment)
        if not header.environments or header.environments[-1] != here:
            header = replace(header, environments=(*header.environments, here))
            write_json(path, header.to_mapping())
        self._find(sys.maxsize, header)
        return header

    def _find(self, step: int, header: Header, due: Sequence[int] | None = None) -> None:
        """Find the last whole evaluation up to `step`, and where in each file it ends; nothing is cut."""
        rows, ends = scan_rows(self._rows)
        p = scan_history(self._history, header.examples).steps
        margins = scan_margins(self._margins, header.examples).steps
        kept = [row["step"] for row in rows if row["step"] <= step]
        last = kept[-1] if kept else -1
        if due is not None:
            check_steps(self._rows, kept, due)
            check_recorded(self.folder, header.run, p[p <= step], margins[margins <= step], due)
        self._last = last
        self._ends = {
            self._rows: ends[len(kept) - 1] if kept else 0,
            self._history: int((p <= last).sum()) * column_type(header.examples).itemsize,
            self._margins: int((margins <= last).sum()) * margin_type(header.examples).itemsize,
        }

    @property
    def _rows(self) -> Path:
        return self.folder / "rows.jsonl"

    @property
    def _history(self) -> Path:
        return self.folder / "p.f16"

    @property
    def _margins(self) -> Path:
        return self.folder / "margins.bin"

    @property
    def last_step(self) -> int:
        """The step of the last row, -1 where there is none."""
        return int(self._last)

    def rewind(self, step: int, due: Sequence[int] | None = None) -> None:
        """Drop rows, p and margins after `step`: the run goes on from there and will measure them again.

        Args:
            step: of the checkpoint; -1 drops all.
            due: the steps up to then that were evaluated; if a file lacks one, DataError, and nothing is dropped.
        """
        self._find(step, self.header, due)
        for path, end in self._ends.items():
            truncate(path, end)

    def append(
        self,
        row: Mapping[str, Any],
        p: ArrayLike | None = None,
        margins: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        """Add a row, and of all training examples p, margins and rivals where recorded; on the disk on return."""
        line = row_bytes(dict(row))
        if row["step"] <= self._last:
            raise ValueError(f"step {row['step']} follows step {self._last}; steps rise (after a resume: rewind)")
        added = {}
        if p is not None:
            added[self._history] = column_bytes(row["step"], p, self.header.examples)
        if margins is not None:
            added[self._margins] = margin_bytes(row["step"], *margins, self.header.examples)
        added[self._rows] = line  # last: an evaluation without its row does not count
        for path, data in added.items():
            truncate(path, self._ends[path])
            append_bytes(path, data)
        self._ends |= {path: self._ends[path] + len(data) for path, data in added.items()}
        self._last = row["step"]

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json: from now on the run is done."""
        write_json(self.folder / "result.json", result)

    def close(self) -> None:
        """Let others write."""
        self._lock.close()

    def __enter__(self) -> Record:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_rows(folder: Path | str) -> list[dict[str, Any]]:
    """The rows of a run, in order of their steps; a torn last line is left out."""
    return scan_rows(Path(folder) / "rows.jsonl").rows


def read_result(folder: Path | str) -> dict[str, Any] | None:
    """The result of a run, or None where it is not done."""
    path = Path(folder) / "result.json"
    if not path.exists():
        return None
    result = current_names(read_json(path))
    check_schema(path, result, _RESULT)
    return result


def read_run(folder: Path | str) -> tuple[Header, list[dict[str, Any]], dict[str, Any] | None]:
    """Header, rows and result of a run, which must tell of the same classes."""
    folder = Path(folder)
    header, rows, result = read_header(folder), read_rows(folder), read_result(folder)
    classes = len(header.details.get("class_names", ()))
    lists = {
        ("rows.jsonl", "p_by_class"): next((row["p_by_class"] for row in rows if "p_by_class" in row), None),
        ("result.json", "per_class_accuracy"): (result or {}).get("per_class_accuracy"),
    }
    for (file, name), found in lists.items():
        if found and classes and len(found) != classes:
            raise DataError(f"{folder / file}: {name} has {len(found)} numbers; there are {classes} classes")
    return header, rows, result


def read_p(folder: Path | str) -> History:
    """p of every training example over time; no columns where it was not recorded."""
    folder = Path(folder)
    return scan_history(folder / "p.f16", read_header(folder).examples)


def read_margins(folder: Path | str) -> Margins:
    """The margin and the rival of every training example over time; no columns where it was not recorded."""
    folder = Path(folder)
    return scan_margins(folder / "margins.bin", read_header(folder).examples)


class Summary(NamedTuple):
    """A run in a list."""

    folder: Path
    state: State
    run: Run | None
    step: int  # of the last row; -1 where there is none
    result: dict[str, Any] | None
    problem: str | None  # why it is broken


def summarise(folder: Path | str) -> Summary:
    """The state of one run folder."""
    folder = Path(folder)
    try:
        header, rows, result = read_run(folder)
    except DataError as error:
        return Summary(folder, "broken", None, -1, None, str(error))
    step = rows[-1]["step"] if rows else -1
    return Summary(folder, "resumable" if result is None else "done", header.run, step, result, None)


def list_runs(root: Path | str) -> list[Summary]:
    """All run folders right under `root`, by name; folders without a file of a run are passed over.

    A folder that can't be looked into may hold a run, and is a broken one.
    """
    root = Path(root)
    if not root.is_dir():
        return []
    folders = (folder for folder in sorted(root.iterdir()) if not folder.name.startswith(".") and folder.is_dir())
    return [summarise(folder) for folder in folders if _may_be_run(folder)]


def _may_be_run(folder: Path) -> bool:
    for sign in ("run.json", "rows.jsonl", "result.json", "checkpoint.pt"):
        try:
            (folder / sign).stat()
        except FileNotFoundError:
            continue
        except OSError:  # not for the caller, who lists others besides: `summarise` says what it is
            return True
        return True
    return False


def caveat(result: Mapping[str, Any]) -> str:
    """Return the iteration by which training diverged, else the classes the net stopped predicting, else nothing.

    >>> caveat({"diverged": 20}), caveat({"diverged": None})
    ('training diverged by iteration 20', '')
    >>> caveat({"collapsed_classes": ["cat", "dog"]})
    '2 collapsed classes: cat, dog'
    """
    if result.get("diverged") is not None:
        return f"training diverged by iteration {result['diverged']}"
    classes = result.get("collapsed_classes") or []
    if not classes:
        return ""
    named, count = classes[:MAX_CLASSES_NAMED], len(classes)
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{count} collapsed {'class' if count == 1 else 'classes'}: {', '.join(named)}{more}"
