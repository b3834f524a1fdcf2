"""Co-teaching (Han 2018): two nets, each picks the small losses from which the other learns."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from torch import Tensor, nn

from reweigh.lab.batches import Batch
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.small_loss import Forgetting, ascending
from reweigh.lab.methods.teaching import Teaching, row_losses


class CoTeaching(Teaching):
    """f learns from the k = (1 - R(t)) B smallest losses of g, and g from those of f; the mean over k, once.

    The first net predicts.

    Args:
        forget_rate: τ in [0, 1), usually the noise rate.
        warm_up: epochs in which the rate grows from 0.
        exponent: c of τ^c.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(self, context: Context, forget_rate: float, warm_up: int = 10, exponent: float = 1.0) -> None:
        super().__init__(context)
        self.forgetting = Forgetting(forget_rate, warm_up, exponent)
        self.other = context.new_net("co-teaching")
        self.trainable = nn.ModuleList([self.net, self.other])

    def capture_key(self, step: int) -> Hashable:
        return self.forgetting.at(step // self.context.epoch)

    def loss(self, batch: Batch, step: int) -> Tensor:
        f = row_losses(self.net(batch.inputs), batch.target)
        g = row_losses(self.other(batch.inputs), batch.target)
        return exchange(f, g, self.forgetting.keeps(len(f), step // self.context.epoch))


def exchange(f: Tensor, g: Tensor, k: int) -> Tensor:
    """Mean of f over the k smallest of g, plus mean of g over the k smallest of f."""
    return f[ascending(g)[:k]].mean() + g[ascending(f)[:k]].mean()
