"""Methods that select examples of a batch: OHEM, Co-teaching and SIGUA by loss, Decoupling by disagreement."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from reweigh.checks import integer, number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch, constant_graph, gradient_norm, row_losses
from reweigh.lab.methods.protocol import Context
from reweigh.losses import Backward
from reweigh.losses.correction import Matrix
from reweigh.margin import at_least_float32


class OHEM(BaseMethod):
    """Online hard example mining (Shrivastava 2016): L is the mean of the K = ⌈ρ B⌉ largest losses of the batch.

    Args:
        keep: ρ in (0, 1]; 1 is cross entropy.
    """

    capture_key = constant_graph

    def __init__(self, context: Context, keep: float = 0.5) -> None:
        super().__init__(context)
        self.keep: float = number(0, 1, above=True)("OHEM's keep", keep)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        return losses[self.hardest(losses)].mean()

    def hardest(self, losses: Tensor) -> Tensor:
        """Return the indices of the K largest losses, the earlier of equals first."""
        k = max(1, math.ceil(self.keep * len(losses) - 1e-9))
        return losses.detach().argsort(descending=True, stable=True)[:k]

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        v = torch.zeros_like(losses)
        v[self.hardest(losses)] = 1.0
        return gradient_norm(v, losses)


@dataclass(frozen=True)
class ForgetRate:
    """Forget rate R(t) = τ^c t / (T_k - 1) before epoch t = T_k, counted from 1, then τ.

    So do the programs of Co-teaching and SIGUA, whose epoch 0 only evaluates: with τ = 0.45 and T_k = 10, the first
    epoch drops 0.05. Co-teaching's paper has τ min(t / T_k, 1), which drops 0.045.

    Args:
        rate: τ in [0, 1), usually the noise rate.
        warm_up: T_k.
        exponent: c.

    >>> forgetting = ForgetRate(0.45)
    >>> round(forgetting.at(1), 6), forgetting.at(9), forgetting.at(50)
    (0.05, 0.45, 0.45)
    >>> ForgetRate(1.0)
    Traceback (most recent call last):
        ...
    ValueError: forget_rate is 1.0; expected a number in [0, 1)
    """

    rate: float
    warm_up: int = 10
    exponent: float = 1.0

    def __post_init__(self) -> None:
        number(0, 1, below=True)("forget_rate", self.rate)
        integer(0)("warm_up", self.warm_up)
        number(0, above=True)("exponent", self.exponent)

    def at(self, epoch: int) -> float:
        """Return the share of a batch that is dropped in that epoch, counted from 1."""
        if epoch >= self.warm_up:
            return self.rate
        return float(self.rate**self.exponent * (epoch / max(1, self.warm_up - 1)))

    def keeps(self, size: int, epoch: int) -> int:
        """Return k = int((1 - R) B), at least 1."""
        return max(1, int((1 - self.at(epoch)) * size + 1e-9))  # (1 - 0.9) * 10 must not become 0


def by_loss(losses: Tensor) -> Tensor:
    """Return the indices by increasing loss, the earlier of equals first."""
    return losses.detach().argsort(stable=True)


class CoTeaching(BaseMethod):
    """Co-teaching (Han 2018): two nets, each trained on the k = (1 - R(t)) B examples with the other's smallest losses.

    L is the mean over k for both nets; the first net predicts.

    Args:
        forget_rate: τ in [0, 1), usually the noise rate.
        warm_up: epochs in which the rate grows.
        exponent: c of τ^c.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(self, context: Context, forget_rate: float, warm_up: int = 10, exponent: float = 1.0) -> None:
        super().__init__(context)
        self.forgetting = ForgetRate(forget_rate, warm_up, exponent)
        self.other = context.new_net("co-teaching")
        self.trainable = nn.ModuleList([self.net, self.other])

    def capture_key(self, step: int) -> Hashable:
        return self.forgetting.at(1 + step // self.context.epoch)

    def loss(self, batch: Batch, step: int) -> Tensor:
        f = row_losses(self.net(batch.inputs), batch.target)
        g = row_losses(self.other(batch.inputs), batch.target)
        return exchange(f, g, self.forgetting.keeps(len(f), 1 + step // self.context.epoch))


def exchange(f: Tensor, g: Tensor, k: int) -> Tensor:
    """Return the mean of f over the k smallest of g, plus the mean of g over the k smallest of f."""
    return f[by_loss(g)[:k]].mean() + g[by_loss(f)[:k]].mean()


class Decoupling(BaseMethod):
    """Decoupling (Malach & Shalev-Shwartz 2017): update two nets only where they disagree; the first net predicts.

    L = Σ u l / max(0.1 B, Σ u) for both nets, u = 1[argmax f != argmax g]. The floor limits the weight of a few
    disagreements.

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


class SIGUA(BaseMethod):
    """SIGUA-SL (Han 2020): descend on the k smallest losses, and ascend, scaled by γ, on the next ones.

    L = mean(good) - γ mean(bad) with k = (1 - R(t)) B good examples as in Co-teaching; of the B - k others, the share
    `rate` with the smallest losses is bad, at least one.

    Args:
        forget_rate: τ in [0, 1), usually the noise rate.
        gamma: γ.
        rate: share of the other examples to ascend on; published are 0.3, and 0.4 at 20 % noise.
        warm_up: epochs in which the forget rate grows.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(
        self, context: Context, forget_rate: float, gamma: float = 0.01, rate: float = 0.3, warm_up: int = 10
    ) -> None:
        super().__init__(context)
        self.forgetting = ForgetRate(forget_rate, warm_up)
        self.gamma: float = number(0)("SIGUA's gamma", gamma)
        self.rate: float = number(0, 1)("SIGUA's rate", rate)

    def capture_key(self, step: int) -> Hashable:
        return self.forgetting.at(1 + step // self.context.epoch)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        k = self.forgetting.keeps(len(losses), 1 + step // self.context.epoch)
        return descend_and_ascend(losses, k, self.rate, self.gamma)


def descend_and_ascend(losses: Tensor, k: int, rate: float, gamma: float) -> Tensor:
    """Return mean(good) - γ mean(bad).

    >>> round(descend_and_ascend(torch.tensor([0.0, 1.0, 2.0, 3.0]), 2, 0.5, 0.1).item(), 6)
    0.3
    """
    order = by_loss(losses)
    good = losses[order[:k]].mean()
    if k == len(losses):
        return good
    bad = max(1, int((len(losses) - k) * rate + 1e-9))
    return good - gamma * losses[order[k : k + bad]].mean()


class SIGUABC(BaseMethod):
    """SIGUA-BC (Han 2020): the backward-corrected loss, multiplied by -γ where it is negative.

    As in the published program, p is not clipped, unlike in `Backward`: an example that has been fitted too well would
    have no gradient to ascend on.

    Args:
        T: (C, C), T[i, j] = P(given = j | true = i), or `symmetric(rate)`, or `map(targets, rate)`.
        gamma: γ.
        warm_up: epochs in which negative losses are not changed.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(self, context: Context, T: Matrix, gamma: float = 1.0, warm_up: int = 0) -> None:
        super().__init__(context)
        self.correction = Backward(T, clip=0, reduction="none").to(context.device)
        self.gamma: float = number(0)("SIGUABC's gamma", gamma)
        self.warm_up = check_start_epoch(context, "SIGUABC's warm_up", warm_up)

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
