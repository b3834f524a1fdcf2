"""Packing and unpacking runs, and hostile archives."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from reweigh.errors import DataError
from reweigh.lab.record import Header, Record, RecordError, list_runs, pack, unpack
from reweigh.lab.record.archive import FILES

MakeRun = Callable[..., Path]
SUFFIXES = pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".zip"])


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def extras() -> dict[str, bytes]:
    return {
        "model__model_json": b"{}",
        "model__model_safetensors": os.urandom(1000),
        "checkpoint_pt": b"x" * 5000,
        "retrieval_json": b"{}",
    }


@SUFFIXES
def test_round_trip(tmp_path: Path, make_run: MakeRun, suffix: str) -> None:
    runs = [make_run(tmp_path / "here" / name, done=name != "b", **extras()) for name in ("c", "a", "b")]
    archive = tmp_path / "out" / f"runs{suffix}"
    assert pack(runs, archive, checkpoints=True) == ["a", "b", "c"]
    assert unpack(archive, tmp_path / "there") == (["a", "b", "c"], [])
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert [run.state for run in list_runs(tmp_path / "there")] == ["done", "resumable", "done"]
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["a", "b", "c"]


@SUFFIXES
def test_equal_runs_give_equal_bytes_and_checkpoints_stay_out(tmp_path: Path, make_run: MakeRun, suffix: str) -> None:
    run = make_run(tmp_path / "a", **extras())
    (run / "notes.txt").write_text("mine")
    one, two = tmp_path / f"1{suffix}", tmp_path / f"2{suffix}"
    pack([run], one)
    for path in run.rglob("*"):
        os.utime(path, (1e9, 1e9))
    pack([run], two)
    assert one.read_bytes() == two.read_bytes()
    unpack(one, tmp_path / "there")
    assert set(contents(tmp_path / "there" / "a")) == set(contents(run)) - {"checkpoint.pt", "notes.txt"}


@SUFFIXES
def test_an_existing_run_is_kept(tmp_path: Path, make_run: MakeRun, suffix: str) -> None:
    pack([make_run(tmp_path / "here" / name) for name in ("a", "b")], tmp_path / f"x{suffix}")
    there = make_run(tmp_path / "there" / "a", done=False)
    before = contents(there)
    assert unpack(tmp_path / f"x{suffix}", tmp_path / "there") == (["b"], ["a"])
    assert contents(there) == before


def test_what_cannot_be_packed(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    run = make_run(tmp_path / "a", done=False)
    with pytest.raises(ValueError, match=r"must end in \.tar\.gz"):
        pack([run], tmp_path / "x.rar")
    with pytest.raises(ValueError, match="occurs twice"):
        pack([run, tmp_path / "b" / "a"], tmp_path / "x.zip")
    with pytest.raises(DataError, match=r"nowhere.*run\.json"):
        pack([tmp_path / "nowhere"], tmp_path / "x.zip")
    with Record(run, header, {"torch": "2"}), pytest.raises(RecordError, match="being written"):
        pack([run], tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_a_full_disk_while_packing_leaves_the_old_archive(
    tmp_path: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "a")
    pack([run], tmp_path / "x.zip")
    before = (tmp_path / "x.zip").read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="No space left"):
        pack([run], tmp_path / "x.zip")
    assert (tmp_path / "x.zip").read_bytes() == before
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(RecordError, match=r"cannot unpack .*x\.zip into .*there: No space left"):
        unpack(tmp_path / "x.zip", tmp_path / "there")


def tar_of(path: Path, *infos: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in infos:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return path


def tar_entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


BAD_NAMES = [
    "../a/run.json", "/a/run.json", "a/../run.json", "a/../../run.json", "./a/run.json", "run.json", "a/other.txt",
    "a/run.json/", "a//run.json", "a\\run.json", ".a/run.json", "-a/run.json", "a/model/../run.json", "a/b/run.json",
    "a b/run.json", "a\n/run.json", "é/run.json", "x" * 300 + "/run.json", "a/.lock", "a/RUN.JSON", "",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_not_a_runs_are_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    archive = tar_of(tmp_path / "x.tar.gz", (tar_entry(name), b"{}"))
    with pytest.raises(DataError, match=r"x\.tar\.gz"):
        unpack(archive, root)
    if name:  # zipfile cannot even write an empty one
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
            file.writestr(name, "{}")
        with pytest.raises(DataError, match=r"x\.zip"):
            unpack(tmp_path / "x.zip", root)
    assert not root.exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_members_that_are_not_files_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = tar_of(tmp_path / "x.tar.gz", (tar_entry("a/run.json", kind, "/etc/passwd"), b""))
    with pytest.raises(DataError, match="not a file of a run"):
        unpack(archive, tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("change", ["symlink", "lzma", "twice"])
def test_zip_members_that_are_not_plain_files_are_refused(tmp_path: Path, change: str) -> None:
    info = zipfile.ZipInfo("a/run.json")
    if change == "symlink":
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
    if change == "lzma":
        info.compress_type = zipfile.ZIP_LZMA
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr(info, "{}")
        if change == "twice":
            with pytest.warns(UserWarning, match="Duplicate name"):
                file.writestr("a/run.json", "{}")
    with pytest.raises(DataError, match="not a file of a run, or occurs twice"):
        unpack(tmp_path / "x.zip", tmp_path / "root")


@SUFFIXES
def test_too_much_is_refused(tmp_path: Path, make_run: MakeRun, suffix: str) -> None:
    pack([make_run(tmp_path / "a", checkpoint_pt=bytes(10**6))], tmp_path / f"x{suffix}", checkpoints=True)
    assert (tmp_path / f"x{suffix}").stat().st_size < 10**5
    with pytest.raises(DataError, match="more than"):
        unpack(tmp_path / f"x{suffix}", tmp_path / "root", max_bytes=10**5)
    assert not (tmp_path / "root").exists()


@SUFFIXES
def test_damaged_archives_leave_nothing(tmp_path: Path, make_run: MakeRun, suffix: str) -> None:
    archive = tmp_path / f"x{suffix}"
    pack([make_run(tmp_path / name, p_f16=os.urandom(300)) for name in ("a", "b")], archive)
    content = archive.read_bytes()
    for size in range(0, len(content), max(1, len(content) // 40)):
        archive.write_bytes(content[:size])
        with pytest.raises(DataError, match=archive.name):
            unpack(archive, tmp_path / "root")
    for place in range(0, len(content), max(1, len(content) // 60)):
        archive.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            unpack(archive, tmp_path / "flipped")
        except DataError:
            continue
        # what still unpacks was damaged where it does not matter: in dates and the like
        for path in (path for path in (tmp_path / "flipped").rglob("*") if path.is_file()):
            assert path.read_bytes() == (tmp_path / path.relative_to(tmp_path / "flipped")).read_bytes()
        shutil.rmtree(tmp_path / "flipped")
    assert not (tmp_path / "root").exists() or list((tmp_path / "root").iterdir()) == []


def test_a_run_without_its_header_is_refused(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "x.tgz", (tar_entry("a/rows.jsonl"), b""))
    with pytest.raises(DataError, match=r"x\.tgz: a.run\.json: cannot be read"):
        unpack(archive, tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


def test_missing_archives_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.zip: no such file"):
        unpack(tmp_path / "x.zip", tmp_path)


def test_header_first_and_result_last() -> None:
    """So that a reader of a stream knows what it reads, and `done` comes when the rest is there."""
    assert (FILES[0], FILES[-1]) == ("run.json", "result.json")


@pytest.mark.parametrize("linked", ["p.f16", "model"])
def test_links_in_a_run_are_not_packed(tmp_path: Path, make_run: MakeRun, linked: str) -> None:
    run = make_run(tmp_path / "a", **extras())
    (run / linked).rename(tmp_path / "secret")
    (run / linked).symlink_to(tmp_path / "secret")
    with pytest.raises(DataError, match=linked):
        pack([run], tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


@SUFFIXES
def test_an_archive_that_unpacks_to_many_times_its_size_is_refused_early(tmp_path: Path, suffix: str) -> None:
    archive, zeros = tmp_path / f"x{suffix}", io.BytesIO(bytes(2**27))
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a/checkpoint.pt", zeros.getvalue())
    else:
        with tarfile.open(archive, "w:gz") as tar:
            info = tar_entry("a/checkpoint.pt")
            info.size = 2**27
            tar.addfile(info, zeros)
    with pytest.raises(DataError, match="holds more than 250 times its own size"):
        unpack(archive, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_bad_name_is_refused_before_what_follows_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tar_of(tmp_path / "x.tar.gz", (tar_entry("../x"), bytes(10**6)), (tar_entry("a/run.json"), b"{}"))
    unpacked, read = 0, gzip.GzipFile.read

    def count(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal unpacked
        content = read(self, size)
        unpacked += len(content)
        return content

    monkeypatch.setattr(gzip.GzipFile, "read", count)
    with pytest.raises(DataError, match="is not a file of a run"):
        unpack(archive, tmp_path / "root")
    assert 0 < unpacked <= 20_000


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_huge_header_is_not_read(tmp_path: Path, kind: bytes) -> None:
    header = tar_entry("a/run.json", kind)
    header.size = 2**26
    raw = header.tobuf(tarfile.GNU_FORMAT) + bytes(2**26)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(raw, 1))
    with pytest.raises(DataError, match="a header with more than 1048576 bytes"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "root")
