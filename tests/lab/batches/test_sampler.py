from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.lab.batches.sampler import Balanced, Cyclic, Order, Shuffled, Subset

LABELS = np.random.default_rng(0).integers(0, 10, 300)
ORDERS: list[Order] = [
    Shuffled(300, 32, seed=1),
    Shuffled(10, 32, seed=1),
    Cyclic(300, 32, seed=1),
    Balanced(LABELS, 32, seed=1),
    Balanced(np.arange(300) % 100, 64, seed=1),
    Subset(range(100, 400), Shuffled(300, 32, seed=1)),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_a_step_is_the_same_in_whatever_range_it_is_asked(order: Order) -> None:
    whole = order(range(60))
    assert whole.shape == (60, order.batch_size)
    assert whole.dtype == torch.int64
    assert torch.equal(whole[17:44], order(range(17, 44)))
    for step in (0, 9, 31, 59):
        assert torch.equal(whole[step], order(range(step, step + 1))[0])
    assert order(range(5, 5)).shape == (0, order.batch_size)


@pytest.mark.parametrize("kind", [Shuffled, Cyclic])
def test_seeds_differ_and_repeat(kind: type[Shuffled] | type[Cyclic]) -> None:
    a, b, c = kind(100, 10, 0), kind(100, 10, 0), kind(100, 10, 1)
    assert torch.equal(a(range(30)), b(range(30)))
    assert not torch.equal(a(range(30)), c(range(30)))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), batch_size=st.integers(1, 40), seed=st.integers(0, 3))
def test_an_epoch_visits_each_example_at_most_once(n: int, batch_size: int, seed: int) -> None:
    per_epoch = max(1, n // batch_size)
    rows = Shuffled(n, batch_size, seed)(range(3 * per_epoch)).view(3, -1)
    for epoch in rows:
        counts = torch.bincount(epoch, minlength=n)
        assert len(counts) == n
        if n >= batch_size:
            assert counts.max() <= 1
            assert counts.sum() == n // batch_size * batch_size
        else:
            assert counts.max() - counts.min() <= 1


def test_epochs_are_in_different_orders_and_leave_out_different_examples() -> None:
    rows = Shuffled(103, 10, seed=0)(range(60)).view(6, -1)
    left_out = [frozenset(range(103)) - set(epoch.tolist()) for epoch in rows]
    assert all(len(out) == 3 for out in left_out)
    assert len(set(left_out)) > 1
    assert not torch.equal(rows[0], rows[1])


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), batch_size=st.integers(1, 40), start=st.integers(0, 50))
def test_cyclic_reads_one_permutation_round_and_round(n: int, batch_size: int, start: int) -> None:
    stream = Cyclic(n, batch_size, seed=2)(range(start + 10)).flatten()
    first = stream[:n] if len(stream) >= n else None
    if first is not None:
        assert first.sort().values.tolist() == list(range(n))
        repeated = first.repeat(len(stream) // n + 1)[: len(stream)]
        assert torch.equal(stream, repeated)


def test_the_authors_batches_are_32_classes_of_8() -> None:
    labels = np.random.default_rng(3).integers(0, 100, 5000)
    rows = Balanced(labels, 256, seed=0)(range(75)).numpy()
    appearances: Counter[int] = Counter()
    for row in rows:
        counts = Counter(labels[row].tolist())
        assert len(counts) == 32
        assert set(counts.values()) == {8}
        assert len(set(row.tolist())) == 256
        appearances.update(counts.keys())
    # 75 batches are three rounds of 25, in each of which 100 classes come 8 times.
    assert set(appearances.values()) == {24}
    together = [frozenset(labels[row].tolist()) for row in rows]
    assert together[0] != together[25]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=9).filter(any),
    batch_size=st.integers(1, 40),
    classes=st.integers(1, 10),
)
def test_balanced_shares_equally(sizes: list[int], batch_size: int, classes: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    present = sum(size > 0 for size in sizes)
    order = Balanced(labels, batch_size, seed=0, classes=classes)
    rows = order(range(2 * order.round)).numpy()
    appearances: Counter[int] = Counter()
    for row in rows:
        counts = Counter(labels[row].tolist())
        assert len(counts) == min(classes, present, batch_size)
        assert max(counts.values()) - min(counts.values()) <= 1
        appearances.update(counts.keys())
        for label, count in counts.items():
            times = Counter(row[labels[row] == label].tolist()).values()
            # An image comes again in a batch only when its class has too few, and then as evenly as possible.
            if sizes[label] >= count:
                assert max(times) == 1
            else:
                assert len(times) == sizes[label]
                assert max(times) - min(times) <= 1
    assert len(set(appearances.values())) == 1
    assert len(appearances) == present


def test_a_class_visits_its_images_at_most_once_an_epoch() -> None:
    labels = np.repeat([0, 1], [21, 50])
    rows = Balanced(labels, 8, seed=0)(range(5)).numpy()  # 4 of each: class 0 has 5 visits an epoch
    zeros = rows[labels[rows] == 0]
    assert len(set(zeros.tolist())) == len(zeros) == 20


def test_what_divides_badly_is_shared_fairly_over_time() -> None:
    labels = np.arange(3000) % 10
    rows = Balanced(labels, 256, seed=0)(range(200)).numpy()
    totals = np.bincount(labels[rows].ravel())
    assert np.abs(totals - 5120).max() < 60  # 25 or 26 a batch


def test_subset_maps_positions() -> None:
    order = Subset([5, 50, 500], Shuffled(3, 3, seed=0))
    assert sorted(order(range(1))[0].tolist()) == [5, 50, 500]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shuffled(0, 4, 0), "n must be 1 or more, not 0"),
        (lambda: Cyclic(4, 0, 0), "batch_size must be 1 or more, not 0"),
        (lambda: Balanced([], 4, 0), "n must be 1 or more, not 0"),
        (lambda: Balanced([0, 1], 4, 0, classes=0), "classes must be 1 or more, not 0"),
        (lambda: Balanced(np.array([0.5]), 4, 0), "labels must be one-dimensional integers"),
    ],
)
def test_refusals(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
