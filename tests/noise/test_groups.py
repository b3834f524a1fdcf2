"""The four readings of asymmetric CIFAR-100, on generated and on the real labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import noise

GROUPS = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 5))
LABELS = np.random.default_rng(2).permutation(np.repeat(np.arange(100), 10))


def affected(counts: np.ndarray) -> np.ndarray:
    return np.flatnonzero(counts.sum(axis=1) != counts.diagonal())


@settings(max_examples=30)
@given(seed=st.integers(0, 2**40))
def test_twenty_disjoint_pairs_inside_their_groups(seed: int) -> None:
    targets = noise.random_pairs(GROUPS, seed)
    moved = np.flatnonzero(targets != np.arange(100))
    assert len(moved) == 40
    assert (targets[targets] == np.arange(100)).all(), "pairs are exchanged, so disjoint"
    assert (GROUPS[targets] == GROUPS).all()
    assert (np.bincount(GROUPS[moved], minlength=20) == 2).all()


@settings(max_examples=30)
@given(seed=st.integers(0, 2**40), rate=st.floats(0, 1))
def test_the_matrix_of_pairs_is_symmetric_and_stochastic(seed: int, rate: float) -> None:
    matrix = noise.map_matrix(noise.random_pairs(GROUPS, seed), rate)
    assert (matrix == matrix.T).all()
    assert matrix.sum(axis=1) == pytest.approx(1, abs=1e-15)
    assert (matrix >= 0).all()


def test_every_pair_of_a_group_is_drawn() -> None:
    pairs = {tuple(np.flatnonzero(noise.random_pairs([0] * 5, s) != np.arange(5))) for s in range(200)}
    assert len(pairs) == 10


@pytest.mark.parametrize("rate", [0.2, 0.3, 0.4])
def test_superclass_pairs_flip_both_ways_and_exactly(rate: float) -> None:
    counts = noise.superclass_pair(LABELS, rate, GROUPS).counts
    classes = affected(counts)
    assert len(classes) == 40
    off = counts - np.diag(counts.diagonal())
    assert (off == off.T).all()
    assert set(off[off > 0]) == {round(10 * rate)}


def test_the_pairs_do_not_depend_on_the_rate() -> None:
    low, high = (noise.superclass_pair(LABELS, rate, GROUPS, seed=9) for rate in (0.2, 0.6))
    assert (affected(low.counts) == affected(high.counts)).all()
    assert (high.labels[low.flipped] == low.labels[low.flipped]).all()


def test_block_pairs_stay_in_blocks_of_consecutive_ids() -> None:
    result = noise.sl_block_pair(LABELS, 1.0)
    assert len(affected(result.counts)) == 40
    assert (result.labels // 5 == LABELS // 5).all()


@pytest.mark.parametrize("block", [2, 4, 10])
def test_blocks_may_have_other_sizes(block: int) -> None:
    for result in (noise.block_cycle(LABELS, 1.0, block=block), noise.sl_block_pair(LABELS, 1.0, block=block)):
        assert (result.labels // block == LABELS // block).all()
        assert f"block={block}" in result.kind


def test_cycles_visit_every_class_of_their_group() -> None:
    for groups in (GROUPS, noise.blocks(100)):
        targets = noise.cycle(groups)
        there = np.arange(100)
        for step in range(1, 6):
            there = targets[there]
            assert (groups[there] == groups).all()
            assert (there == np.arange(100)).all() == (step == 5)


def test_block_cycle_is_the_next_id() -> None:
    assert noise.cycle(noise.blocks(10)).tolist() == [1, 2, 3, 4, 0, 6, 7, 8, 9, 5]


@pytest.mark.parametrize("make", [noise.superclass_pair, noise.superclass_cycle])
def test_groups_are_checked(make) -> None:
    with pytest.raises(ValueError, match="group 2 has only class 4"):
        make([0, 1, 2, 3, 4], 0.2, [0, 0, 1, 1, 2])
    with pytest.raises(ValueError, match=r"labels\[4\] is 4; expected 0 to 3"):
        make([0, 1, 2, 3, 4], 0.2, [0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"groups\[1\] is -1"):
        make([0, 1], 0.2, [0, -1])
    with pytest.raises(TypeError, match="groups has dtype"):
        make([0, 1], 0.2, ["a", "a"])


@pytest.mark.parametrize(("classes", "block"), [(99, 5), (100, 1), (100, 0), (100, 3)])
def test_blocks_must_divide_the_classes(classes: int, block: int) -> None:
    with pytest.raises(ValueError, match=f"{classes} classes do not divide into blocks of {block}"):
        noise.blocks(classes, block)


@pytest.mark.parametrize(("rate", "wrong"), [(0.2, 4000), (0.3, 6000), (0.4, 8000)])
def test_real_superclass_pairs(cifar100, rate: float, wrong: int) -> None:
    result = noise.superclass_pair(cifar100.labels, rate, cifar100.groups)
    assert result.flipped.sum() == wrong
    assert result.measured == wrong / 50_000
    classes = affected(result.counts)
    assert len(classes) == 40
    assert (np.bincount(cifar100.groups[classes]) == 2).all()
    assert (cifar100.groups[result.labels] == cifar100.groups[cifar100.labels]).all()


@pytest.mark.parametrize(("rate", "wrong"), [(0.2, 10_000), (0.3, 15_000), (0.4, 20_000)])
def test_real_cycles(cifar100, rate: float, wrong: int) -> None:
    inside = noise.superclass_cycle(cifar100.labels, rate, cifar100.groups)
    across = noise.block_cycle(cifar100.labels, rate)
    assert inside.flipped.sum() == across.flipped.sum() == wrong
    assert (cifar100.groups[inside.labels] == cifar100.groups[cifar100.labels]).all()
    assert (across.labels // 5 == cifar100.labels // 5).all()


@pytest.mark.parametrize("rate", [0.2, 0.3, 0.4])
def test_real_block_pairs_scatter_as_a_binomial(cifar100, rate: float) -> None:
    wrong = [noise.sl_block_pair(cifar100.labels, rate, seed=seed).flipped.sum() for seed in range(8)]
    deviation = (20_000 * rate * (1 - rate)) ** 0.5
    assert len(set(wrong)) > 1
    assert all(abs(count - 20_000 * rate) < 4 * deviation for count in wrong)
