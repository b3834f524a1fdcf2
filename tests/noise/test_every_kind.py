"""Properties of every kind of noise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import noise
from reweigh.noise import Corruption

CLASSES = 10
GROUPS = (0, 1, 0, 1, 0, 1, 0, 1, 0, 1)
FEATURES = np.random.default_rng(5).normal(size=(200, 6))
LABELS = np.random.default_rng(6).permutation(np.repeat(np.arange(CLASSES), 20))

Maker = Callable[[np.ndarray, float, "int | np.random.Generator"], Corruption]

EVERY: dict[str, Maker] = {
    "symmetric": lambda y, r, s: noise.symmetric(y, r, seed=s, num_classes=CLASSES),
    "symmetric overall": lambda y, r, s: noise.symmetric(y, r, seed=s, num_classes=CLASSES, count="overall"),
    "symmetric independent": lambda y, r, s: noise.symmetric(y, r, seed=s, num_classes=CLASSES, count="independent"),
    "symmetric including": lambda y, r, s: noise.symmetric(y, r, seed=s, num_classes=CLASSES, include_true=True),
    "pair": lambda y, r, s: noise.pair(y, r, seed=s, num_classes=CLASSES),
    "pair independent": lambda y, r, s: noise.pair(y, r, seed=s, num_classes=CLASSES, count="independent"),
    "asymmetric_cifar10": lambda y, r, s: noise.asymmetric_cifar10(y, r, seed=s),
    "superclass_pair": lambda y, r, s: noise.superclass_pair(y, r, GROUPS, seed=s),
    "sl_block_pair": lambda y, r, s: noise.sl_block_pair(y, r, seed=s, num_classes=CLASSES),
    "superclass_cycle": lambda y, r, s: noise.superclass_cycle(y, r, GROUPS, seed=s),
    "block_cycle": lambda y, r, s: noise.block_cycle(y, r, seed=s, num_classes=CLASSES),
    "transition": lambda y, r, s: noise.transition(y, noise.symmetric_matrix(CLASSES, r), seed=s),
    "instance_dependent": lambda y, r, s: noise.instance_dependent(
        y, r, FEATURES[: np.size(y)], seed=s, num_classes=CLASSES
    ),
}
every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
RATES = st.floats(0, 1)
VECTORS = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=200).map(np.array)


@every
@settings(max_examples=25)
@given(labels=VECTORS, rate=RATES, seed=st.integers(0, 2**40))
def test_rate_and_counts_are_measured(make: Maker, labels: np.ndarray, rate: float, seed: int) -> None:
    before = labels.copy()
    result = make(labels, rate, seed)
    assert (labels == before).all(), "the caller's labels were written to"
    assert (result.clean == labels).all()
    assert result.labels.dtype == result.counts.dtype == np.int64
    assert result.labels.shape == labels.shape
    assert ((result.labels >= 0) & (result.labels < CLASSES)).all()
    assert result.measured == np.mean(result.labels != labels)
    assert (result.flipped == (result.labels != labels)).all()
    recount = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    np.add.at(recount, (labels, result.labels), 1)
    assert (result.counts == recount).all()
    assert result.transition.sum(axis=1) == pytest.approx(1)
    assert result.seed == seed
    assert result.hash == hashlib.sha256(result.labels.astype("<i8").tobytes()).hexdigest()


@every
def test_labels_are_a_function_of_the_seed(make: Maker) -> None:
    first, again, other = make(LABELS, 0.4, 7), make(LABELS, 0.4, 7), make(LABELS, 0.4, 8)
    assert first.labels.tobytes() == again.labels.tobytes()
    assert first.hash == again.hash != other.hash


@every
def test_a_generator_is_accepted(make: Maker) -> None:
    first, again = (make(LABELS, 0.4, np.random.default_rng(3)) for _ in range(2))
    assert first.hash == again.hash
    assert first.seed is None
    rng = np.random.default_rng(3)
    assert make(LABELS, 0.4, rng).hash != make(LABELS, 0.4, rng).hash, "the generator did not move on"


@every
def test_rate_0_changes_nothing(make: Maker) -> None:
    result = make(LABELS, 0.0, 1)
    assert (result.labels == LABELS).all()
    assert result.measured == result.rate == 0


@every
def test_rate_1_flips_all_that_can_flip(make: Maker) -> None:
    result = make(LABELS, 1.0, 1)
    moved = result.counts.sum(axis=1) != result.counts.diagonal()
    if "include_true" in result.kind:
        assert 0.8 < result.measured < 1
    else:
        assert (result.counts.diagonal()[moved] == 0).all()
        assert moved.any()


@every
def test_results_cannot_be_changed(make: Maker) -> None:
    result = make(LABELS, 0.4, 1)
    for array in (result.labels, result.clean, result.counts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@every
@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), float("inf")])
def test_impossible_rates_are_refused(make: Maker, rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        make(LABELS, rate, 0)


@every
@pytest.mark.parametrize("rate", ["0.4", True, None])
def test_rates_are_numbers(make: Maker, rate: float) -> None:
    with pytest.raises(TypeError, match="rate"):
        make(LABELS, rate, 0)


@every
@pytest.mark.parametrize("label", [-1, CLASSES, 2**40])
def test_labels_out_of_range_are_named(make: Maker, label: int) -> None:
    labels = LABELS.copy()
    labels[17] = label
    with pytest.raises(ValueError, match=rf"labels\[17\] is {label}"):
        make(labels, 0.4, 0)


@every
@pytest.mark.parametrize("labels", [np.zeros(0, np.int64), np.zeros((2, 2), np.int64), np.array(3)])
def test_labels_are_a_vector(make: Maker, labels: np.ndarray) -> None:
    with pytest.raises(ValueError, match="labels has shape"):
        make(labels, 0.4, 0)


@every
def test_labels_are_integers(make: Maker) -> None:
    with pytest.raises(TypeError, match="labels has dtype float64"):
        make(LABELS.astype(float), 0.4, 0)


@every
@pytest.mark.parametrize("seed", ["1", 1.5, None, True])
def test_seeds_are_integers(make: Maker, seed: int) -> None:
    with pytest.raises(TypeError, match="seed"):
        make(LABELS, 0.4, seed)
