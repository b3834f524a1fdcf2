"""Results of procedures on digits with 40 % noisy labels and enough iterations to learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from reweigh.lab.cli.app import app
from reweigh.lab.procedures import (
    anchor_forward,
    curriculum,
    forgetting,
    joint_optimisation,
    label_correction,
    read_journal,
)
from reweigh.lab.procedures.anchor_forward import matrix_error
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.record import read_header, read_rows
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run


@pytest.fixture
def longer(digits: Run) -> Run:
    """12 epochs."""
    return replace(digits, iterations=144, evaluate_every=48)


def test_label_correction_removes_wrong_labels(longer: Run, tmp_path: Path) -> None:
    folder = label_correction(longer, tmp_path)
    result, runs = read_journal(folder).result, dict(read_journal(folder).runs)
    assert result is not None
    assert result["first"]["wrong_labels"] == pytest.approx(0.4, abs=0.01)
    assert result["retrained"]["wrong_labels"] < 0.25
    labels = np.load(folder / "labels.npy")
    row = read_rows(tmp_path / runs["first"])[-1]
    assert (labels == gather(longer).clean).mean() == pytest.approx(row["train_accuracy_clean"])
    retrained = read_header(tmp_path / runs["retrained"]).run
    kept = {"noise": longer.noise, "rate": longer.rate}
    assert replace(retrained, **kept) == longer  # type: ignore[arg-type]
    np.testing.assert_array_equal(gather(retrained).train.labels, labels)


def test_without_noise_the_wrong_labels_are_not_known(digits: Run, tmp_path: Path) -> None:
    result = read_journal(label_correction(replace(digits, noise=None, rate=None), tmp_path)).result
    assert result is not None
    assert result["first"]["wrong_labels"] is result["retrained"]["wrong_labels"] is None
    assert 0 <= result["changed"] < 1


def test_anchor_points_of_a_run(longer: Run, tmp_path: Path) -> None:
    folder = anchor_forward(longer, tmp_path)
    result = read_journal(folder).result
    assert result is not None
    T = np.array(result["T"])
    np.testing.assert_allclose(T.sum(1), 1)
    assert (T.argmax(1) == np.arange(10)).all()
    assert result["error"] < 1
    runs = [read_header(tmp_path / made).run for _, made in read_journal(folder).runs]
    assert (runs[0].validation, runs[0].validation_labels, runs[1].validation) == (0.1, "noisy", 0)
    assert runs[1].loss is not None
    assert runs[1].loss.startswith("Forward(T=file(")
    assert len(training_probabilities(runs[0], tmp_path / runs[0].folder_name(), held_out=True)) == 1200


def test_anchor_points_are_not_chosen_by_true_labels(digits: Run, tmp_path: Path) -> None:
    folder = anchor_forward(replace(digits, validation=0.2), tmp_path)
    first, corrected = (read_header(tmp_path / made).run for _, made in read_journal(folder).runs)
    assert (first.validation, first.validation_labels) == (0.2, "noisy")
    assert (corrected.validation, corrected.validation_labels) == (0.2, "clean")


def test_forgetting_names_its_validation_labels(digits: Run, tmp_path: Path) -> None:
    file = tmp_path / "given.npy"
    np.save(file, gather(digits).train.labels)
    run = replace(digits, noise=f"given({file.as_posix()!r}, truth=False)", rate=None, validation=0.2)
    result = read_journal(forgetting(run, tmp_path, rates=(0.0,))).result
    assert result is not None
    assert result["validation_labels"] == "unverified"


def test_wrong_labels_are_difficult(longer: Run, tmp_path: Path) -> None:
    folder = curriculum(longer, tmp_path, end=0.6)
    material, difficulty = gather(longer), np.load(folder / "difficulty.npy")
    wrong = material.train.labels != material.clean
    assert np.median(difficulty[wrong]) > np.quantile(difficulty[~wrong], 0.9)


def test_learned_labels_are_better_than_given_ones(longer: Run, tmp_path: Path) -> None:
    folder = joint_optimisation(longer, tmp_path, begin=6, slots=3, lr=0.002)
    soft, material = np.load(folder / "labels.npy"), gather(longer)
    np.testing.assert_allclose(soft.sum(1), 1, atol=1e-5)
    assert (soft.argmax(1) == material.clean).mean() > 0.75
    first = read_header(tmp_path / read_journal(folder).runs[0][1]).run
    assert (first.lr, first.schedule) == (0.002, "constant")


def test_on_the_command_line(tmp_path: Path) -> None:
    options = "--data digits --net mlp-16 --noise symmetric --rate 0.4 --iterations 24 --batch-size 100 --device cpu"
    command = ["procedure", "curriculum", *options.split(), "--end", "0.6", "--runs", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "paced final" in result.output
    again = CliRunner().invoke(app, [*command, "--json"])
    assert again.exit_code == 0
    assert '"runs": {"first": "digits-mlp-16-CCE' in again.output
    refused = CliRunner().invoke(app, ["procedure", "forgetting", *options.split(), "--runs", str(tmp_path)])
    assert refused.exit_code == 2
    assert "on a validation part" in refused.output


def test_a_class_without_examples_is_no_error(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    y = np.arange(60) % 2
    names = np.array(["a", "b", "never"])
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y, class_names=names)
    run = Run(data=str(tmp_path / "own.npz"), net="linear", weighting="CCE", noise="pair", rate=0.0)
    assert matrix_error(run, np.eye(3)) == 0
