"""Decoupling (Malach & Shalev-Shwartz 2017): update two nets only where they disagree."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor, nn

from reweigh.checks import integer
from reweigh.lab.batches import Batch
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching, row_losses


class Decoupling(Teaching):
    """L = Σ u l / max(0.1 B, Σ u) for both nets, u = 1[argmax f != argmax g]; the first net predicts.

    The floor keeps the last few disagreements from exploding.

    Args:
        warm_up: iterations with u = 1.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(self, context: Context, warm_up: int = 0) -> None:
        super().__init__(context)
        self.warm_up: int = integer(0)("Decoupling's warm_up", warm_up)
        self.other = context.new_net("decoupling")
        self.trainable = nn.ModuleList([self.net, self.other])

    def capture_key(self, step: int) -> Hashable:
        return step < self.warm_up

    def loss(self, batch: Batch, step: int) -> Tensor:
        f, g = self.net(batch.inputs), self.other(batch.inputs)
        u = f.detach().argmax(1) != g.detach().argmax(1)
        if step < self.warm_up:
            u = torch.ones_like(u)
        total = row_losses(f, batch.target) + row_losses(g, batch.target)
        mean: Tensor = (u * total).sum() / u.sum().clamp_min(0.1 * len(u))
        return mean
