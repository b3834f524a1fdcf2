"""Symmetric noise in its three countings and two conventions, and maps of classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import noise

BALANCED = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))
BIRD, CAT, DEER, DOG, TRUCK = 2, 3, 4, 5, 9
COUNTS = ("per_class", "overall", "independent")
CHI_SQUARE_89_DF = 149.0
"""The upper 1e-4 quantile of chi-square with 89 degrees of freedom, rounded up."""


@settings(max_examples=50)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=100),
    rate=st.floats(0, 1),
    count=st.sampled_from(COUNTS),
    seed=st.integers(0, 1000),
)
def test_excluding_never_draws_the_true_class(labels: list[int], rate: float, count, seed: int) -> None:
    """Then the flipped are exactly the chosen ones, so exact counts are exact."""
    result = noise.symmetric(labels, rate, num_classes=5, count=count, seed=seed)
    sizes = np.bincount(labels, minlength=5)
    flips = result.counts.sum(axis=1) - result.counts.diagonal()
    if count == "per_class":
        assert (flips == np.floor(rate * sizes + 1e-9)).all()
    if count == "overall":
        assert flips.sum() == np.floor(rate * len(labels) + 1e-9)


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6, 0.8])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_including_the_true_class_lowers_the_rate(rate: float, classes: int) -> None:
    labels = np.arange(20_000) % classes
    result = noise.symmetric(labels, rate, num_classes=classes, include_true=True)
    expected = rate * (classes - 1) / classes
    assert result.measured == pytest.approx(expected, abs=0.015)
    assert result.rate == rate


@pytest.mark.parametrize("count", COUNTS)
def test_wrong_labels_are_uniform_over_the_other_classes(count) -> None:
    result = noise.symmetric(BALANCED, 0.6, count=count, seed=11)
    off = result.counts[~np.eye(10, dtype=bool)]
    expected = off.sum() / 90
    assert ((off - expected) ** 2 / expected).sum() < CHI_SQUARE_89_DF


def test_including_is_uniform_over_all_classes() -> None:
    result = noise.symmetric(BALANCED, 1.0, include_true=True, seed=11)
    expected = len(BALANCED) / 100
    assert ((result.counts - expected) ** 2 / expected).sum() < CHI_SQUARE_89_DF + 20


def test_positions_are_uniform_too() -> None:
    """Flips do not pile up at the front of the file."""
    where = np.flatnonzero(noise.symmetric(BALANCED, 0.4, seed=2).flipped)
    per_tenth = np.histogram(where, bins=10, range=(0, len(BALANCED)))[0]
    assert ((per_tenth - 200) ** 2 / 200).sum() < 40


def test_independent_counts_scatter_and_exact_ones_do_not() -> None:
    exact = {noise.symmetric(BALANCED, 0.4, seed=s).measured for s in range(5)}
    loose = {noise.symmetric(BALANCED, 0.4, seed=s, count="independent").measured for s in range(5)}
    assert exact == {0.4}
    assert len(loose) > 1
    assert all(abs(rate - 0.4) < 0.04 for rate in loose)


@pytest.mark.parametrize("count", COUNTS)
def test_a_higher_rate_flips_the_same_examples_and_more(count) -> None:
    low, high = (noise.symmetric(BALANCED, rate, seed=4, count=count) for rate in (0.2, 0.5))
    assert (high.labels[low.flipped] == low.labels[low.flipped]).all()
    assert high.flipped.sum() > low.flipped.sum()


def test_binary_noise_is_the_other_class() -> None:
    labels = np.repeat([1, 0], 1000)
    result = noise.symmetric(labels, 0.4)
    assert result.counts.tolist() == [[600, 400], [400, 600]]


def test_one_class_has_no_other() -> None:
    with pytest.raises(ValueError, match="no other class"):
        noise.symmetric([0, 0], 0.5)
    with pytest.raises(ValueError, match="no next class"):
        noise.pair([0, 0], 0.5)
    assert noise.symmetric([0, 0], 0.0).measured == 0
    assert noise.symmetric([0, 0], 0.5, include_true=True).measured == 0


def test_percentages_are_not_lost_to_binary_rounding() -> None:
    labels = np.zeros(100, dtype=np.int64)
    for percent in range(101):
        wrong = noise.symmetric(labels, percent / 100, num_classes=2).counts[0, 1]
        assert wrong == percent


def test_unknown_counting_is_refused() -> None:
    with pytest.raises(ValueError, match="count is 'exact'"):
        noise.symmetric(BALANCED, 0.4, count="exact")
    with pytest.raises(ValueError, match="count is 'exact'"):
        noise.pair(BALANCED, 0.4, count="exact")


def test_pair_goes_to_the_next_class_and_round() -> None:
    result = noise.pair(BALANCED, 0.45)
    assert result.counts[9, 0] == result.counts[3, 4] == 225
    assert result.measured == 0.45


def test_the_cifar10_map() -> None:
    result = noise.asymmetric_cifar10(BALANCED, 0.4)
    expected = np.diag(np.full(10, 500))
    for true, given_ in ((TRUCK, 1), (BIRD, 0), (DEER, 7), (CAT, DOG), (DOG, CAT)):
        expected[true, true] -= 200
        expected[true, given_] += 200
    assert (result.counts == expected).all()
    assert result.measured == 0.2


def test_cat_and_dog_are_chosen_on_clean_labels() -> None:
    """At rate 1 a second pass over written labels would turn every cat into a cat again."""
    result = noise.asymmetric_cifar10(np.repeat([CAT, DOG], 50), 1.0)
    assert (result.labels == np.repeat([DOG, CAT], 50)).all()


def test_overall_counts_of_a_map_are_of_what_it_moves() -> None:
    result = noise.asymmetric_cifar10(BALANCED, 0.3, count="overall")
    assert result.flipped.sum() == 750


def test_maps_must_stay_inside_the_classes() -> None:
    with pytest.raises(ValueError, match=r"targets\[1\] is 3"):
        noise.class_map([0, 1, 2], [0, 3, 1], 0.5)


def test_kinds_omit_defaults() -> None:
    assert noise.symmetric(BALANCED, 0.4).kind == "symmetric(rate=0.4)"
    assert (
        noise.symmetric(BALANCED, np.float64(0.4), include_true=True, count="overall").kind
        == "symmetric(rate=0.4, include_true=True, count='overall')"
    )
    assert noise.class_map([0, 1], [1, 1], 0.5).kind == "class_map(targets=(1, 1), rate=0.5)"
    assert "symmetric(rate=0.4), 5000 labels, 2000 wrong" in repr(noise.symmetric(BALANCED, 0.4))
