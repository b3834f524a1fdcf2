"""Many runs as one .tar.gz or .zip file, and back; nothing but the known files of a run goes in or comes out."""

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
from reweigh.lab.record.files import Lock, RecordError, make_folder, replace_file, sync_folder
from reweigh.lab.record.record import summarise

FILES = (
    "run.json",
    "rows.jsonl",
    "p.f16",
    "margins.bin",
    "model/model.json",
    "model/model.safetensors",
    "model/best.safetensors",
    "checkpoint.pt",
    "checkpoint.previous.pt",
    "retrieval.json",
    "result.json",
)
LARGEST = 2**36  # bytes that may come out of one archive
MOST = 100_000  # files
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_BROKEN = (  # what the two modules raise on damaged bytes, between them
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
    """What came out of an archive, and what was there already and stayed as it was."""

    added: list[str]
    skipped: list[str]


def pack(folders: Sequence[Path], archive: Path, *, checkpoints: bool = False) -> list[str]:
    """Write run folders into one archive; the suffix decides: .tar.gz, .tgz or .zip. Returns their names.

    Equal runs give equal bytes. A run that another process is writing is refused. Checkpoints are large and needed
    only to go on elsewhere with a run that is not done.
    """
    kind = _kind(archive)
    chosen = [name for name in FILES if checkpoints or not name.endswith(".pt")]
    names = sorted(folder.name for folder in folders)
    for name in names:
        if not _FOLDER.fullmatch(name) or names.count(name) > 1:
            raise ValueError(f"a run folder's name must be plain and occur once in an archive, not {name!r}")
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
            if (folder / name).is_file()
        ]
        make_folder(archive.parent)
        replace_file(archive, lambda file: (_write_zip if kind == "zip" else _write_tar)(file, members))
    return names


def unpack(archive: Path, root: Path, *, largest: int = LARGEST) -> Unpacked:
    """Bring the runs of an archive into `root`; a run that is there already stays as it is.

    Every name, type and size is checked before the first byte is written, and a run appears whole or not at all.
    """
    if not archive.is_file():
        raise DataError(f"{archive}: there is no such file")
    try:
        _check_bytes(archive, largest)
        with _open(archive) as found:
            members = list(_checked(archive, found, largest))
            make_folder(root)
            with tempfile.TemporaryDirectory(dir=root, prefix=".unpack-") as beside:
                for member in members:
                    if not (root / member.folder).exists():
                        _copy(archive, member, Path(beside) / member.name)
                return _adopt(archive, Path(beside), root, sorted({member.folder for member in members}))
    except (DataError, RecordError):
        raise
    except _BROKEN as error:
        raise DataError(f"{archive}: damaged, or not the archive its name says ({error})") from error
    except OSError as error:
        raise RecordError(error.errno, f"cannot unpack {archive} into {root}: {error.strerror or error}") from error


def _check_bytes(archive: Path, largest: int) -> None:
    """Read a .tar.gz to its end: tarfile takes a cut-off archive for a short one and never looks at gzip's checksum."""
    if _kind(archive) == "tar":
        with gzip.open(archive) as file:
            while file.read(2**20):
                if file.tell() > 2 * largest:  # the headers of tar need room too
                    raise DataError(f"{archive}: holds more than {largest} bytes")


class _Member(NamedTuple):
    name: str
    regular: bool
    size: int
    open: Callable[[], IO[bytes] | None]

    @property
    def folder(self) -> str:
        return self.name.partition("/")[0]


@contextmanager
def _open(archive: Path) -> Iterator[Iterator[_Member]]:
    if _kind(archive) == "zip":
        with zipfile.ZipFile(archive) as file:
            yield (_Member(i.filename, _is_file(i), i.file_size, partial(file.open, i)) for i in file.infolist())
    else:
        with tarfile.open(archive, "r:gz") as tar:
            yield (_Member(i.name, i.isreg(), i.size, partial(tar.extractfile, i)) for i in tar)


def _checked(archive: Path, members: Iterator[_Member], largest: int) -> Iterator[_Member]:
    """The members one by one, each checked before the next is looked for."""
    seen: set[str] = set()
    total = 0
    for member in members:
        folder, _, name = member.name.partition("/")
        if not _FOLDER.fullmatch(folder) or name not in FILES or not member.regular or member.name in seen:
            raise DataError(f"{archive}: {member.name[:100]!r} is not a file of a run, or is there twice")
        seen.add(member.name)
        total += member.size
        if len(seen) > MOST or total > largest:
            raise DataError(f"{archive}: holds more than {MOST} files or {largest} bytes")
        yield member


def _copy(archive: Path, member: _Member, target: Path) -> None:
    stream = member.open()
    if stream is None:
        raise DataError(f"{archive}: {member.name!r} has no content")
    target.parent.mkdir(parents=True, exist_ok=True)
    with stream, target.open("wb") as file:
        shutil.copyfileobj(stream, file)
        if file.tell() != member.size:
            raise DataError(f"{archive}: {member.name!r} has {file.tell()} bytes, not {member.size} as announced")


def _adopt(archive: Path, beside: Path, root: Path, folders: list[str]) -> Unpacked:
    done = Unpacked([], [])
    for name in folders:
        (done.added if (beside / name).exists() else done.skipped).append(name)
    for name in done.added:
        if problem := summarise(beside / name).problem:
            raise DataError(f"{archive}: {problem.removeprefix(f'{beside}{os.sep}')}")
    for name in done.added:
        (beside / name).rename(root / name)
    sync_folder(root)
    return done


def _kind(archive: Path) -> str:
    if archive.name.endswith(".zip"):
        return "zip"
    if archive.name.endswith((".tar.gz", ".tgz")):
        return "tar"
    raise ValueError(f"{archive}: an archive of runs ends in .tar.gz, .tgz or .zip")


def _is_file(info: zipfile.ZipInfo) -> bool:
    kind = stat.S_IFMT(info.external_attr >> 16)
    known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return known and not info.is_dir() and kind in (0, stat.S_IFREG)


def _write_zip(file: IO[bytes], members: Sequence[tuple[str, Path]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in members:
            info = zipfile.ZipInfo(name)  # dated 1980, so that equal runs give equal bytes
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.file_size = path.stat().st_size  # tells zipfile whether it needs 64 bits
            with path.open("rb") as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target)


def _write_tar(file: IO[bytes], members: Sequence[tuple[str, Path]]) -> None:
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in members:
            info = tarfile.TarInfo(name)
            info.size = path.stat().st_size
            with path.open("rb") as source:
                archive.addfile(info, source)
