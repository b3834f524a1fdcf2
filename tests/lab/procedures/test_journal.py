"""A procedure's folder: checks of its data and of its runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.procedures import (
    anchor_forward,
    curriculum,
    forgetting,
    joint_optimisation,
    label_correction,
    read_journal,
)
from reweigh.lab.run import execute
from reweigh.lab.spec import Run

Procedure = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A short run on the file that `write` creates."""
    write(tmp_path, 1)
    data = str(tmp_path / "mine.npz")
    return Run(data=data, net="linear", weighting="CCE", iterations=12, batch_size=20, evaluate_every=6, device="cpu")


def write(folder: Path, sign: int) -> None:
    """Write labels that are the sign of the first column, or its opposite."""
    x = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    y = (sign * x[:, 0] > 0).astype(np.int64)
    np.savez(folder / "mine.npz", x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:])


def first_only(run: Run, root: Path) -> Path:
    """Execute the first run, and be killed before the second."""
    if list(root.glob("*/result.json")):
        raise KeyboardInterrupt
    return execute(run, root)


def never(run: Run, root: Path) -> Path:
    raise AssertionError("no run is missing")


@pytest.mark.parametrize("procedure", [label_correction, anchor_forward, curriculum])
def test_an_array_of_an_earlier_training_is_not_reused(procedure: Procedure, run: Run, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        procedure(run, root, run_one=first_only)
    (left,) = root.rglob("*.npy")
    before = left.read_bytes()
    write(tmp_path, -1)
    with pytest.raises(DataError, match="remove that run"):
        procedure(run, root)
    (first,) = (path.parent for path in root.glob("*/result.json"))
    shutil.rmtree(first)
    folder = procedure(run, root)
    assert left.read_bytes() != before
    found = read_journal(folder).result
    shutil.rmtree(root)
    assert found == read_journal(procedure(run, root)).result


def test_a_first_run_trained_elsewhere_counts(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        label_correction(run, root, run_one=first_only)
    write(tmp_path, -1)
    shutil.rmtree(root / run.folder_name())
    execute(run, root)
    found = read_journal(label_correction(run, root)).result
    shutil.rmtree(root)
    assert found == read_journal(label_correction(run, root)).result


def test_the_array_of_a_finished_first_run_is_kept(run: Run, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        curriculum(run, tmp_path / "runs", run_one=first_only)
    (left,) = (tmp_path / "runs").rglob("*.npy")
    np.save(left, np.linspace(0, 1, 100))  # no run starts again, so the array must not be made again
    before = left.read_bytes()
    curriculum(run, tmp_path / "runs")
    assert left.read_bytes() == before


def test_a_finished_procedure_is_refused_for_changed_data(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    folder = label_correction(run, root)
    write(tmp_path, -1)
    with pytest.raises(DataError, match=r"mine.npz has .* now: it has changed since"):
        label_correction(run, root, run_one=never)
    write(tmp_path, 1)
    assert label_correction(run, root, run_one=never) == folder
    moved = root.rename(tmp_path / "elsewhere")  # the second run refers to labels.npy by its old path
    assert label_correction(run, moved, run_one=never) == moved / folder.name


def test_a_finished_procedure_finds_moved_data(run: Run, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    shutil.move(tmp_path / "mine.npz", here)
    run = replace(run, data="mine.npz", data_root=str(here))
    folder = label_correction(run, tmp_path / "runs")
    here.rename(there)
    moved = replace(run, data_root=str(there))
    assert label_correction(moved, tmp_path / "runs", run_one=never) == folder


def test_data_are_loaded_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reweigh.lab.procedures import journal

    tried = replace(run, net="mlp-4", validation=0.2)
    folder = forgetting(tried, tmp_path, rates=(0.1, 0.2, 0.3))
    loaded: list[Run] = []
    gather = journal.gather
    monkeypatch.setattr(journal, "gather", lambda run: [loaded.append(run), gather(run)][1])
    assert forgetting(tried, tmp_path, rates=(0.1, 0.2, 0.3), run_one=never) == folder
    assert len(loaded) == 1


def test_a_procedure_without_its_runs_is_not_finished(run: Run, tmp_path: Path) -> None:
    record = read_journal(folder := label_correction(run, tmp_path))
    shutil.rmtree(tmp_path / record.runs[1][1])
    assert label_correction(run, tmp_path) == folder
    assert read_journal(folder) == record
    assert (tmp_path / record.runs[1][1] / "result.json").exists()


@pytest.mark.parametrize(
    "procedure", [label_correction, anchor_forward, curriculum, partial(joint_optimisation, begin=1)]
)
def test_a_too_long_path_is_refused_at_once(procedure: Procedure, run: Run, tmp_path: Path) -> None:
    root = tmp_path.joinpath(*["s" * 60] * 4)
    with pytest.raises(ValueError, match=r"s/.*\.npy: a run has to refer to this file, .* at most 256 characters"):
        procedure(run, root)
    assert not root.exists()


@pytest.mark.parametrize(
    "procedure", [label_correction, anchor_forward, curriculum, partial(joint_optimisation, begin=1)]
)
def test_a_first_run_that_diverged_is_refused(procedure: Procedure, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"runs/.*: training diverged at iteration 6; try a smaller lr"):
        procedure(replace(run, lr=1e30, net="mlp-8"), tmp_path / "runs")


def test_forgetting_never_chooses_a_rate_that_diverged(run: Run, tmp_path: Path) -> None:
    tried = replace(run, net="mlp-4", validation=0.2)

    def diverging(run: Run, root: Path) -> Path:
        folder = execute(run, root)
        result = json.loads((folder / "result.json").read_text())
        if run.dropout == 0.1:
            result["diverged"], result["final"]["validation_accuracy"] = 6, 1.0
        (folder / "result.json").write_text(json.dumps(result))
        return folder

    result = read_journal(forgetting(tried, tmp_path, rates=(0.1, 0.2), run_one=diverging)).result
    assert result is not None
    assert result["dropout"] == 0.2
    assert result["validation"]["0.1"] is None
    with pytest.raises(ValueError, match=r"training diverged at every dropout rate \(0.1\); try a smaller lr"):
        forgetting(tried, tmp_path, rates=(0.1,))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"runs": []}, "has a result, but no runs"),
        ({"runs": [{"role": "first", "folder": 3}]}, r"runs\[0\].folder is 3; expected a string"),
        ({"made": None}, "made is None; expected a JSON object"),
        ({"made": {"labels.npy": 1}}, "made.labels.npy is 1; expected a string"),
        ({"result": 3}, "result is 3; expected a JSON object or null"),
        ({"result": {"retrained": {"final": "high"}}}, "result.retrained.final is 'high'; expected a number or null"),
        ({"result": {"first": {}}}, "result.retrained is missing"),
        ({"settings": None}, "settings is None; expected a JSON object"),
        ({"settings": {"which": {}}}, "{} is not allowed in an expression"),
    ],
)
def test_a_damaged_record_is_refused_by_name(change: dict[str, object], problem: str, run: Run, tmp_path: Path) -> None:
    path = label_correction(run, tmp_path / "runs") / "procedure.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"procedure\.json: {problem}"):
        label_correction(run, tmp_path / "runs", run_one=never)
