from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import DataError
from reweigh.lab.data import Part, table
from reweigh.lab.data.split import assemble, stratified_split, validation_split

label_vectors = st.lists(st.integers(0, 6), min_size=1, max_size=200).map(lambda v: np.array(v, dtype=np.int64))


@given(label_vectors, st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_split_is_a_partition_with_every_class_in_training(labels, fraction, seed) -> None:
    train, held = stratified_split(labels, fraction, seed)
    assert sorted([*train, *held]) == list(range(len(labels)))
    assert set(labels[train]) == set(labels)
    assert (np.diff(train) > 0).all()
    assert (np.diff(held) > 0).all()
    for value, count in zip(*np.unique(labels, return_counts=True), strict=True):
        assert abs((labels[held] == value).sum() - fraction * count) <= 1


@given(label_vectors)
def test_the_number_held_out_is_exact_unless_a_class_would_vanish(labels) -> None:
    _, held = stratified_split(labels, 0.2)
    wanted = round(0.2 * len(labels))
    assert len(held) <= wanted
    if np.unique(labels, return_counts=True)[1].min() > 1:
        assert len(held) == wanted


def test_a_single_example_stays_in_training() -> None:
    _, held = stratified_split(np.array([0] * 9 + [1]), 0.5)
    assert 9 not in held


def test_seed_and_purpose_decide_the_draw() -> None:
    labels = np.arange(1000) % 10
    same = stratified_split(labels, seed=3)[1]
    assert (stratified_split(labels, seed=3)[1] == same).all()
    assert not np.array_equal(stratified_split(labels, seed=4)[1], same)
    assert not np.array_equal(validation_split(labels, seed=3)[1], same)


def test_the_papers_validation_split() -> None:
    labels = np.repeat(np.arange(10), 500)
    train, validation = validation_split(labels)
    assert np.bincount(labels[train]).tolist() == [400] * 10
    assert np.bincount(labels[validation]).tolist() == [100] * 10


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_fractions_outside_are_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        stratified_split(np.array([0, 1]), fraction)


def test_data_without_a_test_part_get_a_noisy_holdout() -> None:
    part = Part(tuple("abcdefghij"), np.arange(10) % 2)
    data = assemble("mine", part, None, ("x", "y"))
    assert data.holdout == "noisy hold-out"
    assert (len(data.train), len(data.test)) == (8, 2)
    assert sorted(data.train.inputs + data.test.inputs) == list("abcdefghij")
    assert assemble("mine", part, part, ("x", "y")).holdout == "test"


def test_too_few_examples_to_hold_out_are_refused() -> None:
    with pytest.raises(DataError, match="too few"):
        assemble("mine", Part(("a", "b"), np.array([0, 1])), None, ("x", "y"))


def test_measurements_as_labels_are_refused(tmp_path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("rooms,label\n" + "".join(f"{k},{100 * k + 0.5}\n" for k in range(50)))
    with pytest.raises(DataError, match=r"prices\.csv: all 50 labels are different; expected class labels"):
        table.load(path)
