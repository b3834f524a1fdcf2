"""Invalid settings are refused before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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


@pytest.mark.parametrize(
    ("call", "fields", "message"),
    [
        (label_correction, {"validation": 0.1}, "validation is 0.1; it splits examples by label"),
        (label_correction, {"fold": "1/5"}, "fold is 1/5; it splits examples by label"),
        (label_correction, {"noise": "background", "rate": 0.2}, "noise is background, which changes the images"),
        (lambda run, root: forgetting(run, root), {}, "on a validation part"),
        (forgetting, {"validation": 0.1, "dropout": 0.5}, "forgetting searches for it"),
        (
            lambda run, root: forgetting(run, root, rates=[1.0]),
            {"validation": 0.1},
            "dropout rate of forgetting is 1",
        ),
        (
            lambda run, root: forgetting(run, root, rates=[0.2, 0.2]),
            {"validation": 0.1},
            "one or more different",
        ),
        (curriculum, {"weighting": "DM(0.5, 8)"}, r"weighting must be CCE, not DM\(0.5, 8\)"),
        (curriculum, {"taper": 0.0}, "taper must be 'auto', not 0"),
        (curriculum, {"sampler": "balanced"}, "sampler must be 'shuffled'"),
        (lambda run, root: curriculum(run, root, start=0.0), {}, "Curriculum's start is 0"),
        (lambda run, root: curriculum(run, root, start=0.5, end=0.4), {}, "Curriculum's start is 0.5"),
        (lambda run, root: curriculum(run, root, pacing="lineal"), {}, "did you mean 'linear'"),
        (anchor_forward, {"weighting": None, "loss": "Brier"}, "weighting must be CCE, not Brier"),
        (anchor_forward, {"fold": "1/5"}, "fold is 1/5; anchor_forward holds out"),
        (lambda run, root: anchor_forward(run, root, correction="Sideways"), {}, "correction is 'Sideways'"),
        (lambda run, root: anchor_forward(run, root, percentile=0), {}, "percentile is 0"),
        (lambda run, root: joint_optimisation(run, root), {}, "begin is 70, but the run has 2 epochs"),
        (lambda run, root: joint_optimisation(run, root, begin=1, prior="mine"), {}, "prior is 'mine'"),
        (lambda run, root: joint_optimisation(run, root, begin=1, alpha=-1), {}, "alpha is -1"),
    ],
)
def test_refused(
    call: Callable[[Run, Path], Path], fields: dict[str, object], message: str, digits: Run, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        call(replace(digits, **fields), tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("rows.jsonl"))


@pytest.mark.parametrize(
    ("array", "method", "message"),
    [
        (np.full((1200, 10), 0.1), "SoftLabels('FILE', hash='000000000000')", "sha256 is .* expected 000000000000"),
        (np.full((1200, 9), 1 / 9), "SoftLabels('FILE')", r"shape \(1200, 9\); expected \(1200, 10\)"),
        (np.full((1200, 10), 0.2), "SoftLabels('FILE')", "row 0 is not a distribution"),
        (np.full(1200, np.nan), "Curriculum('FILE')", r"nan at \[0\]"),
        (np.array(["a"] * 1200), "Curriculum('FILE')", "not a .npy file of numbers"),
    ],
)
def test_invalid_files(array: np.ndarray, method: str, message: str, digits: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "file.npy", array)
    text = method.replace("FILE", (tmp_path / "file.npy").as_posix())
    with pytest.raises(DataError, match=message):
        execute(replace(digits, weighting=None, method=text), tmp_path)


def test_missing_files(digits: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        execute(replace(digits, weighting=None, method="SoftLabels('nowhere.npy')"), tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_journal(tmp_path)
    (tmp_path / "procedure.json").write_text('{"format": 2}')
    with pytest.raises(DataError, match="format is 2; this version reads 1"):
        read_journal(tmp_path)
    (tmp_path / "procedure.json").write_text('{"format": 1, "procedure": "x"}')
    with pytest.raises(DataError, match="run is missing"):
        read_journal(tmp_path)


def test_missing_learned_labels(digits: Run, tmp_path: Path) -> None:
    folder = joint_optimisation(digits, tmp_path, begin=1)
    (folder / "labels.npy").unlink()
    (folder / "procedure.json").unlink()
    with pytest.raises(DataError, match="remove that run to learn the labels again"):
        joint_optimisation(digits, tmp_path, begin=1)


def test_data_changed_between_two_runs_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"

    def write(shift: int) -> None:
        table.write_text("\n".join(["x,y,label", *(f"{(k + shift) % 7},{k % 3},{'ab'[k % 2]}" for k in range(60))]))

    def once(run: Run, root: Path) -> Path:
        if run.noise is not None:
            raise KeyboardInterrupt
        return execute(run, root)

    write(0)
    run = Run(data=str(table), net="linear", weighting="CCE", iterations=4, batch_size=16, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        label_correction(run, tmp_path, run_one=once)
    write(1)
    with pytest.raises(DataError, match=r"mine.csv has .* now: it has changed since"):
        label_correction(run, tmp_path)
