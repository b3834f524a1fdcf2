"""Imbalanced subsets: counts, order and seeds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh import imbalance
from reweigh.errors import DataError

IMDB = np.repeat([1, 0], 12_500)
TEN = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))


@pytest.mark.parametrize(("ratio", "negative"), [(10, 1250), (50, 250), (1, 12_500)])
def test_imdb_ratios(ratio: int, negative: int) -> None:
    subset = imbalance.ratio(IMDB, ratio, minority=0)
    assert subset.counts.tolist() == [negative, 12_500]
    assert len(subset.indices) == 12_500 + negative


def test_several_minorities() -> None:
    assert imbalance.ratio(TEN, 5, minority=(0, 3)).counts.tolist() == [100, 500, 500, 100] + [500] * 6


def test_long_tail_reproduces_published_counts() -> None:
    """CIFAR-10-LT and CIFAR-100-LT at imbalance 100 have 12,406 and 10,847 images."""
    ten = imbalance.long_tail(np.repeat(np.arange(10), 5000), 100)
    assert ten.counts.tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    hundred = imbalance.long_tail(np.repeat(np.arange(100), 500), 100)
    assert hundred.counts.sum() == 10_847
    assert (hundred.counts[0], hundred.counts[-1]) == (500, 5)


def test_step() -> None:
    assert imbalance.step(TEN, 10).counts.tolist() == [500] * 5 + [50] * 5
    assert imbalance.step(TEN, 100, fraction=0.2).counts.tolist() == [500] * 8 + [5] * 2
    assert imbalance.step(TEN, 10, fraction=0).counts.tolist() == [500] * 10


MAKERS = {
    "ratio": lambda labels, factor, seed: imbalance.ratio(labels, factor, 0, seed, num_classes=3),
    "long_tail": lambda labels, factor, seed: imbalance.long_tail(labels, factor, seed, num_classes=3),
    "step": lambda labels, factor, seed: imbalance.step(labels, factor, 0.5, seed, num_classes=3),
}
each_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@each_kind
@given(
    order=st.permutations([0] * 20 + [1] * 20 + [2] * 20),
    factor=st.floats(1, 20),
    seed=st.integers(0, 2**40),
)
def test_indices_are_sorted_unique_and_counted(make, order: list[int], factor: float, seed: int) -> None:
    labels = np.array(order)
    subset = make(labels, factor, seed)
    assert (np.diff(subset.indices) > 0).all()
    assert subset.indices.dtype == subset.counts.dtype == np.int64
    assert (np.bincount(labels[subset.indices], minlength=3) == subset.counts).all()
    assert subset.counts.max() == 20
    assert subset.counts.min() >= 1
    assert subset.seed == seed
    assert subset.hash == hashlib.sha256(subset.indices.astype("<i8").tobytes()).hexdigest()
    assert make(labels, factor, seed).hash == subset.hash


@each_kind
def test_a_stronger_imbalance_keeps_a_subset(make) -> None:
    labels = np.arange(300) % 3
    weak, strong = make(labels, 2, 5), make(labels, 10, 5)
    assert set(strong.indices) < set(weak.indices)
    assert make(labels, 10, 6).hash != strong.hash


@each_kind
def test_a_generator_is_accepted(make) -> None:
    labels = np.arange(300) % 3
    first, second = (make(labels, 5, np.random.default_rng(1)) for _ in range(2))
    assert first.hash == second.hash
    assert first.seed is None


@each_kind
@pytest.mark.parametrize("factor", [0.5, -1, float("nan"), float("inf")])
def test_factors_below_1_raise(make, factor: float) -> None:
    with pytest.raises(ValueError, match="expected 1 or more"):
        make(np.arange(30) % 3, factor, 0)


@each_kind
def test_an_empty_class_raises(make) -> None:
    with pytest.raises(ValueError, match="leaves no example of class"):
        make(np.arange(30) % 3, 11, 0)


@pytest.mark.parametrize("minority", [3, -1, (), (0, 1, 2)])
def test_minority_must_be_some_classes(minority) -> None:
    with pytest.raises(ValueError, match="minority is"):
        imbalance.ratio(np.arange(30) % 3, 2, minority)


def test_a_ratio_that_needs_more_examples_raises() -> None:
    with pytest.raises(ValueError, match="it needs 50 examples of class 0, which has 10"):
        imbalance.ratio([0] * 10 + [1] * 100, 2, 0)


def test_bad_arguments_raise() -> None:
    with pytest.raises(ValueError, match="one class"):
        imbalance.long_tail([0, 0], 2)
    with pytest.raises(ValueError, match=r"fraction is 1\.5"):
        imbalance.step([0, 1], 2, fraction=1.5)


def test_kept_reads_a_mask_file(tmp_path: Path) -> None:
    file = tmp_path / "kept.npy"
    np.save(file, np.array([1, 0, 1, 1], np.uint8))
    subset = imbalance.kept([0, 0, 1, 2], file, num_classes=4)
    assert subset.indices.tolist() == [0, 2, 3]
    assert subset.counts.tolist() == [1, 1, 1, 0]
    assert subset.kind == "kept(file='kept.npy')"
    with pytest.raises(DataError, match=r"kept\.npy: shape \(4,\); expected \(3,\)"):
        imbalance.kept([0, 0, 1], file)
    with pytest.raises(DataError, match="expected 000000000000"):
        imbalance.kept([0, 0, 1, 2], file, hash="000000000000")
    np.save(file, np.array([1, 2]))
    with pytest.raises(DataError, match="record 1: 2; expected 0 or 1"):
        imbalance.kept([0, 1], file)
    np.save(file, np.zeros(2))
    with pytest.raises(DataError, match="all 2 examples are left out"):
        imbalance.kept([0, 1], file)


def test_an_absent_class_stays_absent() -> None:
    assert imbalance.long_tail([0] * 4 + [2] * 4, 2, num_classes=3).counts.tolist() == [4, 0, 2]


def test_repr_contains_the_kind() -> None:
    assert repr(imbalance.ratio(IMDB, 50, 0)).startswith("Subset(ratio(ratio=50.0, minority=(0,)), counts=[250, 12500]")
