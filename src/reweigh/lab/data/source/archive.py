"""Unpack tar and zip archives, checking the path, type, size and number of members."""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from reweigh.errors import DataError

_CHUNK = 2**20


@dataclass(frozen=True)
class Limits:
    """The limits of an archive: members, total bytes, bytes in one file."""

    members: int = 500_000
    total_bytes: int = 16 * 2**30
    file_bytes: int = 4 * 2**30


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    content: IO[bytes] | None  # None: a folder


def extract(archive: Path, into: Path, limits: Limits | None = None) -> tuple[Path, ...]:
    """Unpack a .tar, .tar.gz or .zip into the folder `into`, and return its top-level entries.

    Everything is first written to a temporary folder inside `into` and then moved, so that a refused or damaged archive
    leaves nothing behind. Only regular files and folders are written, with default permissions. DataError is raised for
    links, devices, paths that are absolute or contain "..", duplicate names, anything over `limits`, and a top-level
    entry that `into` already has.
    """
    allowed = limits or Limits()
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=into) as temporary:
        folder = Path(temporary)
        try:
            with ExitStack() as stack:
                _write_all(archive, _members(archive, allowed, stack), folder, allowed)
        except DataError:
            raise
        except Exception as error:  # tarfile, zipfile and zlib raise many types
            raise DataError(f"{archive}: damaged archive: {str(error) or type(error).__name__}") from error
        entries = sorted(folder.iterdir())
        for entry in entries:
            if os.path.lexists(into / entry.name):  # true for a broken link too
                raise DataError(f"{archive}: {into / entry.name} already exists; move it away first")
        return tuple(entry.rename(into / entry.name) for entry in entries)


def _write_all(archive: Path, members: Iterator[_Member], folder: Path, limits: Limits) -> None:
    total = 0
    for count, member in enumerate(members, start=1):
        total += member.size
        if count > limits.members:
            raise DataError(f"{archive}: more than {limits.members} members")
        if not 0 <= member.size <= limits.file_bytes or total > limits.total_bytes:
            raise DataError(
                f"{archive}: member {member.name!r} of {member.size} bytes exceeds the limit of "
                f"{limits.file_bytes} bytes per file or {limits.total_bytes} in total"
            )
        target = folder.joinpath(*_parts(archive, member.name))
        try:
            if member.content is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                _copy(archive, member, member.content, file)
        except FileExistsError as error:
            raise DataError(f"{archive}: member {member.name!r} occurs twice") from error
        except Exception as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{archive}: member {member.name!r}: {str(error) or type(error).__name__}") from error


def _copy(archive: Path, member: _Member, content: IO[bytes], file: IO[bytes]) -> None:
    written = 0
    while chunk := content.read(_CHUNK):
        written += file.write(chunk)
        if written > member.size:
            break
    if written != member.size:
        raise DataError(f"{archive}: member {member.name!r} does not have the {member.size} bytes of its header")


def _parts(archive: Path, name: str) -> tuple[str, ...]:
    """Split the name of a member; raise DataError for a path that leads out of the target folder."""
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        raise DataError(f"{archive}: member {name!r} has an absolute path")
    if "\\" in name or "\0" in name:
        raise DataError(f"{archive}: member {name!r} has a backslash or a zero byte in its name")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise DataError(f"{archive}: member {name!r} leads out of the archive")
    return parts


def _members(archive: Path, limits: Limits, stack: ExitStack) -> Iterator[_Member]:
    try:
        raw = stack.enter_context(archive.open("rb"))
    except OSError as error:
        raise DataError(f"{archive}: cannot be read: {error.strerror or error}") from error
    head = raw.read(512)
    raw.seek(0)
    if head.startswith(b"PK"):
        return _zip_members(archive, stack.enter_context(zipfile.ZipFile(raw)))
    if head.startswith(b"\x1f\x8b"):
        return _tar_members(archive, stack.enter_context(gzip.GzipFile(fileobj=raw)), limits, stack)
    if head[257:262] == b"ustar":
        return _tar_members(archive, raw, limits, stack)
    raise DataError(f"{archive}: not a .tar, .tar.gz or .zip archive")


def _tar_members(archive: Path, raw: BinaryIO | gzip.GzipFile, limits: Limits, stack: ExitStack) -> Iterator[_Member]:
    headers = 4096 * (limits.members + 8)  # an upper bound for a header with a long name and padding
    bounded = _Bounded(raw, limits.total_bytes + headers)
    tar = stack.enter_context(tarfile.TarFile(fileobj=bounded))
    for member in tar:
        if member.issparse() or not (member.isreg() or member.isdir()):
            link = f"a link to {member.linkname!r}" if member.issym() or member.islnk() else "a special file"
            raise DataError(f"{archive}: member {member.name!r} is {link}; only files and folders are unpacked")
        yield _Member(member.name, member.size, tar.extractfile(member))
    if not bounded.ended:
        raise DataError(f"{archive}: truncated: the final block of zeros is missing")
    while bounded.read(_CHUNK):
        pass  # to the end, where gzip verifies its checksum


def _zip_members(archive: Path, pack: zipfile.ZipFile) -> Iterator[_Member]:
    for info in pack.infolist():
        name = info.orig_filename  # `filename` ends at the first zero byte
        kind = stat.S_IFMT(info.external_attr >> 16)  # 0 if the archive was not made on Unix
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(f"{archive}: member {name!r} is a link or a device; only files and folders are unpacked")
        if info.is_dir():
            yield _Member(name, 0, None)
            continue
        if info.flag_bits & 1:
            raise DataError(f"{archive}: member {name!r} is encrypted")
        with open_member(archive, pack, info) as content:
            yield _Member(name, info.file_size, content)


def open_member(archive: Path, pack: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """Open a member of a zip, to be read in chunks of bounded size.

    Only stored and deflated members are supported: Python may unpack any amount at once from bzip2 or lzma.
    """
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(
            f"{archive}: member {info.orig_filename!r} uses the compression method {info.compress_type}; "
            "only stored and deflated members are read"
        )
    return pack.open(info)


class _Bounded(io.BufferedIOBase):
    """An unpacked tar stream that limits its total length and the size of single reads.

    tarfile reads a member's extended header (long names, PAX records) at once, whatever its length, so that a small
    archive could exhaust memory.
    """

    def __init__(self, raw: BinaryIO | gzip.GzipFile, end: int) -> None:
        self._raw = raw
        self._end = end
        self.ended = False  # whether the last block read was the final zeros, not the end of the file

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= 4 * _CHUNK:
            raise tarfile.ReadError(f"a header of {size} bytes")
        content = self._raw.read(size)
        if self._raw.tell() > self._end:
            raise tarfile.ReadError(f"more than {self._end} bytes in total")
        self.ended = content == bytes(tarfile.BLOCKSIZE)
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence != io.SEEK_SET or offset > self._end:
            raise tarfile.ReadError(f"more than {self._end} bytes in total")
        return self._raw.seek(offset)

    def tell(self) -> int:
        return self._raw.tell()
