"""Active Bias (Chang 2017): emphasise examples whose prediction fluctuates or is close to the threshold."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor

from reweigh.checks import number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch, gradient_norm, row_losses
from reweigh.lab.methods.protocol import Context


class ActiveBias(BaseMethod):
    """L = Σ v l / B with v = u / mean(u), u from the history H of the example's p, one entry per visit.

    "variance" (SGD-WPV): u = sqrt(var H + (var H)² / (|H| - 1)) + ε; "closeness" (SGD-WTC): u = H̄ (1 - H̄) + ε.
    The variance divides by |H|. The history is kept as Welford's running count, mean and sum of squares. An example
    that occurs twice in a batch is recorded once.

    Args:
        form: "variance" or "closeness".
        warm_up: epochs with v = 1.
        epsilon: ε > 0; large is cross entropy.
        mean_over: take mean(u) over the training "set", as in the paper, or the "batch", as in public code.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}
    saved: ClassVar[tuple[str, ...]] = ("count", "mean", "squares")

    def __init__(
        self,
        context: Context,
        form: str = "variance",
        warm_up: int = 15,
        epsilon: float = 0.2,
        mean_over: str = "set",
    ) -> None:
        super().__init__(context)
        self.form: str = one_of("variance", "closeness")("ActiveBias's form", form)
        self.warm_up = check_start_epoch(context, "ActiveBias's warm_up", warm_up)
        self.epsilon: float = number(0, above=True)("ActiveBias's epsilon", epsilon)
        self.mean_over: str = one_of("set", "batch")("ActiveBias's mean_over", mean_over)
        self.count, self.mean, self.squares = (
            torch.zeros(len(context.labels), device=context.device) for _ in range(3)
        )

    def capture_key(self, step: int) -> Hashable:
        return self.warming(step)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        v = self.v(batch.index, step)
        self.record(batch.index, (-losses.detach()).exp())
        return (v * losses).mean()

    def record(self, index: Tensor, p: Tensor) -> None:
        """Add an entry to the histories of these examples."""
        count = self.count[index] + 1
        before = p - self.mean[index]
        mean = self.mean[index] + before / count
        self.squares[index] = self.squares[index] + before * (p - mean)
        self.count[index], self.mean[index] = count, mean

    def v(self, index: Tensor, step: int) -> Tensor:
        """Return (B,) weights from the histories so far."""
        if self.warming(step):
            return torch.ones_like(self.mean[index])
        own = self.u(index)
        everyone = torch.arange(len(self.mean), device=self.mean.device)
        return own / (own if self.mean_over == "batch" else self.u(everyone)).mean()

    def warming(self, step: int) -> bool:
        return step // self.context.epoch < self.warm_up

    def u(self, index: Tensor) -> Tensor:
        """Return unnormalised weights."""
        mean, count = self.mean[index], self.count[index]
        if self.form == "closeness":
            return mean * (1 - mean) + self.epsilon
        variance = self.squares[index] / count.clamp_min(1)
        return (variance + variance.square() / (count - 1).clamp_min(1)).sqrt() + self.epsilon

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        return gradient_norm(self.v(index, step), row_losses(logits, target))
