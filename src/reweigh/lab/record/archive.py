"""Pack run folders into one .tar.gz or .zip file, and unpack them; only the known files of a run are handled."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from reweigh.errors import DataError
from reweigh.lab.record.files import MAX_BYTES, Lock, RecordError, make_folder, replace_file, sync_folder
from reweigh.lab.record.record import summarise

FILES = (
    "run.json",
    "rows.jsonl",
    "p.f16",
    "margins.bin",
    "posteriors.safetensors",
    "model/model.json",
    "model/model.safetensors",
    "model/best.safetensors",
    "checkpoint.pt",
    "checkpoint.previous.pt",
    "retrieval.json",
    "result.json",
)
MAX_FILES = 100_000
RATIO = 250  # of unpacked to packed bytes, at most
SMALL = 2**26  # bytes that any archive may hold, whatever the ratio
HEADER_BYTES = 2**20  # of the header of a file in a .tar.gz, at most
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_ARCHIVE_ERRORS = (  # raised by tarfile and zipfile on damaged bytes
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
)


class Unpacked(NamedTuple):
    """The names of the runs that were unpacked, and of those that already existed."""

    added: list[str]
    skipped: list[str]


def pack(folders: Sequence[Path], archive: Path, *, checkpoints: bool = False) -> list[str]:
    """Write run folders into an archive (.tar.gz, .tgz or .zip) and return their names.

    Equal runs give equal bytes. A run that another process is writing is refused. Checkpoints are large, and only
    needed to resume an unfinished run elsewhere.
    """
    kind = _kind(archive)
    chosen = [name for name in FILES if checkpoints or not name.endswith(".pt")]
    names = sorted(folder.name for folder in folders)
    for name in names:
        if not _FOLDER.fullmatch(name) or names.count(name) > 1:
            raise ValueError(f"the folder name {name!r} is not usable in an archive, or occurs twice")
    with ExitStack() as locks:
        for folder in folders:
            summary = summarise(folder)
            if summary.problem:
                raise DataError(summary.problem)
            if summary.state != "done":
                locks.enter_context(Lock(folder))
        members = [
            (f"{folder.name}/{name}", folder / name)
            for folder in sorted(folders, key=lambda folder: folder.name)
            for name in chosen
            if os.path.lexists(folder / name)
        ]
        for _, path in members:
            if path.parent.is_symlink() or not stat.S_ISREG(path.lstat().st_mode):
                raise DataError(f"{path}: not a regular file, or in a folder that is a symbolic link")
            if path.stat().st_size > MAX_BYTES:
                raise DataError(f"{path}: larger than {MAX_BYTES:,} bytes")
        make_folder(archive.parent)
        replace_file(archive, lambda file: (_write_zip if kind == "zip" else _write_tar)(file, members))
    return names


def unpack(archive: Path, root: Path, *, max_bytes: int = MAX_BYTES) -> Unpacked:
    """Unpack the runs of an archive into `root`, except those that already exist there.

    Every name, type and size is checked before anything is written, and each before the content that follows it is
    read. A run appears completely or not at all.
    """
    if not archive.is_file():
        raise DataError(f"{archive}: no such file")
    try:
        with _open(archive) as entries:
            folders = sorted({member.folder for member in _checked(archive, entries, max_bytes)})
        make_folder(root)
        with tempfile.TemporaryDirectory(dir=root, prefix=".unpack-") as temporary, _open(archive) as entries:
            for member in _checked(archive, entries, max_bytes):
                if not (root / member.folder).exists():
                    _copy(archive, member, Path(temporary) / member.name)
            return _move_in(archive, Path(temporary), root, folders)
    except (DataError, RecordError):
        raise
    except _ARCHIVE_ERRORS as error:
        raise DataError(f"{archive}: damaged, or not the kind of archive that its suffix says ({error})") from error
    except OSError as error:
        raise RecordError(error.errno, f"cannot unpack {archive} into {root}: {error.strerror or error}") from error


class _Member(NamedTuple):
    name: str
    regular: bool
    size: int
    open: Callable[[], IO[bytes] | None]

    @property
    def folder(self) -> str:
        return self.name.partition("/")[0]


class _Stream:
    """The content of a .tar.gz, of which at most `left` more bytes are unpacked."""

    def __init__(self, archive: Path, file: gzip.GzipFile) -> None:
        self._archive, self._file, self.left = archive, file, HEADER_BYTES

    def read(self, size: int) -> bytes:
        if size > self.left:
            size = self.left + 1
        content = self._file.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise DataError(f"{self._archive}: a header with more than {HEADER_BYTES} bytes")
        return content


@contextmanager
def _open(archive: Path) -> Iterator[Iterator[_Member]]:
    """Open an archive as an iterator of its members; of a .tar.gz each must be read before the next one."""
    if _kind(archive) == "zip":
        with zipfile.ZipFile(archive) as file:
            yield (_Member(i.filename, _is_file(i), i.file_size, partial(file.open, i)) for i in file.infolist())
    else:
        with gzip.open(archive) as unpacked:
            stream = _Stream(archive, unpacked)
            with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]  # a reader is enough
                yield _members(tar, stream)


def _members(tar: tarfile.TarFile, stream: _Stream) -> Iterator[_Member]:
    for info in tar:
        yield _Member(info.name, info.isreg(), info.size, partial(tar.extractfile, info))
        stream.left = info.size + HEADER_BYTES
    while stream.read(2**16):  # tarfile takes a truncated archive for a short one; gzip's checksum is at the end
        pass


def _checked(archive: Path, members: Iterator[_Member], max_bytes: int) -> Iterator[_Member]:
    """Yield the members, each checked before its content and the next one are read."""
    seen: set[str] = set()
    total, most = 0, max(RATIO * archive.stat().st_size, SMALL)
    for member in members:
        folder, _, name = member.name.partition("/")
        if not _FOLDER.fullmatch(folder) or name not in FILES or not member.regular or member.name in seen:
            raise DataError(f"{archive}: {member.name[:100]!r} is not a file of a run, or occurs twice")
        seen.add(member.name)
        total += member.size
        if len(seen) > MAX_FILES or total > max_bytes:
            raise DataError(f"{archive}: holds more than {MAX_FILES} files or {max_bytes} bytes")
        if total > most:
            raise DataError(f"{archive}: holds more than {RATIO} times its own size")
        yield member


def _copy(archive: Path, member: _Member, target: Path) -> None:
    stream = member.open()
    if stream is None:
        raise DataError(f"{archive}: {member.name!r} has no content")
    target.parent.mkdir(parents=True, exist_ok=True)
    with stream, target.open("wb") as file:
        shutil.copyfileobj(stream, file)
        if file.tell() != member.size:
            raise DataError(f"{archive}: {member.name!r} has {file.tell()} bytes, not the {member.size} of its header")


def _move_in(archive: Path, temporary: Path, root: Path, folders: list[str]) -> Unpacked:
    unpacked = Unpacked([], [])
    for name in folders:
        (unpacked.added if (temporary / name).exists() else unpacked.skipped).append(name)
    for name in unpacked.added:
        if problem := summarise(temporary / name).problem:
            raise DataError(f"{archive}: {problem.removeprefix(f'{temporary}{os.sep}')}")
    for name in unpacked.added:
        (temporary / name).rename(root / name)
    sync_folder(root)
    return unpacked


def _kind(archive: Path) -> str:
    if archive.name.endswith(".zip"):
        return "zip"
    if archive.name.endswith((".tar.gz", ".tgz")):
        return "tar"
    raise ValueError(f"{archive}: the name of an archive must end in .tar.gz, .tgz or .zip")


def _is_file(info: zipfile.ZipInfo) -> bool:
    kind = stat.S_IFMT(info.external_attr >> 16)
    known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return known and not info.is_dir() and kind in (0, stat.S_IFREG)


def _write_zip(file: IO[bytes], members: Sequence[tuple[str, Path]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in members:
            info = zipfile.ZipInfo(name)  # dated 1980: equal runs give equal bytes
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.file_size = path.stat().st_size  # zipfile chooses 32 or 64 bits by it
            with path.open("rb") as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target)


def _write_tar(file: IO[bytes], members: Sequence[tuple[str, Path]]) -> None:
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in members:
            info = tarfile.TarInfo(name)
            info.size = path.stat().st_size
            with path.open("rb") as source:
                archive.addfile(info, source)
