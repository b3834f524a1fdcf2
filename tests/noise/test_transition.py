"""Noise from a matrix, and from the features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reweigh import noise

LABELS = np.repeat(np.arange(4), 2500)
MATRIX = np.array([[0.7, 0.3, 0, 0], [0, 1, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0, 1, 0]])


def test_labels_follow_their_row() -> None:
    result = noise.transition(LABELS, MATRIX, seed=5)
    assert result.transition == pytest.approx(MATRIX, abs=0.04)
    assert (result.counts[MATRIX == 0] == 0).all()
    assert result.rate == pytest.approx((0.3 + 0 + 0.75 + 1) / 4)
    assert result.measured == pytest.approx(result.rate, abs=0.02)


@settings(max_examples=50)
@given(raw=arrays(np.float64, (4, 4), elements=st.sampled_from([0.0, 1e-9, 0.1, 1.0, 3.0])), seed=st.integers(0, 99))
def test_impossible_labels_are_never_drawn(raw: np.ndarray, seed: int) -> None:
    raw = raw + np.where(raw.sum(axis=1, keepdims=True) == 0, np.eye(4), 0)
    matrix = raw / raw.sum(axis=1, keepdims=True)
    result = noise.transition(LABELS[::50], matrix, seed=seed)
    assert (result.counts[matrix == 0] == 0).all()


@pytest.mark.parametrize(
    ("matrix", "told"),
    [
        ([[1.0, 0.0]], "shape"),
        (np.zeros((0, 0)), "shape"),
        (np.eye(4)[None], "shape"),
        ([[0.5, 0.4], [0, 1]], "row 0 of matrix sums to 0.9"),
        ([[1.5, -0.5], [0, 1]], r"matrix\[0, 1\] is -0.5"),
        ([[1, 0], [np.nan, 1]], r"matrix\[1, 0\] is nan"),
        ([[1, 0], [np.inf, 0]], r"matrix\[1, 0\] is inf"),
    ],
)
def test_matrices_are_checked(matrix, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        noise.transition([0, 1], matrix)


def test_labels_must_fit_the_matrix() -> None:
    with pytest.raises(ValueError, match=r"labels\[2\] is 2; expected 0 to 1"):
        noise.transition([0, 1, 2], np.eye(2))


@pytest.mark.parametrize("include_true", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.4, 1.0])
def test_the_symmetric_matrix_is_that_of_symmetric_noise(include_true: bool, rate: float) -> None:
    matrix = noise.symmetric_matrix(4, rate, include_true)
    measured = noise.symmetric(LABELS, rate, include_true=include_true).transition
    assert matrix.sum(axis=1) == pytest.approx(1)
    assert measured == pytest.approx(matrix, abs=0.04)


def test_one_class_has_no_symmetric_matrix() -> None:
    with pytest.raises(ValueError, match="num_classes is 1"):
        noise.symmetric_matrix(1, 0.2)


FEATURES = np.random.default_rng(3).normal(size=(10_000, 8))


@pytest.mark.parametrize("rate", [0.2, 0.3, 0.4, 0.5])
def test_instance_noise_has_about_the_nominal_rate(rate: float) -> None:
    """At 0.2 the truncation at 0 raises the mean of normal(0.2, 0.1) by 0.0055."""
    result = noise.instance_dependent(LABELS, rate, FEATURES)
    assert result.measured == pytest.approx(rate, abs=0.025)


def test_instance_noise_depends_on_the_instance() -> None:
    """Examples with the same features and class flip to the same class nearly always, others do not."""
    features = np.repeat(np.eye(4)[[0, 1]] * 50, 1000, axis=0)
    labels = np.zeros(2000, dtype=np.int64)
    result = noise.instance_dependent(labels, 1.0, features, num_classes=10, seed=4)
    first, second = np.bincount(result.labels[:1000], minlength=10), np.bincount(result.labels[1000:], minlength=10)
    distance = np.abs(first - second).sum() / 2000
    even = noise.symmetric(labels, 1.0, num_classes=10).labels
    baseline = np.abs(np.bincount(even[:1000], minlength=10) - np.bincount(even[1000:], minlength=10)).sum() / 2000
    assert distance > 5 * baseline


def test_instance_noise_takes_images_and_ignores_their_scale() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 3), dtype=np.uint8)
    labels = np.arange(40) % 4
    plain = noise.instance_dependent(labels, 0.5, images)
    scaled = noise.instance_dependent(labels, 0.5, images.astype(np.float64) * 2 + 1)
    assert plain.hash == scaled.hash


def test_a_constant_feature_is_ignored() -> None:
    assert noise.instance_dependent([0, 1, 1], 1.0, np.ones((3, 2))).labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize("constant", [0.1, 1 / 3, -1e10 / 7, 1e-320])  # the mean of many 0.1 is not 0.1
def test_a_constant_column_is_ignored_despite_rounding(constant: float) -> None:
    labels = np.arange(1001) % 7
    found = noise.instance_dependent(labels, 0.5, np.full((1001, 1), constant))
    np.testing.assert_array_equal(found.labels, noise.instance_dependent(labels, 0.5, np.zeros((1001, 1))).labels)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_are_finite(bad: float) -> None:
    features = np.ones((3, 2))
    features[1, 1] = bad
    with pytest.raises(ValueError, match="column 1"):
        noise.instance_dependent([0, 1, 1], 0.5, features)


def test_features_must_match_the_labels() -> None:
    with pytest.raises(ValueError, match=r"features has shape \(2, 2\); expected 3 rows"):
        noise.instance_dependent([0, 1, 1], 0.5, np.ones((2, 2)))
    with pytest.raises(TypeError, match="features has dtype"):
        noise.instance_dependent([0, 1], 0.5, np.array(["a", "b"]))
    with pytest.raises(ValueError, match="no other class"):
        noise.instance_dependent([0, 0], 0.5, np.ones((2, 2)))
