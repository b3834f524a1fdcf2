"""SIGUA (Han 2020): gradient ascent, with a small factor, on examples believed to be wrong."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor

from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.small_loss import Forgetting, ascending
from reweigh.lab.methods.teaching import Teaching, row_losses, starting_epoch
from reweigh.losses import Backward
from reweigh.losses.correction import Matrix
from reweigh.margin import at_least_float32


class SIGUA(Teaching):
    """SIGUA-SL: L = mean of the k smallest losses - γ mean of the next ones, not of the largest.

    k = (1 - R(t)) B as in Co-teaching; of the B - k others the smallest share `rate` is bad, at least one.

    Args:
        forget_rate: τ in [0, 1), usually the noise rate.
        gamma: γ.
        rate: share of the large losses that is unlearned; published are 0.3, and 0.4 at 20 % noise.
        warm_up: epochs in which the forget rate grows from 0.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(
        self, context: Context, forget_rate: float, gamma: float = 0.01, rate: float = 0.3, warm_up: int = 10
    ) -> None:
        super().__init__(context)
        self.forgetting = Forgetting(forget_rate, warm_up)
        self.gamma: float = number(0)("SIGUA's gamma", gamma)
        self.rate: float = number(0, 1)("SIGUA's rate", rate)

    def capture_key(self, step: int) -> Hashable:
        return self.forgetting.at(step // self.context.epoch)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        k = self.forgetting.keeps(len(losses), step // self.context.epoch)
        return descend_and_ascend(losses, k, self.rate, self.gamma)


def descend_and_ascend(losses: Tensor, k: int, rate: float, gamma: float) -> Tensor:
    """mean(good) - γ mean(bad).

    >>> round(descend_and_ascend(torch.tensor([0.0, 1.0, 2.0, 3.0]), 2, 0.5, 0.1).item(), 6)
    0.3
    """
    order = ascending(losses)
    good = losses[order[:k]].mean()
    if k == len(losses):
        return good
    bad = max(1, int((len(losses) - k) * rate + 1e-9))
    return good - gamma * losses[order[k : k + bad]].mean()


class SIGUABC(Teaching):
    """SIGUA-BC: the backward-corrected loss, multiplied by -γ where it is negative.

    Args:
        T: (C, C), T[i, j] = P(given = j | true = i), or `symmetric(rate)`, or `map(targets, rate)`.
        gamma: γ.
        warm_up: epochs in which negative losses are followed as they are.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(self, context: Context, T: Matrix, gamma: float = 1.0, warm_up: int = 0) -> None:
        super().__init__(context)
        self.correction = Backward(T, reduction="none").to(context.device)
        self.gamma: float = number(0)("SIGUABC's gamma", gamma)
        self.warm_up = starting_epoch(context, "SIGUABC's warm_up", warm_up)

    def capture_key(self, step: int) -> Hashable:
        return self.ascends(step)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = self.correction(at_least_float32(self.net(batch.inputs)), batch.target)
        if self.ascends(step):
            losses = torch.where(losses < 0, -self.gamma * losses, losses)
        mean: Tensor = losses.mean()
        return mean

    def ascends(self, step: int) -> bool:
        return step // self.context.epoch >= self.warm_up
