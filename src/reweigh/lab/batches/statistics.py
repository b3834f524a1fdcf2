"""Mean and standard deviation of the inputs, measured on the training part."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.lab.batches.batch import Images

CHUNK = 2048  # images counted at a time


@dataclass(frozen=True)
class Normalisation:
    """x -> (x - mean) / std, per channel or feature; pixels count from 0 to 1.

    >>> Normalisation((0.5,), (0.25,)).mean_only()
    Normalisation(mean=(0.5,), std=(1.0,))
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must be of equal length, not {len(self.mean)} and {len(self.std)}")
        if not all(std > 0 for std in self.std):
            raise ValueError(f"every std must be positive, not {min(self.std)}")

    def mean_only(self) -> Normalisation:
        """Return the normalisation that only subtracts the mean, as the paper's authors did.

        Their pixels are from 0 to 255, these from 0 to 1, which makes no difference to a net like theirs, with batch
        norm after its first layer.
        """
        return replace(self, std=(1.0,) * len(self.std))

    def pixels(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return `scale` and `shift`, float32, with (x / 255 - mean) / std = x * scale + shift for x from 0 to 255."""
        mean, std = torch.tensor(self.mean, dtype=torch.float64), torch.tensor(self.std, dtype=torch.float64)
        return (1 / (255 * std)).float().to(device), (-mean / std).float().to(device)

    def features(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return (x - mean) / std by column, computed in float64 so that a large mean costs no precision.

        >>> Normalisation((1000.0,), (0.5,)).features(np.array([[1001.0]], np.float32))
        array([[2.]], dtype=float32)
        """
        standard: NDArray[np.float64] = (x - np.array(self.mean)) / np.array(self.std)
        return standard.astype(np.float32)


def channel_statistics(images: NDArray[np.uint8] | Images, *, limit: int = 2048) -> Normalisation:
    """Measure the per-channel mean and (population) standard deviation of uint8 images, with pixels from 0 to 1.

    Args:
        images: an array (N, H, W, C); or a sequence of images (H, W, C) that are decoded one by one and may differ in
            size, each with the same weight.
        limit: how many images of a sequence are read, evenly spaced.

    A constant channel has std 1.

    >>> channel_statistics(np.array([[[[0, 51]], [[255, 51]]]], np.uint8))
    Normalisation(mean=(0.5, 0.2), std=(0.5, 1.0))
    """
    if not len(images):
        raise ValueError("images must hold at least one image")
    if isinstance(images, np.ndarray):
        chunks = [images[i : i + CHUNK] for i in range(0, len(images), CHUNK)]
        histograms, weights = [_histogram(chunk) for chunk in chunks], [len(chunk) for chunk in chunks]
    else:
        chosen = np.unique(np.linspace(0, len(images) - 1, min(limit, len(images))).round().astype(int))
        histograms, weights = [_histogram(images[int(i)]) for i in chosen], [1] * len(chosen)
    share: NDArray[np.float64] = np.average(histograms, axis=0, weights=weights)
    values = np.arange(256) / 255
    mean = share @ values
    return _normalisation(mean, np.sqrt((share * (values - mean[:, None]) ** 2).sum(1)))


def _histogram(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return (C, 256): the relative frequency of each value in each channel."""
    channels = pixels.reshape(-1, pixels.shape[-1]).T
    return np.stack([np.bincount(channel, minlength=256) for channel in channels]) / channels.shape[1]


def feature_statistics(features: NDArray[np.float32]) -> Normalisation:
    """Measure the per-column mean and (population) standard deviation of features (N, F); constant columns get std 1.

    >>> feature_statistics(np.array([[1, 7], [3, 7]], np.float32))
    Normalisation(mean=(2.0, 7.0), std=(1.0, 1.0))
    """
    if features.ndim != 2 or not len(features):
        raise ValueError(f"features must be (N, F) with at least one row, not {features.shape}")
    columns = features.astype(np.float64)
    return _normalisation(columns.mean(0), columns.std(0))


def _normalisation(mean: NDArray[np.float64], std: NDArray[np.float64]) -> Normalisation:
    # below this the spread is rounding error, which division would amplify
    constant = std <= 1e-7 * np.abs(mean)
    return Normalisation(tuple(mean.tolist()), tuple(np.where(constant, np.maximum(std, 1.0), std).tolist()))
