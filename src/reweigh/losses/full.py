"""The textbook forms of MAE and MSE, over the whole probability vector."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

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
    """L = |p - e_y|², gradient_k = 2 p_k (p_k - e_k - Σ_j p_j² + p_y): another direction than CCE's unless C = 2.

    >>> import torch
    >>> Brier()(torch.zeros(1, 4), torch.tensor([0]))
    tensor(0.7500)
    """

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        error = logits.softmax(1) - functional.one_hot(target, logits.shape[1])
        return error.square().sum(1)
