"""Crash-safe writing: atomic replacement, durable appends, and one writer per folder.

JSON files end with the sha256 of their bytes, in which this last value is zeros; files of earlier versions have none.
Symbolic links, pipes and devices in place of a file are refused without being opened.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
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


_TEMPORARY = re.compile(
    r"\.\d+-[0-9a-f]+\.part(-journal)?$"
)  # appended to the name of the file that it will replace; the journal is SQLite's
MAX_BYTES = 2**36  # of a file in a run folder, and of an archive of runs
MAX_JSON = 2**30
ABANDONED = 86400.0  # seconds after which nobody writes a temporary file any more
_NO_SURPRISE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
DIGESTS = "sha256"  # the key in result.json of the digests of the other files
_ZEROS = "0" * 64
_DIGEST = re.compile(rb'\n  "(?P<key>[^"]{6})": "(?P<value>[^"]{64})"\n\}\n?\Z')  # the key too may be damaged


class RecordError(OSError):
    """A file could not be written; the message names the file, the cause, and what is still intact."""


class LockedError(RecordError):
    """Another process is writing to the folder."""


def replace_file(
    path: Path, write: Callable[[IO[bytes]], object], before_rename: Callable[[], object] = lambda: None
) -> None:
    """Replace `path` atomically by what `write` writes to a temporary file, which is fsynced and renamed.

    On failure `path` is unchanged and RecordError is raised. `before_rename` is called once the new content is on disk.
    If several processes write the same file, the last one wins. What a killed one left is removed a day later.
    """
    temporary = path.parent / f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part"  # two hosts may share a pid
    try:
        if path.is_dir():  # the rename would fail too, but late, and with another error for . and ..
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        remove_abandoned(path)
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise _record_error("write", path, error, "the old content is unchanged") from error
        raise
    sync_folder(path.parent)


def remove_abandoned(path: Path) -> None:
    """Remove the temporary files that processes killed more than a day ago left next to a file."""
    for other in path.parent.glob(glob.escape(path.name) + ".*.part*"):
        with suppress(FileNotFoundError):  # another process removes it, too
            if _TEMPORARY.search(other.name) and time.time() - other.lstat().st_mtime > ABANDONED:
                other.unlink()


def leftovers(folder: Path) -> list[Path]:
    """Return the temporary files of killed processes in a folder, at any depth."""
    return [path for path in folder.rglob("*.part") if _TEMPORARY.search(path.name)]


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return the descriptor of a file; raise OSError for a symbolic link, a pipe or a device, without opening it."""
    with suppress(FileNotFoundError):
        if stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.open(path, flags | _NO_SURPRISE, 0o666)


def open_file(path: Path, most: int = MAX_BYTES) -> IO[bytes]:
    """Open a file for reading, as `open_regular` does; raise OSError for one of more than `most` bytes."""
    file = os.fdopen(open_regular(path), "rb")
    if os.fstat(file.fileno()).st_size > most:
        file.close()
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
    return file


def append_bytes(path: Path, data: bytes) -> None:
    """Append `data` to `path` and fsync it; on failure, truncate the file to its old size."""
    try:
        new = not path.exists()
        file = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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
        raise _record_error("append to", path, error, "the old content is unchanged") from error


def truncate(path: Path, size: int) -> None:
    """Truncate a file to `size` bytes, if it exists and is longer."""
    try:
        if path.exists() and path.stat().st_size > size:
            with os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())
    except OSError as error:
        raise _record_error("truncate", path, error, "it is unchanged") from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _record_error("create the folder", path, error, "nothing was written") from error


def sync_folder(path: Path) -> None:
    """Fsync a folder, if the system can: a rename survives a power cut only after that."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace `path` atomically by the value and its digest as JSON; NaN and infinities become null."""
    text = json.dumps({**jsonable(value), "digest": _ZEROS}, indent=2, allow_nan=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    replace_file(path, lambda file: file.write(text.replace(_ZEROS, digest).encode()))


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raise DataError if there is none, or if it does not match its digest."""
    try:
        with open_file(path, MAX_JSON) as file:
            content = file.read()
        value = json.loads(content)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, not {type(value).__name__}")
    if (end := _DIGEST.search(content)) is not None:
        zeroed = content[: end.start("value")] + _ZEROS.encode() + content[end.end("value") :]
        if end["key"] != b"digest" or hashlib.sha256(zeroed).hexdigest().encode() != end["value"]:
            raise DataError(f"{path}: damaged; its content does not match its digest")
    value.pop("digest", None)
    return value


def check_digest(path: Path) -> None:
    """Raise DataError if a file of a finished run differs from its digest in the result, where there is one."""
    result = path.parent / "result.json"
    if os.path.lexists(result):
        digest = read_json(result).get(DIGESTS, {}).get(path.name)
        if digest is not None and sha256_of(path) != digest:
            raise DataError(f"{path}: damaged; its content does not match its digest in result.json")


def sha256_of(path: Path, size: int = sys.maxsize) -> str:
    """Return the SHA-256 of a file, or of its first `size` bytes, in hexadecimal."""
    return digest_of(path, size).hexdigest()


def digest_of(path: Path, size: int = sys.maxsize) -> hashlib._Hash:
    """Return the hash object of `sha256_of`, which later bytes can be added to."""
    digest = hashlib.sha256()
    try:
        with open_file(path) as file:
            while size > 0 and (chunk := file.read(min(size, 2**20))):
                digest.update(chunk)
                size -= len(chunk)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return digest


def jsonable(value: Any) -> Any:
    """Convert a value to JSON types: arrays and tensors to lists, NaN and infinities to None.

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
    """An exclusive lock on a folder, held until `close` or the end of the process.

    Raises LockedError if another process holds it. Does nothing on Windows.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / ".lock"
        self._file: int | None = None
        if sys.platform == "win32":
            return
        try:
            file = open_regular(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _record_error("lock", folder, error, "nothing was written") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(file, 32, 0).decode(errors="replace")
            os.close(file)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LockedError(error.errno, f"{folder} is being written by process {owner or '?'}") from error
            raise _record_error("lock", folder, error, "nothing was written") from error
        with suppress(OSError):  # the pid is only for the message above
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file
        # a forked worker that outlives its killed parent must not keep the lock
        register_after_fork(self, Lock.close)

    def close(self) -> None:
        """Release the lock."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _record_error(doing: str, path: Path, error: OSError, kept: str) -> RecordError:
    return RecordError(error.errno, f"cannot {doing} {path}: {error.strerror or error}; {kept}")
