"""Curriculum learning (Bengio 2009): train on easy examples first, class by class."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.checks import number, one_of
from reweigh.lab.batches import Batch, Shuffled
from reweigh.lab.methods.base import BaseMethod, constant_graph, gradient_norm, row_losses
from reweigh.lab.methods.protocol import Context
from reweigh.noise.files import read_array
from reweigh.streams import generator


class Curriculum(BaseMethod):
    """Cross entropy on the easiest fraction g of every class.

    g grows from `start` to `end` over the first `until` of training, epoch by epoch:

        linear         start + (end - start) t / until
        exponential    start (end / start)^(t / until)
        step           start, from `until` on end

    With `end` below 1 the hardest examples, which hold most of the noisy labels, are never used.

    Args:
        file: a .npy of (N,) difficulties, in the order of the training part; larger is harder.
        hash: the first digits of the expected sha256 of the file.
        start, end: in (0, 1], start <= end; start = 1 is plain cross entropy.
        until: in (0, 1].
        pacing: linear, exponential or step.
    """

    capture_key = constant_graph  # only the order of the batches changes

    def __init__(
        self,
        context: Context,
        file: str,
        hash: str | None = None,
        start: float = 0.3,
        until: float = 0.5,
        end: float = 1.0,
        pacing: str = "linear",
    ) -> None:
        super().__init__(context)
        order = context.batches.order
        if not isinstance(order, Shuffled):
            raise ValueError(f"Curriculum orders the examples itself: sampler must be 'shuffled', not {order}")
        difficulty = read_array(file, (len(context.labels),), hash=hash)
        fraction = fraction_at(start, until, end, pacing)
        context.batches.order = Paced(
            difficulty, context.labels, order.batch_size, order.seed, lambda step: fraction(step / context.total)
        )

    def loss(self, batch: Batch, step: int) -> Tensor:
        return row_losses(self.net(batch.inputs), batch.target).mean()

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        return gradient_norm(torch.ones_like(losses), losses)


def fraction_at(start: float, until: float, end: float, pacing: str) -> Callable[[float], float]:
    """Return the pacing function: time in [0, 1] -> fraction of examples in use.

    >>> [round(fraction_at(0.2, 0.5, 0.8, kind)(0.25), 3) for kind in ("linear", "exponential", "step")]
    [0.5, 0.4, 0.2]
    """
    kind = one_of("linear", "exponential", "step")("Curriculum's pacing", pacing)
    last: float = number(0, 1, above=True)("Curriculum's end", end)
    first: float = number(0, last, above=True)("Curriculum's start", start)
    span: float = number(0, 1, above=True)("Curriculum's until", until)

    def fraction(time: float) -> float:
        if time >= span:
            return last
        if kind == "step":
            return first
        passed = time / span
        return first + (last - first) * passed if kind == "linear" else first * (last / first) ** passed

    return fraction


class Paced:
    """Order of the batches: every epoch a new random order of the examples in use, repeated until the epoch ends.

    An epoch has as many batches as one of all examples. When all examples are in use, the order is that of `Shuffled`.

    Args:
        difficulty: (N,), larger is harder.
        labels: (N,); every class is paced separately, so that none is lost.
        batch_size: examples per step.
        seed: of the run; the stream is "order".
        fraction: step -> number in (0, 1], evaluated at the first step of every epoch.
    """

    def __init__(
        self,
        difficulty: NDArray[np.float64],
        labels: NDArray[np.int64],
        batch_size: int,
        seed: int,
        fraction: Callable[[int], float],
    ) -> None:
        self.batch_size, self.seed, self.fraction = batch_size, seed, fraction
        self.rank = np.empty(len(labels), np.int64)  # within the class, easiest first
        self.size = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            self.rank[members[np.argsort(difficulty[members], kind="stable")]] = np.arange(len(members))
            self.size[members] = len(members)

    def visible(self, step: int) -> NDArray[np.bool_]:
        """Return (N,) which examples are in use, at least one of every class."""
        allowed = np.maximum(1, np.ceil(self.fraction(step) * self.size - 1e-9))
        return np.asarray(self.rank < allowed)

    def __call__(self, steps: range) -> Tensor:
        """Return (len(steps), batch_size) indices."""
        n = len(self.rank)
        per_epoch = max(1, n // self.batch_size)
        rows = []
        for epoch, group in groupby(steps, key=lambda step: step // per_epoch):
            permutation = torch.randperm(n, generator=generator(self.seed, "order", epoch))
            permutation = permutation[torch.from_numpy(self.visible(epoch * per_epoch))[permutation]]
            first = torch.tensor([step % per_epoch for step in group]) * self.batch_size
            rows.append(permutation[(first[:, None] + torch.arange(self.batch_size)) % len(permutation)])
        return torch.cat(rows) if rows else torch.empty(0, self.batch_size, dtype=torch.int64)
