"""The noise estimate on data with known noise."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from reweigh.labels import estimate_noise, noise
from reweigh.labels.noise import confident_classes, joint_of, rate_of, transition_of
from reweigh.streams import numpy_generator

T3 = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.2, 0.0, 0.8]])


def synthetic(seed: int, transition: np.ndarray, n: int = 3000, sharp: float = 8.0, weights: list | None = None):
    """Draw labels by `transition`, and the predictions of a model that knows the truth; `sharp` is its confidence."""
    rng, classes = np.random.default_rng(seed), len(transition)
    truth = rng.choice(classes, n, p=weights)
    given = (rng.random((n, 1)) > transition[truth].cumsum(axis=1)).sum(axis=1).clip(0, classes - 1)
    logits = sharp * (np.arange(classes) == truth[:, None]) + rng.normal(size=(n, classes))
    p = np.exp(logits)
    return given, truth, p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "transition",
    [T3, np.eye(3), np.full((4, 4), 0.1) + 0.6 * np.eye(4), np.array([[0.9, 0.1], [0.3, 0.7]])],
    ids=["T3", "clean", "symmetric 30 %", "binary"],
)
def test_rate_and_transition_are_estimated(transition: np.ndarray) -> None:
    given, truth, p = synthetic(0, transition)
    estimate, wrong = estimate_noise(given, p), (given != truth).mean()
    assert estimate.rate == pytest.approx(wrong, abs=0.02)
    assert estimate.low <= wrong + 1e-9
    assert wrong <= estimate.high + 0.005
    np.testing.assert_allclose(estimate.transition, transition, atol=0.05)
    np.testing.assert_allclose(estimate.transition.sum(axis=1), 1)
    assert (estimate.transition_low <= estimate.transition + 1e-12).all()
    assert (estimate.transition <= estimate.transition_high + 1e-12).all()


def test_intervals_have_their_coverage() -> None:
    true_rate = 1 - T3.diagonal().mean()
    inside, cells = 0, 0
    for seed in range(40):
        given, _, p = synthetic(seed, T3, n=600)
        estimate = estimate_noise(given, p, seed=seed, bootstrap=60)
        inside += estimate.low <= true_rate <= estimate.high
        cells += ((estimate.transition_low <= T3) & (estimate.transition_high >= T3)).mean()
    assert inside >= 34, "95 % of 40 is 38"
    assert cells / 40 > 0.85


def test_a_rare_class_with_low_confidence_is_not_counted_as_noise() -> None:
    rng = np.random.default_rng(3)
    truth = np.repeat([0, 1, 2], [900, 900, 30])
    sure = np.where(truth == 2, 0.4, 0.95) + rng.uniform(-0.04, 0.04, len(truth))
    p = np.where(np.arange(3) == truth[:, None], sure[:, None], ((1 - sure) / 2)[:, None])
    p[truth == 2, 0] += 0.1  # close to the most frequent class
    p[truth == 2, 1] -= 0.1
    estimate = estimate_noise(truth, p)
    assert estimate.rate == pytest.approx(0, abs=0.01)
    assert estimate.transition[2, 2] > 0.9


@pytest.mark.parametrize("block", [1, 50, 10**6])
def test_intervals_are_the_quantiles_over_all_draws(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given, _, p = synthetic(0, T3, n=40, sharp=2.0)
    rng, matrices = numpy_generator(5, "bootstrap"), []
    for _ in range(20):
        again = rng.integers(0, 40, size=(40,))
        matrices.append(transition_of(joint_of(given[again], confident_classes(given[again], p[again]), 3)))
    monkeypatch.setattr(noise, "BLOCK", block)
    estimate = estimate_noise(given, p, seed=5, bootstrap=20)
    low, high = np.quantile(matrices, [0.025, 0.975], axis=0)
    np.testing.assert_allclose(estimate.transition_low, low, rtol=1e-12)
    np.testing.assert_allclose(estimate.transition_high, high, rtol=1e-12)


def test_memory_grows_with_the_observed_mistakes() -> None:
    truth = np.arange(2000) % 500
    given = np.where(np.arange(2000) % 7 == 0, (truth + 1) % 500, truth)
    p = np.where(np.arange(500) == truth[:, None], 0.9, 0.1 / 499)
    tracemalloc.start()
    try:
        estimate = estimate_noise(given, p)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert estimate.rate == pytest.approx((given != truth).mean(), abs=0.05)
    assert peak < 100 * 500**2 * 8 / 4, "as much as a dense matrix for each of 100 draws"


def test_the_same_seed_gives_the_same_interval() -> None:
    given, _, p = synthetic(0, T3, n=300)
    one, again, other = (estimate_noise(given, p, seed=seed, bootstrap=20) for seed in (1, 1, 2))
    assert (one.low, one.high) == (again.low, again.high)
    assert (one.low, one.high) != (other.low, other.high)
    with pytest.raises(ValueError, match="bootstrap must be 1 or more, not 0"):
        estimate_noise(given, p, bootstrap=0)


def test_a_class_without_examples_has_the_identity_row() -> None:
    labels = np.array([0, 0, 1, 1])
    p = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.1, 0.9, 0.0], [0.2, 0.8, 0.0]])
    classes = confident_classes(labels, p)
    assert classes.tolist() == [0, -1, 1, -1], "the less confident half is not counted"
    joint = joint_of(labels, classes, 3)
    np.testing.assert_allclose(joint, np.diag([0.5, 0.5, 0]))
    assert rate_of(joint) == 0
    np.testing.assert_allclose(transition_of(joint), np.eye(3))


@pytest.mark.parametrize(("rate", "separation"), [(0.1, 3.0), (0.1, 2.0), (0.3, 2.0)])
def test_the_interval_of_the_rate_covers_overlapping_classes(rate: float, separation: float) -> None:
    """The classes overlap, so that a perfect model gives clean labels low probabilities, too."""
    covered = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = rng.integers(0, 3, 500)
        logits = separation * (rng.normal(size=(500, 3)) + separation * np.eye(3)[truth])
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        labels = np.where(rng.random(500) < rate, (truth + rng.integers(1, 3, 500)) % 3, truth)
        noise = estimate_noise(labels, p / p.sum(axis=1, keepdims=True), bootstrap=40)
        covered += noise.low <= float((labels != truth).mean()) <= noise.high
    assert covered >= 18
