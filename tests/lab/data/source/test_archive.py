from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from reweigh.errors import DataError
from reweigh.lab.data.source.archive import Limits, extract

CONTENT = {"set/a.txt": b"hello", "set/deep/er/b.bin": bytes(3000), "set/empty": b""}


def tar(path, mode):
    with tarfile.open(path, mode) as pack:
        folder = tarfile.TarInfo("./set/nothing")
        folder.type = tarfile.DIRTYPE
        pack.addfile(folder)
        for name, raw in CONTENT.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(raw), 0o7777
            pack.addfile(info, io.BytesIO(raw))
    return path


def pack_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("set/nothing/", b"")
        for name, raw in CONTENT.items():
            pack.writestr(name, raw)
    return path


@pytest.fixture(params=["tar", "tar.gz", "zip"])
def archive(request, tmp_path):
    path = tmp_path / f"set.{request.param}"
    if request.param == "zip":
        return pack_zip(path)
    return tar(path, "w:gz" if request.param == "tar.gz" else "w")


def test_files_arrive_and_nothing_else(archive, tmp_path) -> None:
    into = tmp_path / "into"
    assert extract(archive, into) == (into / "set",)
    found = {str(p.relative_to(into)): p.read_bytes() for p in into.rglob("*") if p.is_file()}
    assert found == CONTENT
    assert (into / "set" / "nothing").is_dir()
    assert not (into / "set" / "a.txt").stat().st_mode & 0o7111
    assert [p.name for p in into.iterdir()] == ["set"]


def test_existing_results_are_not_overwritten(archive, tmp_path) -> None:
    into = tmp_path / "into"
    extract(archive, into)
    (into / "set" / "a.txt").write_bytes(b"mine")
    with pytest.raises(DataError, match="already exists"):
        extract(archive, into)
    assert (into / "set" / "a.txt").read_bytes() == b"mine"
    assert [p.name for p in into.iterdir()] == ["set"]


@pytest.mark.parametrize(
    ("limits", "match"),
    [
        (Limits(members=3), "more than 3 members"),
        (Limits(file_bytes=2999), r"b\.bin' of 3000 bytes"),
        (Limits(total_bytes=3004), r"b\.bin' of 3000 bytes"),
    ],
)
def test_limits(archive, tmp_path, limits, match) -> None:
    with pytest.raises(DataError, match=match):
        extract(archive, tmp_path / "into", limits)
    assert list((tmp_path / "into").iterdir()) == []


def test_exact_limits_are_allowed(archive, tmp_path) -> None:
    extract(archive, tmp_path / "into", Limits(members=4, file_bytes=3000, total_bytes=3005))


def test_a_broken_link_counts_as_existing(archive, tmp_path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    (into / "set").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match="set already exists; move it away first"):
        extract(archive, into)
    assert [p.name for p in into.iterdir()] == ["set"]
