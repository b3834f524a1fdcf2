"""Cross entropy with soft labels, and Joint Optimisation (Tanaka 2018), which learns them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import integer, number, one_of
from reweigh.errors import DataError
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph, row_losses
from reweigh.lab.methods.protocol import Context
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.losses.loss import expected
from reweigh.margin import at_least_float32
from reweigh.noise.files import array_bytes, read_array


class SoftLabels(BaseMethod):
    """L = -Σ_j Y_ij log p_ij, where row i of the file is the label of example i; the given labels are not used.

    Args:
        file: a .npy of (N, C) probabilities, in the order of the training part.
        hash: the first digits of the expected sha256 of the file.
    """

    capture_key = constant_graph

    def __init__(self, context: Context, file: str, hash: str | None = None) -> None:
        super().__init__(context)
        rows = read_array(file, (len(context.labels), context.num_classes), hash=hash)
        wrong = np.flatnonzero((rows < 0).any(1) | (np.abs(rows.sum(1) - 1) > 1e-4))
        if wrong.size:
            raise DataError(
                f"{file}: row {wrong[0]} is not a distribution over classes: it sums to {rows[wrong[0]].sum()}"
            )
        self.soft = torch.from_numpy(rows.astype(np.float32)).to(context.device)

    def loss(self, batch: Batch, step: int) -> Tensor:
        return row_losses(self.net(batch.inputs), self.soft[batch.index]).mean()


class JointLabels(BaseMethod):
    """First phase of Joint Optimisation, which learns net and labels in turn: L = CE(Y, p) + α L_p + β L_e.

    From epoch `begin` on, Y is the mean of the last predictions of every example.

        L_p = -Σ_j π_j log s_j, s = mean p over the batch      keeps predictions from collapsing to one class
        L_e = mean H(p)                                        makes predictions confident

    An epoch's predictions are those of its training passes: training mode, augmented. At the end of epoch t, counted
    from 1, they go to slot (t - 1) mod `slots`; an example that the epoch skipped keeps the previous one. The labels
    change only with a high, constant learning rate. After the last epoch Y is written to `file` for `SoftLabels`.

    Args:
        file: the .npy file for the soft labels.
        alpha: α; published are 1.2 for symmetric and 0.8 for asymmetric noise.
        beta: β; published are 0.8 and 0.4.
        begin: the first epoch, from 1, at the end of which the labels change.
        slots: number of epochs that are averaged.
        prior: π: "uniform", or the frequencies of the "given" labels.
    """

    times: ClassVar[dict[str, int]] = {"begin": 1, "slots": 1}
    saved: ClassVar[tuple[str, ...]] = ("labels", "latest", "buffer")
    capture_key = constant_graph

    def __init__(
        self,
        context: Context,
        file: str,
        alpha: float = 1.2,
        beta: float = 0.8,
        begin: int = 70,
        slots: int = 10,
        prior: str = "uniform",
    ) -> None:
        super().__init__(context)
        self.file = Path(file)
        self.alpha: float = number(0)("JointLabels's alpha", alpha)
        self.beta: float = number(0)("JointLabels's beta", beta)
        self.begin: int = integer(1)("JointLabels's begin", begin)
        self.slots: int = integer(1)("JointLabels's slots", slots)
        self.last = context.total // context.epoch  # epochs of the run
        if self.begin > self.last:
            raise ValueError(
                f"JointLabels's begin is {self.begin}, but the run has {self.last} epochs: no label would change"
            )
        given = torch.from_numpy(context.labels.copy()).to(context.device)
        self.labels = functional.one_hot(given, context.num_classes).float()
        self.prior = torch.full((context.num_classes,), 1 / context.num_classes, device=context.device)
        if one_of("uniform", "given")("JointLabels's prior", prior) == "given":
            self.prior = self.labels.mean(0)
        self.latest = self.labels.clone()
        self.buffer = torch.zeros(self.slots, *self.labels.shape, device=context.device)

    def loss(self, batch: Batch, step: int) -> Tensor:
        log_p = at_least_float32(self.net(batch.inputs)).log_softmax(1)
        self.latest[batch.index] = log_p.detach().exp()
        own = -expected(self.labels[batch.index], log_p).mean()
        return own + self.alpha * prior_loss(log_p, self.prior) + self.beta * entropy_loss(log_p)

    def epoch_end(self, epoch: int) -> None:
        self.buffer[epoch % self.slots] = self.latest
        if epoch + 1 >= self.begin:
            self.labels.copy_(self.buffer[: epoch + 1].mean(0))  # at first, the mean of the slots filled so far
        if epoch + 1 == self.last:
            content = array_bytes(self.labels.cpu().numpy().astype(np.float32))
            make_folder(self.file.parent)
            replace_file(self.file, lambda file: file.write(content))


def prior_loss(log_p: Tensor, prior: Tensor) -> Tensor:
    """Return -Σ_j π_j log s_j with s = mean p, from the (B, C) log probabilities."""
    return -(prior * (log_p.logsumexp(0) - math.log(len(log_p)))).sum()


def entropy_loss(log_p: Tensor) -> Tensor:
    """Return the mean entropy of the rows."""
    return -expected(log_p.exp(), log_p).mean()
