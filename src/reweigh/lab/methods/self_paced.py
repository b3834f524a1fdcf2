"""Self-paced learning (Kumar 2010) and its linear form SPCL (Jiang 2015)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from reweigh.checks import number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph, gradient_norm, row_losses
from reweigh.lab.methods.device_values import DeviceNumber
from reweigh.lab.methods.protocol import Context


class Pace:
    """The age λ: an average over steps of a percentile of the batch's losses.

    λ ← d λ + (1 - d) percentile(losses), from 0 without bias correction, updated before it is used; percentile 1 keeps
    all examples.

    >>> pace, losses = Pace(0.7, 0.5), torch.full((4,), 2.0)
    >>> [pace.update(losses).item() for _ in range(3)]
    [1.0, 1.5, 1.75]
    """

    def __init__(self, percentile: float, decay: float, device: torch.device | str = "cpu") -> None:
        self.percentile: float = number(0, 1)("percentile", percentile)
        self.decay: float = number(0, 1, below=True)("decay", decay)
        self.age = torch.zeros((), device=device)

    def update(self, losses: Tensor) -> Tensor:
        """Update the age with a batch and return it."""
        if self.percentile == 1:
            self.age.fill_(torch.inf)
        else:
            found = losses.detach().float().sort().values[rank(self.percentile, len(losses))]
            self.age.copy_(self.decay * self.age + (1 - self.decay) * found)
        return self.age

    def state_dict(self) -> dict[str, Tensor]:
        return {"age": self.age}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.age.copy_(state["age"])


def rank(percentile: float, size: int) -> int:
    """Return which of `size` sorted numbers is nearest to a percentile, as `torch.quantile` does, without reading them.

    >>> [rank(0.5, size) for size in (3, 4, 6)], torch.arange(6.0).quantile(0.5, interpolation="nearest")
    ([1, 2, 2], tensor(2.))
    """
    return int(np.rint(np.float32(percentile) * np.float32(size - 1)))


class SelfPaced(BaseMethod):
    """Train on examples whose loss is at most λ: v = 1[l <= λ], L = Σ v l / B.

    Args:
        percentile: λ follows this percentile of the batch's losses (MentorNet's stochastic form); examples above it
            are always dropped, on clean data too.
        decay: of the average λ; it starts at 0, so the first few steps drop nearly everything.
        threshold: λ in the first epoch of Kumar's original schedule, which replaces the percentile.
        growth: factor on that λ after every epoch.
        divide_by: "batch" divides by B, "kept" by Σ v.
    """

    saved: ClassVar[tuple[str, ...]] = ("pace", "threshold")
    capture_key = constant_graph

    def __init__(
        self,
        context: Context,
        percentile: float = 0.7,
        decay: float = 0.5,
        threshold: float | None = None,
        growth: float = 1.3,
        divide_by: str = "batch",
    ) -> None:
        super().__init__(context)
        self.pace = Pace(percentile, decay, context.device)
        self.threshold: float | None = None if threshold is None else number(0)("threshold", threshold)
        self.limit = DeviceNumber(context.device)
        self.growth: float = number(1)("growth", growth)
        self.divide_by: str = one_of("batch", "kept")("divide_by", divide_by)

    def prepare(self, step: int, size: int) -> None:
        if self.threshold is not None:
            self.limit.set(self.threshold)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        if self.threshold is None:
            self.pace.update(losses)
        v = self.v(losses.detach())
        total = torch.where(v.sum() > 0, v.sum(), 1.0) if self.divide_by == "kept" else len(v)
        return (v * losses).sum() / total

    def v(self, losses: Tensor) -> Tensor:
        """Return (B,) weights in [0, 1] at the current age."""
        age = self.pace.age.to(losses) if self.threshold is None else self.limit.set(self.threshold)
        return (losses <= age).to(losses)

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        return gradient_norm(self.v(losses), losses)

    def epoch_end(self, epoch: int) -> None:
        if self.threshold is not None:
            self.threshold *= self.growth


class SPCL(SelfPaced):
    """Self-paced learning with a linear fade, v = clip(1 - (l - λ) / γ, 0, 1).

    With a `threshold` λ it is Jiang's v = clip(1 - l / λ, 0, 1).

    Args:
        gamma: γ > 0.
        percentile, decay, threshold, growth, divide_by: as in `SelfPaced`.
    """

    def __init__(
        self,
        context: Context,
        percentile: float = 0.7,
        gamma: float = 1.0,
        decay: float = 0.5,
        threshold: float | None = None,
        growth: float = 1.3,
        divide_by: str = "batch",
    ) -> None:
        super().__init__(context, percentile, decay, threshold, growth, divide_by)
        self.gamma: float = number(0, above=True)("gamma", gamma)

    def v(self, losses: Tensor) -> Tensor:
        if self.threshold is None:
            return (1 - (losses - self.pace.age.to(losses)) / self.gamma).clamp(0, 1)
        return (1 - losses / self.limit.set(self.threshold).clamp_min(1e-30)).clamp(0, 1)
