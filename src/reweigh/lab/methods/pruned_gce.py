"""Truncated GCE with pruning (Zhang & Sabuncu 2018)."""

from __future__ import annotations

from copy import deepcopy
from typing import ClassVar

import torch
from torch import Tensor

from reweigh.checks import integer, number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import (
    BaseMethod,
    check_start_epoch,
    constant_graph,
    gradient_norm,
    logits_of,
    row_losses,
    snapshot,
)
from reweigh.lab.methods.protocol import Context


class PrunedGCE(BaseMethod):
    """GCE on the examples with v = 1, where v = 1[p > k] is updated for the training set every few epochs.

    The objective is Σ v (l_q(p) - l_q(k)), its gradient v p^q g. Before epoch `start`, counted from 1, and every
    `every` epochs after it, all training images pass unaugmented and in evaluation mode through the best model so far
    by accuracy on the trusted examples, or through the current one if the run has none. An update that would prune
    everything is skipped.

    The public program prunes before the same epochs, but with augmented images and by the best model on the test set,
    and its optimiser does not reach the net that it trains in such an epoch. Here that net is never replaced.

    Args:
        q: of GCE.
        k: threshold on p.
        start: epoch, counted from 1, before which the first pruning takes place, at the earliest before the second.
        every: epochs between prunings.
    """

    times: ClassVar[dict[str, int]] = {"start": 0, "every": 1}
    saved: ClassVar[tuple[str, ...]] = ("kept_examples", "best", "best_accuracy")
    capture_key = constant_graph

    def __init__(self, context: Context, q: float = 0.7, k: float = 0.5, start: int = 40, every: int = 10) -> None:
        super().__init__(context)
        self.q: float = number(0)("PrunedGCE's q", q)
        self.k: float = number(0, 1, below=True)("PrunedGCE's k", k)
        self.start = check_start_epoch(context, "PrunedGCE's start", start)
        self.every: int = integer(1)("PrunedGCE's every", every)
        self.kept_examples = torch.ones(len(context.labels), dtype=torch.bool, device=context.device)
        self.best: dict[str, Tensor] | None = None
        self.best_accuracy = -1.0

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        # p^q as a constant factor: the composed derivative would contain p^(q - 1)
        return (self.v(losses.detach(), batch.index) * losses).mean()

    def v(self, losses: Tensor, index: Tensor) -> Tensor:
        return self.kept_examples[index] * (-self.q * losses).exp()

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        return gradient_norm(self.v(losses, index), losses)

    def epoch_end(self, epoch: int) -> None:
        if self.context.trusted is not None:
            logits, target, _ = logits_of(self.net, self.context.trusted.evaluation())
            accuracy = (logits.argmax(1) == target).double().mean().item()
            if accuracy > self.best_accuracy:
                self.best, self.best_accuracy = snapshot(self.net), accuracy
        since = epoch + 2 - self.start  # the next epoch, counted from 1
        if since >= 0 and since % self.every == 0:
            self.prune()

    def prune(self) -> None:
        """Update v for every training example."""
        net = self.net
        if self.best is not None:
            net = deepcopy(net)
            net.load_state_dict(self.best)
        logits, target, index = logits_of(net, self.context.batches.evaluation())
        chosen = torch.zeros_like(self.kept_examples)
        chosen[index] = (-row_losses(logits, target)).exp() > self.k
        if chosen.any():
            self.kept_examples.copy_(chosen)
