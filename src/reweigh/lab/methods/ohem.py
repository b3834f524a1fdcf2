"""Online hard example mining (Shrivastava 2016), the opposite of robust."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching, alike, counts_for, row_losses


class OHEM(Teaching):
    """Learn from the K = ⌈ρ B⌉ largest losses of the batch, L = their mean.

    Args:
        keep: ρ in (0, 1]; 1 is cross entropy.
    """

    capture_key = alike

    def __init__(self, context: Context, keep: float = 0.5) -> None:
        super().__init__(context)
        self.keep: float = number(0, 1, above=True)("OHEM's keep", keep)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        return losses[self.hardest(losses)].mean()

    def hardest(self, losses: Tensor) -> Tensor:
        """The indices of the K largest, the earlier of equals first."""
        k = max(1, math.ceil(self.keep * len(losses) - 1e-9))
        return losses.detach().argsort(descending=True, stable=True)[:k]

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        v = torch.zeros_like(losses)
        v[self.hardest(losses)] = 1.0
        return counts_for(v, losses)
