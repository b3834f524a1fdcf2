"""Procedures, unbroken and interrupted: no run is repeated, and all files are identical."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reweigh.lab.procedures import (
    anchor_forward,
    curriculum,
    forgetting,
    joint_optimisation,
    label_correction,
    read_journal,
)
from reweigh.lab.record import list_runs, read_header, summarise
from reweigh.lab.run import Interrupted, execute
from reweigh.lab.spec import Run

Contents = Callable[[Path], dict[str, bytes]]
PROCEDURES: dict[str, tuple[Callable[..., Path], dict[str, Any]]] = {
    "label correction": (label_correction, {}),
    "joint optimisation": (partial(joint_optimisation, begin=1, slots=2), {}),
    "anchor-point T": (anchor_forward, {}),
    "forgetting": (partial(forgetting, rates=(0.2, 0.6)), {"validation": 0.2, "validation_labels": "noisy"}),
    "curriculum": (partial(curriculum, end=0.6), {}),
}


class Stopping:
    """Executes runs, and interrupts once after a number of iterations in total."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, run: Run, root: Path) -> Path:
        def should_stop() -> bool:
            self.left -= 1
            return self.left == 0

        return execute(run, root, should_stop=should_stop)


@pytest.mark.parametrize("name", PROCEDURES)
def test_an_interrupted_procedure_resumes(
    name: str, digits: Run, contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    procedure, fields = PROCEDURES[name]
    run = replace(digits, **fields)
    (tmp_path / "unbroken").mkdir()
    monkeypatch.chdir(tmp_path / "unbroken")  # paths are part of runs, so both roots have the same
    folder = procedure(run, Path("runs"))
    record = read_journal(folder)
    assert record.run == run
    assert record.result is not None
    assert len(record.runs) == 2
    assert all(summarise(Path("runs") / made).state == "done" for _, made in record.runs)
    assert {summary.folder.name for summary in list_runs(Path("runs"))} == {made for _, made in record.runs}
    unbroken = contents(Path("runs"))

    (tmp_path / "broken").mkdir()
    monkeypatch.chdir(tmp_path / "broken")
    for after in (20, 25):  # in the first run, then in the second
        with pytest.raises(Interrupted):
            procedure(run, Path("runs"), run_one=Stopping(after))
        assert read_journal(folder).result is None
    assert procedure(run, Path("runs")) == folder
    assert contents(Path("runs")) == unbroken


def test_a_finished_procedure_does_nothing(digits: Run, contents: Contents, tmp_path: Path) -> None:
    def never(run: Run, root: Path) -> Path:
        raise AssertionError("no run is missing")

    folder = label_correction(digits, tmp_path)
    before = contents(tmp_path)
    assert label_correction(digits, tmp_path, run_one=never) == folder
    assert contents(tmp_path) == before


def test_a_run_is_shared_between_procedures(digits: Run, tmp_path: Path) -> None:
    plain = execute(digits, tmp_path)
    made: list[Run] = []

    def note(run: Run, root: Path) -> Path:
        made.append(run)
        return execute(run, root)

    curriculum(digits, tmp_path, run_one=note)
    label_correction(digits, tmp_path, run_one=note)
    assert [run.folder_name() == plain.name for run in made] == [True, False, True, False]
    assert read_header(plain).run == digits
