"""Tar and zip archives unpacked with every member checked: path, kind, size, and how many there are."""

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
    """What an archive may contain at most: members, bytes in all, bytes in one file."""

    members: int = 500_000
    total_bytes: int = 16 * 2**30
    file_bytes: int = 4 * 2**30


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    content: IO[bytes] | None  # None: a folder


def extract(archive: Path, into: Path, limits: Limits | None = None) -> tuple[Path, ...]:
    """Unpack a .tar, .tar.gz or .zip into the folder `into`; returns the top-level entries it brought.

    Everything is written into a temporary folder inside `into` first and then moved, so that a refused or
    broken archive leaves nothing behind. Only regular files and folders are written, with this user's default
    permissions. Links, devices, paths that are absolute or contain "..", names that occur twice and anything
    over `limits` are refused with the member's name; so is a top-level entry that `into` has already.
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
        except Exception as error:  # tarfile, zipfile and zlib have a dozen ways to say that an archive is broken
            raise DataError(f"{archive}: broken archive: {str(error) or type(error).__name__}") from error
        entries = sorted(folder.iterdir())
        for entry in entries:
            if os.path.lexists(into / entry.name):  # a link to nowhere is in the way too
                raise DataError(f"{archive}: {into / entry.name} exists already; move it away first")
        return tuple(entry.rename(into / entry.name) for entry in entries)


def _write_all(archive: Path, members: Iterator[_Member], folder: Path, limits: Limits) -> None:
    total = 0
    for count, member in enumerate(members, start=1):
        total += member.size
        if count > limits.members:
            raise DataError(f"{archive}: more than {limits.members} members")
        if not 0 <= member.size <= limits.file_bytes or total > limits.total_bytes:
            raise DataError(
                f"{archive}: member {member.name!r} of {member.size} bytes passes the limit of "
                f"{limits.file_bytes} bytes for a file or {limits.total_bytes} in all"
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
        raise DataError(f"{archive}: member {member.name!r} is not the {member.size} bytes long that it claims")


def _parts(archive: Path, name: str) -> tuple[str, ...]:
    """The folders and the file of a member's name, none of which leads out of the place it is unpacked in."""
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        raise DataError(f"{archive}: member {name!r} has an absolute path")
    if "\\" in name or "\0" in name:
        raise DataError(f"{archive}: member {name!r} has a backslash or a zero byte in its name")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise DataError(f"{archive}: member {name!r} climbs out of the archive")
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
    headers = 4096 * (limits.members + 8)  # a header with a long name and padding takes less for each member
    bounded = _Bounded(raw, limits.total_bytes + headers)
    tar = stack.enter_context(tarfile.TarFile(fileobj=bounded))
    for member in tar:
        if member.issparse() or not (member.isreg() or member.isdir()):
            link = f"a link to {member.linkname!r}" if member.issym() or member.islnk() else "a special file"
            raise DataError(f"{archive}: member {member.name!r} is {link}; only files and folders are unpacked")
        yield _Member(member.name, member.size, tar.extractfile(member))
    if not bounded.ended:
        raise DataError(f"{archive}: cut short: the block of zeros that ends a .tar is missing")
    while bounded.read(_CHUNK):
        pass  # to the end, where gzip finds out whether its check sum holds


def _zip_members(archive: Path, pack: zipfile.ZipFile) -> Iterator[_Member]:
    for info in pack.infolist():
        name = info.orig_filename  # as written: `filename` ends at the first zero byte
        kind = stat.S_IFMT(info.external_attr >> 16)  # 0 when the archive was not made on Unix
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
    """A member of a zip, to be read in pieces of a given size: no more is then unpacked at a time, whatever it holds.

    Only stored and deflated members are opened: Python unpacks a piece of bzip2 or lzma whole, however large.
    """
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(
            f"{archive}: member {info.orig_filename!r} is packed by method {info.compress_type}; "
            "only stored and deflated ones are read"
        )
    return pack.open(info)


class _Bounded(io.BufferedIOBase):
    """The unpacked tar stream, never read further than `end`, nor in larger pieces than tarfile needs.

    tarfile reads a member's extended header (long names, PAX records) at one go, however long it claims to
    be: a small archive could fill the memory so.
    """

    def __init__(self, raw: BinaryIO | gzip.GzipFile, end: int) -> None:
        self._raw = raw
        self._end = end
        self.ended = False  # whether the last block read was the zeros that tarfile stops at, not the end of the file

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= 4 * _CHUNK:
            raise tarfile.ReadError(f"a header of {size} bytes")
        content = self._raw.read(size)
        if self._raw.tell() > self._end:
            raise tarfile.ReadError(f"more than {self._end} bytes in all")
        self.ended = content == bytes(tarfile.BLOCKSIZE)
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence != io.SEEK_SET or offset > self._end:
            raise tarfile.ReadError(f"more than {self._end} bytes in all")
        return self._raw.seek(offset)

    def tell(self) -> int:
        return self._raw.tell()
