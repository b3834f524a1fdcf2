"""A folder of runs, some of which can't be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reweigh.record import Header, list_runs

MakeRun = Callable[..., Path]


def test_listing(tmp_path: Path, make_run: MakeRun, header: Header) -> None:
    assert list_runs(tmp_path / "nowhere") == []
    make_run(tmp_path / "b")
    make_run(tmp_path / "a", done=False)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "run.json").write_text("{")
    (tmp_path / "d").mkdir()
    (tmp_path / ".unpack-x").mkdir()
    (tmp_path / "note.txt").write_text("")
    found = list_runs(tmp_path)
    assert [(item.folder.name, item.state, item.step) for item in found] == [
        ("a", "resumable", 30),
        ("b", "done", 30),
        ("c", "broken", -1),
    ]
    assert found[0].run == header.run
    assert found[1].result == {"final": 0.3, "best": 0.3}
    assert found[2].problem is not None
    assert "run.json" in found[2].problem


def test_a_run_with_arguments_that_there_are_not_is_broken_as_any_other(tmp_path: Path, make_run: MakeRun) -> None:
    """As one of another version may have."""
    path = make_run(tmp_path / "a") / "run.json"
    make_run(tmp_path / "b")
    path.write_text(path.read_text().replace("DM(0.5, 8)", "DM(0.5, b=8)"))
    found = list_runs(tmp_path)
    assert [item.state for item in found] == ["broken", "done"]
    assert found[0].problem == f"{path}: DM(0.5, b=8): DM has no argument 'b'; there are lam, beta"


def test_a_folder_that_may_not_be_looked_into_is_broken(
    tmp_path: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for chmod 000, which does not keep root out."""
    closed = make_run(tmp_path / "a")
    make_run(tmp_path / "b")

    def guarded(call: Callable[..., object]) -> Callable[..., object]:
        def checked(path: Path, *args: object, **options: object) -> object:
            if path.parent == closed:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *args, **options)

        return checked

    monkeypatch.setattr(Path, "stat", guarded(Path.stat))
    monkeypatch.setattr(Path, "read_bytes", guarded(Path.read_bytes))
    found = list_runs(tmp_path)
    assert [(item.folder.name, item.state) for item in found] == [("a", "broken"), ("b", "done")]
    assert found[0].problem == f"{closed / 'run.json'}: cannot be read (Permission denied)"
