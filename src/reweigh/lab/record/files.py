"""Writing that survives: whole files replaced, whole lines appended, on the disk on return, one writer at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from multiprocessing.util import register_after_fork
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from reweigh.errors import DataError

if sys.platform != "win32":
    import fcntl


class RecordError(OSError):
    """A record could not be written; the message names the file, the cause, and what is still safe."""


class LockedError(RecordError):
    """Another process is writing."""


def replace_file(
    path: Path, write: Callable[[IO[bytes]], object], before_rename: Callable[[], object] = lambda: None
) -> None:
    """Let `write` fill a file beside `path`, bring it to the disk, and rename it: old content or new, never a mixture.

    Raises RecordError where that fails; `path` is then as it was. `before_rename` is called once the new content is
    safe. Of several processes that write the same file at once the last has its way.
    """
    beside = path.parent / f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part"  # pids of two hosts may agree
    try:
        if path.is_dir():  # the rename would refuse it too, but late, and with other words for . and ..
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise _refusal("write", path, error, "what was there before is untouched") from error
        raise
    sync_folder(path.parent)


def append_bytes(path: Path, data: bytes) -> None:
    """Add `data` at the end of `path` and bring it to the disk; where that fails, cut off what had been added."""
    try:
        new = not path.exists()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            size = os.fstat(file).st_size
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
        if new:
            sync_folder(path.parent)
    except OSError as error:
        raise _refusal("append to", path, error, "all that was written before is intact") from error


def truncate(path: Path, size: int) -> None:
    """Shorten a file to `size` bytes, if it is there and longer."""
    try:
        if path.exists() and path.stat().st_size > size:
            with path.open("r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())
    except OSError as error:
        raise _refusal("shorten", path, error, "it is untouched") from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refusal("create the folder", path, error, "nothing was written") from error


def sync_folder(path: Path) -> None:
    """Bring a folder's entries to the disk, where the system can: a rename survives a power cut only after that."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace `path` by the value as JSON; NaN and infinities become null."""
    text = json.dumps(jsonable(value), indent=2, allow_nan=False) + "\n"
    replace_file(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def jsonable(value: Any) -> Any:
    """The value in what JSON has: arrays and tensors as lists, NaN and infinities as None.

    >>> jsonable({"loss": float("nan"), "steps": (1, 2)})
    {'loss': None, 'steps': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    return jsonable(value.tolist()) if hasattr(value, "tolist") else value


class Lock:
    """One writer per folder: held from creation to `close`, and given up by the system when the process ends.

    Raises LockedError where another process holds it. On Windows there is no such lock, and nothing is checked.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / ".lock"
        self._file: int | None = None
        if sys.platform == "win32":
            return
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise _refusal("lock", folder, error, "nothing was written") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(file, 32, 0).decode(errors="replace")
            os.close(file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LockedError(error.errno, f"{folder} is being written by process {owner or '?'}") from error
            raise _refusal("lock", folder, error, "nothing was written") from error
        with suppress(OSError):  # only for the message above
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file
        # A forked worker that outlives a killed parent must not keep the parent's lock.
        register_after_fork(self, Lock.close)

    def close(self) -> None:
        """Give the folder free."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refusal(doing: str, path: Path, error: OSError, kept: str) -> RecordError:
    return RecordError(error.errno, f"cannot {doing} {path}: {error.strerror or error}; {kept}")
