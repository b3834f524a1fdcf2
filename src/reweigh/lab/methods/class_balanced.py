"""Class-balanced weights by effective numbers of examples (Cui 2019)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching, alike, counts_for, row_losses
from reweigh.losses.prior import checked_counts


def class_weights(class_counts: npt.ArrayLike, beta: float) -> Tensor:
    """(C,) c_j ∝ (1 - β) / (1 - β^n_j) with Σ c = C; a class without examples has 0.

    β = 0 is uniform, β → 1 is 1 / n_j.

    >>> class_weights([1, 3], 0.5)
    tensor([1.2727, 0.7273], dtype=torch.float64)
    """
    counts = checked_counts("ClassBalanced", class_counts)
    beta = number(0, 1, below=True)("ClassBalanced's beta", beta)
    log_beta = math.log(beta) if beta > 0 else -1e3
    present = counts > 0
    weights = np.where(present, -1 / np.expm1(np.where(present, counts, 1) * log_beta), 0.0)
    return torch.from_numpy(weights * len(counts) / weights.sum())


class ClassBalanced(Teaching):
    """Cross entropy with a factor per class, L = Σ c_y l / B: divided by B, not by Σ c_y as torch's `weight` does.

    Args:
        beta: β in [0, 1).
    """

    capture_key = alike

    def __init__(self, context: Context, beta: float = 0.9999) -> None:
        super().__init__(context)
        counts = np.bincount(context.labels, minlength=context.num_classes)
        self.c = class_weights(counts, beta).to(context.device, torch.float32)

    def loss(self, batch: Batch, step: int) -> Tensor:
        return (self.c[batch.target] * row_losses(self.net(batch.inputs), batch.target)).mean()

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        return counts_for(self.c[target], row_losses(logits, target))
