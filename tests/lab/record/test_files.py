"""Atomic writes and appends, on full disks and in read-only folders; locks."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reweigh.errors import DataError
from reweigh.lab.record import RecordError
from reweigh.lab.record.files import (
    Lock,
    append_bytes,
    jsonable,
    make_folder,
    read_json,
    replace_file,
    sha256_of,
    truncate,
    write_json,
)
from reweigh.lab.record.rows import scan_rows

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="/dev/full is a Linux device")
needs_flock = pytest.mark.skipif(sys.platform == "win32", reason="no flock on Windows")


def failing(code: int) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_replacing_is_atomic(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": [1, 2]})
    assert read_json(path) == {"a": [1, 2]}
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", ["{", '{"a": ' * 100_000, "\x00"])
def test_what_is_not_json_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"a\.json: not JSON"):
        read_json(path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(code))
        with pytest.raises(RecordError, match=r"cannot write .*a\.json: .*; the old content is unchanged") as caught:
            write_json(path, {"a": 2})
    assert caught.value.errno == code
    assert os.strerror(code) in str(caught.value)
    assert read_json(path) == {"a": 1}
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


@needs_full
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    monkeypatch.setattr("secrets.token_hex", lambda count: "0")
    (tmp_path / f"a.json.{os.getpid()}-0.part").symlink_to(FULL)
    with pytest.raises(RecordError, match="No space left on device"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    write_json(path, {"a": 3})
    assert read_json(path) == {"a": 3}


@pytest.mark.parametrize("folder", [".", "..", "/", "there", "there/.."])
def test_a_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    path = Path(folder)
    with pytest.raises(
        RecordError, match=re.escape(f"cannot write {path}: Is a directory; the old content is unchanged")
    ):
        replace_file(path, lambda file: file.write(b"new"))
    assert [item.name for item in tmp_path.iterdir()] == ["there"]


def test_many_may_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_json(path, {"number": [number] * 1000}), range(64)))
    assert len(set(read_json(path)["number"])) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_an_error_of_the_writer_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def write(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(path, write)
    assert list(tmp_path.iterdir()) == []


def test_appending_to_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RecordError, match=r"cannot append to .*the old content is unchanged") as caught:
        append_bytes(tmp_path / "rows", b"x" * 10)
    assert caught.value.errno == errno.ENOSPC


def test_a_partial_append_is_removed(tmp_path: Path) -> None:
    """A limit on the file's size makes the kernel write a part of the line, and then refuse."""
    pytest.importorskip("resource")
    path = tmp_path / "rows"
    append_bytes(path, b"first\n")
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from reweigh.lab.record.files import append_bytes, RecordError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: append_bytes(Path(sys.argv[1]), b'x' * 1000)\n"
        "except RecordError as error: sys.exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == 7
    assert path.read_bytes() == b"first\n"


def test_an_append_with_a_failed_fsync_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    append_bytes(path, b"first\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(RecordError):
            append_bytes(path, b"second\n")
    assert path.read_bytes() == b"first\n"
    append_bytes(path, b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        for action in (
            lambda: write_json(tmp_path / "a", {}),
            lambda: append_bytes(tmp_path / "b", b""),
            lambda: Lock(tmp_path),
        ):
            with pytest.raises(RecordError, match="Permission denied"):
                action()
    finally:
        tmp_path.chmod(0o700)


def test_folders_that_cannot_be_created_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"cannot create the folder .*file"):
        make_folder(tmp_path / "file" / "run")


def test_truncating(tmp_path: Path) -> None:
    path = tmp_path / "a"
    truncate(path, 0)
    path.write_bytes(b"12345")
    truncate(path, 9)
    assert path.read_bytes() == b"12345"
    truncate(path, 2)
    assert path.read_bytes() == b"12"


def test_conversion_to_json_types() -> None:
    given = {
        "nan": float("nan"), "inf": np.float64("-inf"), "f": np.float32(0.5), "i": np.int64(3), "b": np.bool_(True),
        "array": np.array([1.0, np.nan]), "tensor": torch.tensor([[1, 2]]), "none": None, 5: ("x",),
    }  # fmt: skip
    assert jsonable(given) == {
        "nan": None, "inf": None, "f": 0.5, "i": 3, "b": True,
        "array": [1.0, None], "tensor": [[1, 2]], "none": None, "5": ["x"],
    }  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"nul"])
def test_bad_json_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.json: "):
        read_json(tmp_path / "a.json")
    with pytest.raises(DataError, match=r"b\.json: cannot be read"):
        read_json(tmp_path / "b.json")


@needs_flock
def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Lock(tmp_path):
        with pytest.raises(RecordError, match=f"is being written by process {os.getpid()}"):
            Lock(tmp_path)
        script = (
            "import sys; from pathlib import Path; from reweigh.lab.record.files import Lock; Lock(Path(sys.argv[1]))"
        )
        other = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], check=False, capture_output=True, text=True
        )
        assert other.returncode == 1
        assert "is being written by process" in other.stderr
    Lock(tmp_path).close()


@needs_flock
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from reweigh.lab.record.files import Lock\n"
        "lock = Lock(Path(sys.argv[1])); print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"locked\n"
    with pytest.raises(RecordError):
        Lock(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    Lock(tmp_path).close()


@needs_flock
def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A data loader's worker may outlive its killed parent by seconds."""
    lock = Lock(tmp_path)
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    worker.start()
    try:
        lock.close()
        for _ in range(100):  # the child gives it up as soon as it runs
            try:
                Lock(tmp_path).close()
                break
            except RecordError:
                time.sleep(0.05)
        else:
            pytest.fail("the worker kept the lock")
        assert worker.is_alive()
    finally:
        worker.kill()
        worker.join()


def test_a_later_write_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path, others = tmp_path / "a[1].csv", [tmp_path / "b.csv.7-00aa.part", tmp_path / "a[1].csv.part"]
    old, young = tmp_path / "a[1].csv.7-00aa.part", tmp_path / "a[1].csv.8-00bb.part"
    for file in (old, old.with_name(f"{old.name}-journal"), young, *others):
        file.touch()
        if file != young:
            os.utime(file, (time.time() - 2 * 86400,) * 2)
    replace_file(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == sorted([path, young, *others])


@pytest.mark.parametrize("value", [{}, {"a": [1, 2], "text": "\u00e9"}, {"digest": "its own"}])
def test_every_flipped_bit_of_json_is_noticed(tmp_path: Path, value: dict[str, object]) -> None:
    path = tmp_path / "a.json"
    write_json(path, value)
    assert read_json(path) == {name: item for name, item in value.items() if name != "digest"}
    content = path.read_bytes()
    for place, bit in itertools.product(range(len(content)), range(8)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        with pytest.raises(DataError, match=r"a\.json"):
            read_json(path)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes as files")
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_links_and_pipes_are_refused_without_being_opened(tmp_path: Path, kind: str) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    if kind == "link":
        target.write_bytes(b"{}\n")
    for read in (read_json, sha256_of, scan_rows):
        with pytest.raises(DataError, match=r"file: cannot be read \(not a regular file\)"):
            read(path)
    with pytest.raises(RecordError, match="not a regular file"):
        append_bytes(path, b"more")
    if kind != "dangling link":
        with pytest.raises(RecordError, match="not a regular file"):
            truncate(path, -1)
    path.rename(tmp_path / ".lock")
    with pytest.raises(RecordError, match="not a regular file"):
        Lock(tmp_path)
    assert not target.exists() or target.read_bytes() == b"{}\n"
