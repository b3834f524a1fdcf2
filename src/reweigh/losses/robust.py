"""Bounded losses of the probability vector, and cross entropy of bounded logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import number
from reweigh.losses.loss import Loss, pick


class FullMAE(Loss):
    """L = |p - e_y|_1 = 2 (1 - p_y), twice the weighting `MAE`.

    >>> import torch
    >>> FullMAE()(torch.zeros(1, 4), torch.tensor([0]))
    tensor(1.5000)
    """

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        return -2 * pick(logits.log_softmax(1), target).expm1()


class Brier(Loss):
    """L = |p - e_y|², gradient_k = 2 p_k (p_k - e_k - Σ_j p_j² + p_y): not the direction of CCE unless C = 2.

    >>> import torch
    >>> Brier()(torch.zeros(1, 4), torch.tensor([0]))
    tensor(0.7500)
    """

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        error = logits.softmax(1) - functional.one_hot(target, logits.shape[1])
        return error.square().sum(1)


class LogitClip(Loss):
    """LogitClip (Wei 2023), L = CE(z min(1, τ / |z|₂), y) <= log(1 + (C - 1) e^(√2 τ)); use the raw z for prediction.

    τ is both the threshold and the norm after clipping, so that the map is continuous; the published program clips
    norms above τ to 1/τ.

    Args:
        tau: τ > 0; large is cross entropy.

    >>> LogitClip(1.0)(torch.tensor([[30.0, 40.0]]), torch.tensor([0])).item() == LogitClip(1.0)(
    ...     torch.tensor([[0.6, 0.8]]), torch.tensor([0])).item()
    True
    """

    def __init__(self, tau: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.tau: float = number(0, above=True)("LogitClip's tau", tau)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        masked = logits == -math.inf
        z = logits.masked_fill(masked, 0.0)  # masked classes do not count in the norm
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        factor = self.tau / norm.clamp_min(self.tau)
        return functional.cross_entropy((z * factor).masked_fill(masked, -math.inf), target, reduction="none")
