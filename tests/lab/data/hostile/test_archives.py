"""Archives that climb out, link out, lie about their size or are cut off."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile

import pytest

from reweigh.lab.data.source.archive import Limits, extract

SMALL = Limits(members=50, total_bytes=100_000, file_bytes=50_000)
ESCAPES = {
    "parent": "../evil",
    "parent within": "set/../../evil",
    "parent at the end": "set/..",
    "deep parent": "a/b/../../../evil",
    "absolute": "/tmp/evil",
    "double slash": "//evil",
    "drive": "C:/evil",
    "backslashes": "..\\evil",
    "absolute by backslash": "\\evil",
}


def tar(*members: tarfile.TarInfo, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as pack:
        for member in members:
            pack.addfile(member, io.BytesIO(bytes(member.size)) if member.isreg() else None)
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def header_only(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar header that claims `size` bytes, followed by nothing of the kind."""
    return member(name, kind, size=size).tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def packed(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED, mode: int | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as pack:
        for name, raw in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            if mode is not None:
                info.external_attr = mode << 16
            pack.writestr(info, raw)
    return buffer.getvalue()


def same_name_twice() -> bytes:
    raw = packed(("set/a", b"1"), ("set/b", b"2"))
    return raw.replace(b"set/b", b"set/a")


def lying_size(raw: bytes, size: int) -> bytes:
    """The central directory's uncompressed size of the first member replaced."""
    at = raw.index(b"PK\x01\x02") + 24
    return raw[:at] + struct.pack("<I", size) + raw[at + 4 :]


def encrypted(raw: bytes) -> bytes:
    at = raw.index(b"PK\x01\x02") + 8
    return raw[:at] + b"\x01\x00" + raw[at + 2 :]


GOOD_TAR = tar(member("set/a", size=2000), member("set/b", size=3000))
GOOD_GZ = gzip.compress(GOOD_TAR)
GOOD_ZIP = packed(("set/a", bytes(2000)), ("set/b", bytes(range(256)) * 9), method=zipfile.ZIP_DEFLATED)
SOCKET = stat.S_IFSOCK | 0o644

TARS = {f"tar: {case}": tar(member("set/fine"), member(name)) for case, name in ESCAPES.items()} | {
    "tar: folder that climbs": tar(member("../evil", tarfile.DIRTYPE)),
    "tar: symbolic link": tar(member("set/link", tarfile.SYMTYPE, "/etc/passwd")),
    "tar: symbolic link inside": tar(member("set/link", tarfile.SYMTYPE, "a")),
    "tar: link, then a file through it": tar(member("set", tarfile.SYMTYPE, ".."), member("set/evil")),
    "tar: hard link": tar(member("set/link", tarfile.LNKTYPE, "/etc/passwd")),
    "tar: character device": tar(member("set/null", tarfile.CHRTYPE)),
    "tar: block device": tar(member("set/disk", tarfile.BLKTYPE)),
    "tar: pipe": tar(member("set/pipe", tarfile.FIFOTYPE)),
    "tar: sparse": header_only("set/sparse", 512, tarfile.GNUTYPE_SPARSE),
    "tar: file twice": tar(member("set/a"), member("set/a")),
    "tar: file and folder alike": tar(member("set/a"), member("set/a/b")),
    "tar: one file too large": tar(member("set/a", size=50_001)),
    "tar: too much in all": tar(*(member(f"set/{k}", size=40_000) for k in range(3))),
    "tar: too many": tar(*(member(f"set/{k}") for k in range(51))),
    "tar: claims a terabyte": header_only("set/a", 2**40),
    "tar: claims a little more": header_only("set/a", 30_000),
    "tar: negative size": header_only("set/a", -512),
    "tar: long name of negative size": header_only("././@LongLink", -512, tarfile.GNUTYPE_LONGNAME),
    "tar: PAX header of negative size": header_only("pax", -1024, tarfile.XHDTYPE),
    "tar: long name of a gigabyte": header_only("././@LongLink", 2**30, tarfile.GNUTYPE_LONGNAME),
    "tar: PAX header of a gigabyte": header_only("pax", 2**30, tarfile.XHDTYPE),
    "tar: name of 300 characters": tar(member("x" * 300)),
    "tar: broken check sum": GOOD_TAR[:148] + b"0000000\0" + GOOD_TAR[156:],
    "gz: bomb": gzip.compress(tar(member("set/a", size=10**7))),
    "gz: bomb of zeros in a header": gzip.compress(header_only("pax", 10**8, tarfile.XHDTYPE) + bytes(10**8)),
    "tar: broken check sum of the second": GOOD_TAR[:2708] + b"0000000\0" + GOOD_TAR[2716:],
    "gz: tar cut after a member": gzip.compress(GOOD_TAR[:2560]),
    "gz: not a tar": gzip.compress(b"hello"),
    "gz: wrong check sum": GOOD_GZ[:-8] + bytes(8),
} | {
    f"tar: cut at {at}": GOOD_TAR[:at] for at in (0, 100, 600, 1500, 2500, 2560, 2700, 6144, 6400)
} | {
    f"gz: cut at {at}": GOOD_GZ[:at] for at in (2, 10, len(GOOD_GZ) // 2, len(GOOD_GZ) - 8)
}  # fmt: skip

ZIPS = {f"zip: {case}": packed(("set/fine", b""), (name, b"")) for case, name in ESCAPES.items()} | {
    "zip: symbolic link": packed(("set/link", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777),
    "zip: device": packed(("set/null", b""), mode=stat.S_IFCHR | 0o644),
    "zip: socket": packed(("set/socket", b""), mode=SOCKET),
    "zip: name with a zero byte": packed(("set/aXevil", b"")).replace(b"aXevil", b"a\0evil"),
    "zip: file twice": same_name_twice(),
    "zip: bomb": packed(("set/a", bytes(10**7)), method=zipfile.ZIP_DEFLATED),
    "zip: too much in all": packed(*((f"set/{k}", bytes(40_000)) for k in range(3))),
    "zip: too many": packed(*((f"set/{k}", b"") for k in range(51))),
    "zip: claims less than there is": lying_size(GOOD_ZIP, 10),
    "zip: claims more than there is": lying_size(GOOD_ZIP, 40_000),
    "zip: encrypted": encrypted(GOOD_ZIP),
    "zip: bzip2": packed(("set/a", b"hello"), method=zipfile.ZIP_BZIP2),
    "zip: lzma": packed(("set/a", b"hello"), method=zipfile.ZIP_LZMA),
    "zip: bzip2 bomb": lying_size(packed(("set/a", bytes(10**7)), method=zipfile.ZIP_BZIP2), 100),
    "zip: lzma bomb": lying_size(packed(("set/a", bytes(10**7)), method=zipfile.ZIP_LZMA), 100),
    "zip: deflated bomb": lying_size(packed(("set/a", bytes(10**7)), method=zipfile.ZIP_DEFLATED), 100),
    "zip: wrong bytes": packed(("set/a", b"hello")).replace(b"hello", b"jello"),
    "zip: no directory": GOOD_ZIP[: GOOD_ZIP.index(b"PK\x01\x02")],
} | {
    f"zip: cut at {at}": GOOD_ZIP[:at] for at in (2, 30, len(GOOD_ZIP) // 2, len(GOOD_ZIP) - 10)
}  # fmt: skip

OTHERS = {"text": b"hello" * 300, "7z": b"7z\xbc\xaf\x27\x1c" + bytes(600), "xz": b"\xfd7zXZ\x00" + bytes(600)}

CASES = {**TARS, **ZIPS, **OTHERS}


def test_there_are_many() -> None:
    assert len(CASES) >= 70


@pytest.mark.parametrize("case", CASES)
def test_archives_are_refused_and_leave_nothing(case, tmp_path, refused) -> None:
    archive = tmp_path / "data" / "set.archive"
    into = tmp_path / "data" / "into"
    into.mkdir(parents=True)
    archive.write_bytes(CASES[case])
    refused(lambda: extract(archive, into, SMALL), "set.archive")


@pytest.mark.parametrize("case", [case for case in CASES if case.partition(": ")[2] in ESCAPES])
def test_the_message_names_the_member(case, tmp_path, refused) -> None:
    archive = tmp_path / "set.archive"
    archive.write_bytes(CASES[case])
    into = tmp_path / "into"
    into.mkdir()
    assert repr(ESCAPES[case.partition(": ")[2]]) in refused(lambda: extract(archive, into), "set.archive")


def test_a_missing_archive_is_named(tmp_path, refused) -> None:
    into = tmp_path / "into"
    into.mkdir()
    refused(lambda: extract(tmp_path / "absent.tar", into), "absent.tar")


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("zip") and case.endswith("bomb")])
def test_bombs_are_not_unpacked_in_memory_either(case, tmp_path, peak) -> None:
    (tmp_path / "set.zip").write_bytes(CASES[case])
    assert peak(lambda: extract(tmp_path / "set.zip", tmp_path / "into", SMALL)) < 4 * 10**6
