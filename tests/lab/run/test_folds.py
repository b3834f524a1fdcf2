"""Folds, threshold sets and margins, which serve to find label errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reweigh.lab.record import read_margins, read_p, read_result
from reweigh.lab.run import Interrupted, Update, execute
from reweigh.lab.run.material import fold_split, gather, threshold_rows
from reweigh.lab.spec import Run
from reweigh.lab.train.model import load_model

DIGITS = Run(
    data="digits",
    net="mlp-16",
    weighting="GCE(0.7)",
    noise="symmetric",
    rate=0.4,
    iterations=30,
    batch_size=50,
    evaluate_every=10,
    record_p=True,
    record_margins=True,
    device="cpu",
)


def test_margins_agree_with_p_and_the_model(tmp_path: Path) -> None:
    folder = execute(DIGITS, tmp_path)
    found, p = read_margins(folder), read_p(folder)
    given = gather(DIGITS).train.labels
    assert found.steps.tolist() == p.steps.tolist() == [10, 20, 30]
    assert found.margins.shape == found.rivals.shape == (1200, 3)
    assert (found.rivals != given[:, None]).all(), "a rival is another class"
    assert (p.p[found.margins < -0.01] <= 0.5).all()
    assert (found.margins[p.p > 0.51] > 0).all()
    row = read_result(folder)["final"]
    predicted = np.where(found.margins[:, -1] > 0, given, found.rivals[:, -1])
    assert (predicted == given).mean() == pytest.approx(row["train_accuracy"], abs=2e-3)
    assert (predicted == gather(DIGITS).clean).mean() == pytest.approx(row["train_accuracy_clean"], abs=2e-3)


@pytest.mark.parametrize("change", [{}, {"fold": "2/3"}, {"threshold_set": 1}], ids=str)
def test_stopping_anywhere_changes_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    run = replace(DIGITS, **change)
    unbroken = execute(run, tmp_path / "unbroken")
    folder = tmp_path / "broken" / run.folder_name()
    for stop in (3, 10, 29):
        done = [0]

        def watch(update: Update, done: list[int] = done) -> None:
            done[0] = update.step

        with pytest.raises(Interrupted):
            execute(run, tmp_path / "broken", watch=watch, should_stop=lambda d=done, s=stop: d[0] >= s)
    execute(run, tmp_path / "broken")
    for name in ("p.f16", "margins.bin", "rows.jsonl"):
        assert (folder / name).read_bytes() == (unbroken / name).read_bytes()


def test_margins_are_recorded_only_on_request(tmp_path: Path) -> None:
    folder = execute(replace(DIGITS, record_margins=False, record_p=False), tmp_path)
    assert read_margins(folder).margins.shape == (1200, 0)
    assert not (folder / "margins.bin").exists()


def test_folds_are_disjoint_complete_and_stratified() -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 7])
    held = [fold_split(labels, f"{k}/5", seed=1)[1] for k in range(1, 6)]
    assert np.sort(np.concatenate(held)).tolist() == list(range(87))
    for kept, out in (fold_split(labels, f"{k}/5", seed=1) for k in range(1, 6)):
        assert not set(kept) & set(out)
        assert np.bincount(labels[out], minlength=3)[:2].tolist() == [10, 6]
    assert fold_split(labels, "1/5", seed=2)[1].tolist() != held[0].tolist()
    with pytest.raises(ValueError, match="fold is 1/9: there are only 3 training examples"):
        fold_split(np.arange(3), "1/9", seed=0)


def test_a_fold_is_held_out_with_its_labels_as_given() -> None:
    whole, part = gather(DIGITS), gather(replace(DIGITS, fold="1/4"))
    kept, held = fold_split(whole.train.labels, "1/4", DIGITS.seed)
    assert part.validation is not None
    np.testing.assert_array_equal(part.validation.labels, whole.train.labels[held])
    np.testing.assert_array_equal(part.train.labels, whole.train.labels[kept])
    np.testing.assert_array_equal(part.rows, kept)


def test_the_header_has_the_rows_of_a_fold(tmp_path: Path) -> None:
    result = read_result(execute(replace(DIGITS, fold="1/2"), tmp_path))
    assert result is not None
    assert result["kept"]["by"] == "validation"
    assert result["final"]["validation_accuracy"] < 0.7, "its labels are as noisy as those trained on"


def test_threshold_samples_are_a_class_of_their_own(tmp_path: Path) -> None:
    run = replace(DIGITS, threshold_set=0)
    whole, part = gather(DIGITS), gather(run)
    rows = threshold_rows(1200, 10, 0, DIGITS.seed)
    assert len(rows) == 1200 // 11
    assert not set(rows) & set(threshold_rows(1200, 10, 1, DIGITS.seed))
    assert part.dataset.class_names[-1] == "(threshold sample)"
    assert set(part.train.labels[rows]) == {10}
    others = np.setdiff1d(np.arange(1200), rows)
    np.testing.assert_array_equal(part.train.labels[others], whole.train.labels[others])
    _, card = load_model(execute(run, tmp_path) / "model")
    assert len(card.class_names) == 11
    with pytest.raises(ValueError, match="threshold_set is 11: 1200 examples of 10 classes have sets 0 to 10"):
        gather(replace(DIGITS, threshold_set=11))
