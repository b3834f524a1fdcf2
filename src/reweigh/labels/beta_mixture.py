"""Fit a mixture of two Beta distributions on [0, 1] by EM with weighted moments (Arazo 2019)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_FLOOR = 1e-12
POINTS = 100


class BetaMixture(NamedTuple):
    """Parameters of the clean (first) and the noisy component, each (2,) float64."""

    a: Tensor
    b: Tensor
    weight: Tensor

    def likelihoods(self, x: Tensor) -> Tensor:
        """Return (2, N) weight x density."""
        x = x.double().clamp(1e-4, 1 - 1e-4)
        a, b = self.a[:, None], self.b[:, None]
        log_norm = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
        return self.weight[:, None] * (log_norm + (a - 1) * x.log() + (b - 1) * (1 - x).log()).exp()

    def noisy(self, x: Tensor) -> Tensor:
        """Return the (N,) posterior of the noisy component."""
        likelihoods = self.likelihoods(x)
        return likelihoods[1] / (likelihoods.sum(0) + _FLOOR)

    def table(self) -> Tensor:
        """Return the posterior at 100 points of [0, 1], constant after its maximum so that the tail does not fall."""
        values = self.noisy(torch.linspace(0, 1, POINTS, dtype=torch.float64))
        top = int(values.argmax())
        values[top:] = values[top]
        return values


def scaled(losses: NDArray[np.float64]) -> tuple[Tensor, float, float]:
    """Scale the losses between the 5th and the 95th percentile to [0, 1]; return them and both ends of that range.

    The lower end is raised by 1e-5. Values outside (0, 1) are then set to 1e-3 or 1 - 1e-3.

    >>> scaled(np.array([0.0, 0.0, 1.0, 4.0, 4.0]))[0]
    tensor([0.0010, 0.0010, 0.2500, 1.0000, 1.0000], dtype=torch.float64)
    """
    low, high = (float(value) for value in np.percentile(losses, (5, 95)))
    inside = torch.from_numpy(losses[(losses >= low) & (losses <= high)])
    low += 1e-5
    x = (inside - low) / (high - low + 1e-6)
    return torch.where(x <= 0, 1e-3, torch.where(x >= 1, 1 - 1e-3, x)), low, high


def fit(x: Tensor, iterations: int = 10) -> BetaMixture:
    """Fit by EM, starting at Beta(1, 2) and Beta(2, 1); the component with the smaller mean is the clean one.

    Each step sets a = μ (μ (1 - μ) / s² - 1) and b = a (1 - μ) / μ from weighted moments.

    Args:
        x: (N,) losses scaled to [0, 1].
        iterations: steps of EM.
    """
    x = x.detach().double().cpu().clamp(1e-4, 1 - 1e-4)
    mixture = BetaMixture(*(torch.tensor(pair, dtype=torch.float64) for pair in ([1.0, 2.0], [2.0, 1.0], [0.5, 0.5])))
    for _ in range(iterations):
        share = mixture.likelihoods(x).clamp_min(_FLOOR)
        share = share / share.sum(0)
        total = share.sum(1)
        mean = (share * x).sum(1) / total
        variance = (share * (x - mean[:, None]).square()).sum(1) / total
        a = (mean * (mean * (1 - mean) / variance.clamp_min(_FLOOR) - 1)).clamp_min(1e-6)
        mixture = BetaMixture(a, a * (1 - mean) / mean, total / total.sum())
    means = mixture.a / (mixture.a + mixture.b)
    return BetaMixture(*(part.flip(0) for part in mixture)) if means[0] > means[1] else mixture


def look_up(table: Tensor, x: Tensor) -> Tensor:
    """Return the table's values at int(100 x), clamped to [1e-4, 1 - 1e-4]."""
    return table[(POINTS * x).long().clamp(0, POINTS - 1)].clamp(1e-4, 1 - 1e-4)
