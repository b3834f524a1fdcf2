"""The folder of one run.

run.json          the header, written first
rows.jsonl        one row per evaluation
p.f16             p of every training example at every evaluation, if recorded
margins.bin       the margin and the rival class of each, if recorded
posteriors.safetensors   the probability of each true class, if the method estimates it and p is recorded
checkpoint.pt, checkpoint.previous.pt
model/            the trained model
result.json       the result, written last: the run is done; with the sha256 of rows.jsonl, p.f16 and margins.bin

A checkpoint holds the sha256 of these files up to its iteration, so that a run resumes only if they are undamaged.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias

from numpy.typing import ArrayLike

from reweigh.errors import DataError
from reweigh.lab.record import posteriors
from reweigh.lab.record.files import (
    DIGESTS,
    Lock,
    RecordError,
    append_bytes,
    check_digest,
    digest_of,
    jsonable,
    leftovers,
    make_folder,
    read_json,
    sha256_of,
    truncate,
    write_json,
)
from reweigh.lab.record.header import Header, check_same_run, read_header
from reweigh.lab.record.rows import (
    History,
    Margins,
    check_recorded,
    check_steps,
    current_names,
    margins_bytes,
    margins_dtype,
    p_bytes,
    p_dtype,
    row_bytes,
    scan_margins,
    scan_p,
    scan_rows,
)
from reweigh.lab.record.schema import check_schema, integer, list_of, nullable, number, object_of, string
from reweigh.lab.spec import Run

_SCORES = object_of(rest=nullable(number))
_RESULT = object_of(
    {"final": _SCORES},
    {
        "best": nullable(_SCORES),
        "holdout": string,
        "diverged": nullable(integer),
        "collapsed_classes": list_of(string),
        "reliability": list_of(
            object_of({"confidence": nullable(number), "accuracy": nullable(number)}, {"count": number})
        ),
        **{f"per_class_{name}": list_of(nullable(number)) for name in ("accuracy", "precision", "f1", "count")},
        "confusion": list_of(list_of(integer)),
        "seconds": number,
        "sha256": object_of(rest=string),
    },
)

MAX_CLASSES_NAMED = 5

State: TypeAlias = Literal["done", "resumable", "broken"]


class Record:
    """The record of a run, open for writing by one process.

    In a new folder the header is written. An existing folder must hold the same run on the same data, unfinished; its
    rows are kept, except for an incomplete last one, which the first `rewind` or `append` removes. When resuming, call
    `rewind` with the checkpoint's step first; append the row of a step before saving its checkpoint, so that no row is
    lost or repeated.

    Args:
        folder: the run's folder.
        header: the run, its data and its labels.
        environment: versions, commit and device of this process; added to the header if they differ from the last ones.
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
        for unfinished in leftovers(self.folder):  # nobody is writing them, as this process holds the lock
            unfinished.unlink(missing_ok=True)
        if (self.folder / "result.json").exists():
            raise RecordError(f"{self.folder} already has a result; remove the folder to train again")
        if path.exists():
            recorded = read_header(self.folder)
            check_same_run(path, recorded, header)
            header = recorded
        current = jsonable(environment)
        if not header.environments or header.environments[-1] != current:
            header = replace(header, environments=(*header.environments, current))
            write_json(path, header.to_mapping())
        self._locate_end(sys.maxsize, header)
        return header

    def _locate_end(
        self,
        step: int,
        header: Header,
        due: Sequence[int] | None = None,
        known: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Find the last complete evaluation up to `step`, and where it ends in each file."""
        rows, ends = scan_rows(self._rows)
        p = scan_p(self._history, header.examples).steps
        margins = scan_margins(self._margins, header.examples).steps
        kept = [row["step"] for row in rows if row["step"] <= step]
        last = kept[-1] if kept else -1
        if due is not None:
            check_steps(self._rows, kept, due)
            check_recorded(self.folder, header.run, p[p <= step], margins[margins <= step], due)
        located = {
            self._rows: ends[len(kept) - 1] if kept else 0,
            self._history: int((p <= last).sum()) * p_dtype(header.examples).itemsize,
            self._margins: int((margins <= last).sum()) * margins_dtype(header.examples).itemsize,
        }
        digests = {path: digest_of(path, end) for path, end in located.items() if end}
        for path, digest in digests.items():
            if known.get(path.name, digest.hexdigest()) != digest.hexdigest():
                raise DataError(f"{path}: damaged; its content does not match the digest in the checkpoint")
        self._last, self._ends, self._digests = last, located, digests

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
        """The step of the last row; -1 without rows."""
        return int(self._last)

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of rows.jsonl, p.f16 and margins.bin, of those that have content."""
        return {path.name: digest.hexdigest() for path, digest in sorted(self._digests.items())}

    def rewind(
        self, step: int, due: Sequence[int] | None = None, digests: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Remove rows, p and margins after `step`, from which the run resumes.

        Args:
            step: the checkpoint's step; -1 removes all.
            due: the evaluated steps up to `step`; if a file lacks one, raise DataError and remove nothing.
            digests: `digests` at that step; if a file differs, raise DataError and remove nothing.
        """
        self._locate_end(step, self.header, due, digests)
        for path, end in self._ends.items():
            truncate(path, end)

    def append(
        self,
        row: Mapping[str, Any],
        p: ArrayLike | None = None,
        margins: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        """Add a row, and p, margins and rivals of all training examples if recorded; they are on disk on return."""
        line = row_bytes(dict(row))
        if row["step"] <= self._last:
            raise ValueError(
                f"step {row['step']} follows step {self._last}; steps must increase (call `rewind` when resuming)"
            )
        added = {}
        if p is not None:
            added[self._history] = p_bytes(row["step"], p, self.header.examples)
        if margins is not None:
            added[self._margins] = margins_bytes(row["step"], *margins, self.header.examples)
        added[self._rows] = line  # last, as it is the row that makes an evaluation count
        for path, data in added.items():
            truncate(path, self._ends[path])
            append_bytes(path, data)
        for path, data in added.items():
            self._digests.setdefault(path, hashlib.sha256()).update(data)
        self._ends |= {path: self._ends[path] + len(data) for path, data in added.items()}
        self._last = row["step"]

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json, which marks the run as done."""
        digests, path = self.digests, self.folder / posteriors.FILE
        if path.exists():
            digests[path.name] = sha256_of(path)
        write_json(self.folder / "result.json", {**result, DIGESTS: digests})

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def __enter__(self) -> Record:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_rows(folder: Path | str) -> list[dict[str, Any]]:
    """Return the rows of a run, without an incomplete last one; those of a finished run must be complete."""
    path = Path(folder) / "rows.jsonl"
    rows, result = scan_rows(path).rows, read_result(folder)
    last, final = rows[-1]["step"] if rows else None, (result or {}).get("final", {}).get("step")
    if final is not None and last != final:
        ends = "has no rows" if last is None else f"ends at iteration {last}"
        raise DataError(f"{path}: {ends}, but the result is of iteration {final}; restore the file")
    check_digest(path)
    return rows


def read_result(folder: Path | str) -> dict[str, Any] | None:
    """Return the result of a run, or None if it is not done."""
    path = Path(folder) / "result.json"
    if not os.path.lexists(path):
        return None
    result = current_names(read_json(path))
    check_schema(path, result, _RESULT)
    result.pop(DIGESTS, None)
    return result


def read_run(folder: Path | str) -> tuple[Header, list[dict[str, Any]], dict[str, Any] | None]:
    """Return header, rows and result of a run; raise DataError if they disagree."""
    folder = Path(folder)
    header, rows, result = read_header(folder), read_rows(folder), read_result(folder)
    if result is None and (folder / "model" / "model.json").exists() and not list(folder.glob("checkpoint*.pt")):
        # the last checkpoint is removed after the result is written
        raise DataError(
            f"{folder / 'result.json'}: is missing, but the run was finished; restore it, or resume the run"
        )
    classes = len(header.details.get("class_names", ()))
    lists = {
        ("rows.jsonl", "p_by_class"): next((row["p_by_class"] for row in rows if "p_by_class" in row), None),
        **{
            ("result.json", name): values
            for name, values in (result or {}).items()
            if name.startswith("per_class_") or name == "confusion"
        },
    }
    for (file, name), values in lists.items():
        if values and classes and len(values) != classes:
            raise DataError(f"{folder / file}: {name} has {len(values)} numbers; there are {classes} classes")
    return header, rows, result


def read_p(folder: Path | str) -> History:
    """Return p of every training example over time; without columns if it was not recorded."""
    path = Path(folder) / "p.f16"
    check_digest(path)
    return scan_p(path, read_header(path.parent).examples)


def read_margins(folder: Path | str) -> Margins:
    """Return margin and rival of every training example over time; without columns if they were not recorded."""
    path = Path(folder) / "margins.bin"
    check_digest(path)
    return scan_margins(path, read_header(path.parent).examples)


class Summary(NamedTuple):
    """The state of a run folder."""

    folder: Path
    state: State
    run: Run | None
    step: int  # of the last row; -1 without rows
    result: dict[str, Any] | None
    problem: str | None  # why it is broken


def summarise(folder: Path | str) -> Summary:
    """Return the state of a run folder; never raises for a damaged one."""
    folder = Path(folder)
    try:
        header, rows, result = read_run(folder)
    except DataError as error:
        return Summary(folder, "broken", None, -1, None, str(error))
    step = rows[-1]["step"] if rows else -1
    return Summary(folder, "resumable" if result is None else "done", header.run, step, result, None)


def list_runs(root: Path | str) -> list[Summary]:
    """Return the run folders directly under `root`, by name, without folders that hold no file of a run.

    A folder that cannot be read is listed as broken.
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
        except OSError:  # `summarise` reports it, without failing the whole list
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
    named, count = [f"{name:.60}" for name in classes[:MAX_CLASSES_NAMED]], len(classes)
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"{count} collapsed {'class' if count == 1 else 'classes'}: {', '.join(named)}{more}"
