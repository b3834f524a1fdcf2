from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from reweigh.lab.batches.statistics import Normalisation, channel_statistics, feature_statistics


def test_channels_of_an_array() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2500, 3, 5, 2), dtype=np.uint8)  # more than one chunk
    measured = channel_statistics(images)
    floats = images.astype(np.float64) / 255
    np.testing.assert_allclose(measured.mean, floats.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(measured.std, floats.std((0, 1, 2)), rtol=1e-12)


def test_a_sequence_of_equal_images_agrees_with_the_array() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 5, 3), dtype=np.uint8)
    a, b = channel_statistics(images), channel_statistics(list(images))
    np.testing.assert_allclose((a.mean, a.std), (b.mean, b.std), rtol=1e-12)


def test_every_image_of_a_sequence_counts_the_same() -> None:
    black, white = np.zeros((2, 2, 3), np.uint8), np.full((9, 4, 3), 255, np.uint8)
    assert channel_statistics([black, white]) == Normalisation((0.5,) * 3, (0.5,) * 3)


def test_a_long_sequence_is_sampled_evenly() -> None:
    read: list[int] = []

    class Black:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> NDArray[np.uint8]:
            read.append(index)
            return np.zeros((1, 1, 3), np.uint8)

    channel_statistics(Black(), limit=10)
    assert len(read) == 10
    assert read[0] == 0
    assert read[-1] == 99


def test_features() -> None:
    features = np.random.default_rng(0).normal(1e4, 2.0, (500, 3)).astype(np.float32)
    features[:, 2] = np.float32(0.1)
    measured = feature_statistics(features)
    standard = measured.features(features)
    assert standard.dtype == np.float32
    np.testing.assert_allclose(standard.mean(0)[:2], 0, atol=1e-3)
    np.testing.assert_allclose(standard.std(0)[:2], 1, rtol=1e-3)
    assert measured.std[2] == 1.0


def test_small_features_are_not_taken_for_constants() -> None:
    assert feature_statistics(np.array([[1e-9], [-1e-9]], np.float32)).std[0] == pytest.approx(1e-9)


@pytest.mark.parametrize("size", [1.0, 1e6, 1.7e12, 1e30])  # 1.7e12: a time in milliseconds
def test_what_float32_can_hardly_tell_apart_is_never_large(size: float) -> None:
    features = np.full((100, 1), size, np.float32)
    features[::2] = np.nextafter(features[0], np.float32(np.inf))
    standard = feature_statistics(features).features(features)
    assert np.abs(standard).max() <= 1


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [((0.0,), (1.0, 1.0), "of equal length, not 1 and 2"), ((0.0,), (0.0,), "every std must be positive, not 0")],
)
def test_impossible_normalisations(mean: tuple[float, ...], std: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Normalisation(mean, std)


def test_nothing_to_measure() -> None:
    with pytest.raises(ValueError, match="at least one image"):
        channel_statistics(np.zeros((0, 2, 2, 3), np.uint8))
    with pytest.raises(ValueError, match="at least one row"):
        feature_statistics(np.zeros((0, 2), np.float32))


def test_cifar10s_channels() -> None:
    root = os.environ.get("REWEIGH_DATA")
    if root is None or not (Path(root) / "cifar-10-batches-bin").is_dir():
        pytest.skip("REWEIGH_DATA names no folder with cifar-10-batches-bin")
    batch = np.fromfile(Path(root) / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8).reshape(-1, 3073)
    measured = channel_statistics(batch[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    # One fifth of the training set comes within a few thousandths of the whole of it.
    np.testing.assert_allclose(measured.mean, (0.4914, 0.4822, 0.4465), atol=4e-3)
    np.testing.assert_allclose(measured.std, (0.2470, 0.2435, 0.2616), atol=4e-3)
