"""A run that diverged finishes, and its result says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paper.findings import read_finding
from reweigh.errors import DataError
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.record import read_result, read_rows, summarise
from reweigh.lab.run import Update, execute
from reweigh.lab.spec import Run
from reweigh.lab.train.model import load_model

WILD = Run(
    data="digits",
    net="mlp-16",
    weighting="CCE",
    lr=1e12,
    iterations=60,
    batch_size=50,
    evaluate_every=20,
    record_p=True,
    device="cpu",
)


def test_a_run_that_diverged_says_so_and_is_a_result(tmp_path: Path) -> None:
    updates: list[Update] = []
    folder = execute(WILD, tmp_path, watch=updates.append)
    notes = [update.note for update in updates if update.note is not None]
    assert notes == ["training diverged: loss or outputs are not finite at iteration 20; try a smaller lr"]
    assert all(row["loss"] is None for row in read_rows(folder))
    result = read_result(folder)
    assert result is not None
    assert (summarise(folder).state, result["diverged"], result["kept"]["step"]) == ("done", 20, -1)
    assert result["best"] is None, "nothing was looked at before"
    finding = read_finding(folder)
    assert finding is not None
    assert finding.metrics["final"] == pytest.approx(0.1, abs=0.02)
    assert "best" not in finding.metrics
    assert finding.diverged == 20


def test_its_best_was_reached_before(tmp_path: Path) -> None:
    """Left at its start, where chance decides, a net may well be right less often than one that takes all for one."""
    for seed in range(4):
        early = replace(WILD, lr=1e-9, schedule="step(1e25, at=[30])", seed=seed)
        result = read_result(execute(early, tmp_path))
        assert result is not None
        assert (result["diverged"], result["best"]["step"]) == (40, 20)


def test_as_a_trial_it_has_no_score(tmp_path: Path) -> None:
    """It predicts class 0 for everything, which may be right more often than a sound net."""
    found = [read_finding(execute(replace(WILD, lr=lr, validation=0.2), tmp_path)) for lr in (WILD.lr, 0.1)]
    wild, sound = (each.metrics["validation"] for each in found if each is not None)
    assert wild is None
    assert sound is not None


def test_its_model_is_not_taken_for_one(tmp_path: Path) -> None:
    folder = execute(WILD, tmp_path)
    with pytest.raises(DataError, match=r"model.safetensors: the weights are not finite: training diverged"):
        load_model(folder / "model")
    with pytest.raises(DataError, match="there is no best model"):
        load_model(folder / "model", "best")
    with pytest.raises(DataError, match="training diverged"):
        training_probabilities(WILD, folder)


def test_the_best_model_from_before_can_be_used(tmp_path: Path) -> None:
    folder = execute(replace(WILD, lr=0.1, schedule="step(1e13, at=[30])"), tmp_path)
    result = read_result(folder)
    assert result is not None
    assert (result["diverged"], result["kept"]["step"]) == (40, 20)
    load_model(folder / "model", "best")
    with pytest.raises(DataError, match="training diverged"):
        load_model(folder / "model")


def test_a_sound_run_has_not_diverged(tmp_path: Path) -> None:
    updates: list[Update] = []
    result = read_result(execute(replace(WILD, lr=0.1), tmp_path, watch=updates.append))
    assert result is not None
    assert result["diverged"] is None
    assert not [update.note for update in updates if update.note is not None]


def test_classes_no_longer_predicted_are_named(tmp_path: Path) -> None:
    """A narrow density rewards what is learnt first: the net turns to some classes and away from others."""
    usual = replace(WILD, net="mlp-64", noise="symmetric", rate=0.4, lr=0.01, iterations=300, batch_size=128)
    for weighting, is_narrow in (("DM(1, 16)", True), ("CCE", False)):
        folder = execute(replace(usual, weighting=weighting), tmp_path)
        result, means = read_result(folder), read_rows(folder)[-1]["p_by_class"]
        assert result is not None
        names = [str(digit) for digit, mean in enumerate(means) if mean < 0.05]
        assert result["collapsed_classes"] == names
        assert (len(names) > 0) == is_narrow
        finding = read_finding(folder)
        assert finding is not None
        assert finding.metrics["collapsed_classes"] == len(names) / 10
