"""Active negative loss with its L1 penalty (Ye 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph
from reweigh.lab.methods.protocol import Context
from reweigh.losses import ANL_CE


class ANL(BaseMethod):
    """L = ANL_CE + δ |θ|_1; the penalty replaces weight decay, so set the run's to 0.

    Args:
        alpha, beta: of `ANL_CE`.
        delta: δ; published are 5e-5 for CIFAR-10 and 5e-7 for CIFAR-100.
    """

    capture_key = constant_graph

    def __init__(self, context: Context, alpha: float = 5.0, beta: float = 5.0, delta: float = 5e-5) -> None:
        super().__init__(context)
        self.criterion = ANL_CE(alpha, beta)
        self.delta: float = number(0)("ANL's delta", delta)

    def loss(self, batch: Batch, step: int) -> Tensor:
        size = torch.stack([parameter.abs().sum() for parameter in self.net.parameters()]).sum()
        value: Tensor = self.criterion(self.net(batch.inputs), batch.target)
        return value + self.delta * size
