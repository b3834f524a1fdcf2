"""S-adaptation (Goldberger & Ben-Reuven 2017): a learned noise channel after the classifier, not used at test time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor, nn

from reweigh.checks import integer, number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch, logits_of, row_losses
from reweigh.lab.methods.protocol import Context
from reweigh.lab.nets import Net
from reweigh.margin import at_least_float32


class Channel(nn.Module):
    """log Θ[i, j] = log softmax_j(b_ij + U_ij · h), with U only in the complex form.

    b is a fixed start plus a learned change, so that weight decay pulls it to its start and not to the uniform channel.

    Args:
        log_start: (C, C) logarithms of the initial channel.
        features: H, length of h in the complex form; 0 for the simple one.
    """

    start: Tensor

    def __init__(self, log_start: Tensor, features: int = 0) -> None:
        super().__init__()
        self.register_buffer("start", log_start)
        self.change = nn.Parameter(torch.zeros_like(log_start))
        classes = len(log_start)
        self.U = nn.Parameter(log_start.new_zeros(classes * classes, features)) if features else None

    def forward(self, features: Tensor) -> Tensor:
        """Return (C, C), or (B, C, C) in the complex form."""
        bias = self.start + self.change
        if self.U is None:
            return bias.log_softmax(-1)
        with torch.autocast(features.device.type, enabled=False):
            own = at_least_float32(features) @ self.U.T
        return (bias + own.reshape(-1, *bias.shape)).log_softmax(-1)


class SAdaptation(BaseMethod):
    """Maximum likelihood of the given labels through a channel, q = p Θ, L = (1 - β) (-log q_y) + β (-log p_y).

    After `warm_up` epochs of cross entropy, the channel starts as the confusion matrix of predicted and given labels on
    the training set; without a warm-up, as symmetric noise. U starts at 0. The classifier p predicts without it.

    Args:
        kind: "simple" is one matrix, "complex" one that depends on the penultimate features.
        warm_up: epochs of cross entropy.
        beta: β; 0 is the method, 1 is cross entropy.
        noise: rate of the initial channel without a warm-up.
        top: number of entries kept in each row of the initial channel; None for all.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}
    reads_features: ClassVar[bool] = True

    def __init__(
        self,
        context: Context,
        kind: str = "simple",
        warm_up: int = 10,
        beta: float = 0.0,
        noise: float = 0.1,
        top: int | None = None,
    ) -> None:
        super().__init__(context)
        if not isinstance(context.net, Net):
            raise TypeError(f"SAdaptation needs a net with features, not {type(context.net).__name__}")
        self.body, classes = context.net, context.num_classes
        complex_form = one_of("simple", "complex")("SAdaptation's kind", kind) == "complex"
        self.warm_up = check_start_epoch(context, "SAdaptation's warm_up", warm_up)
        self.beta: float = number(0, 1)("SAdaptation's beta", beta)
        self.top = classes if top is None else integer(1, classes)("SAdaptation's top", top)
        rate = number(0, 1, above=True, below=True)("SAdaptation's noise", noise)
        matrix = torch.full((classes, classes), rate / (classes - 1)).fill_diagonal_(1 - rate)
        features = context.net.classifier.in_features if complex_form else 0
        self.channel = Channel(log_channel(matrix, self.top), features).to(context.device)
        self.trainable = nn.ModuleDict({"net": self.net, "channel": self.channel})

    def capture_key(self, step: int) -> Hashable:
        return self.warming(step)

    def loss(self, batch: Batch, step: int) -> Tensor:
        h = self.body.features(batch.inputs)
        logits = self.body.classified(h)
        plain = row_losses(logits, batch.target)
        if self.warming(step):
            return plain.mean()
        through = channel_losses(logits, self.channel(h), batch.target)
        return ((1 - self.beta) * through + self.beta * plain).mean()

    def warming(self, step: int) -> bool:
        return step // self.context.epoch < self.warm_up

    def epoch_end(self, epoch: int) -> None:
        if epoch + 1 != self.warm_up:
            return
        logits, target, _ = logits_of(self.net, self.context.batches.evaluation())
        classes = self.context.num_classes
        pairs = (classes * logits.argmax(1) + target).bincount(minlength=classes**2)
        self.channel.start.copy_(log_channel(rows_of(pairs.reshape(classes, classes)), self.top))


def channel_losses(logits: Tensor, log_channel: Tensor, target: Tensor) -> Tensor:
    """Return (B,) -log Σ_i p_i Θ[i, y].

    >>> theta = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    >>> logits = torch.tensor([[0.6, 0.3, 0.1]]).log().expand(3, -1)
    >>> (-channel_losses(logits, theta.log(), torch.arange(3))).exp()
    tensor([0.5500, 0.3000, 0.1500])
    """
    if log_channel.ndim == 2:
        column = log_channel.T[target]
    else:
        column = log_channel[torch.arange(len(target), device=target.device), :, target]
    return -(at_least_float32(logits).log_softmax(1) + column).logsumexp(1)


def rows_of(counts: Tensor) -> Tensor:
    """Normalise counts [predicted, given] by rows; a class that is never predicted gets a row of the identity."""
    total = counts.sum(1, keepdim=True)
    identity = torch.eye(len(counts), device=counts.device)
    return torch.where(total > 0, counts / total.clamp_min(1), identity)


def log_channel(matrix: Tensor, top: int) -> Tensor:
    """Return log(M + 1e-8) with all but the `top` largest entries of each row excluded; the earlier of equals stays."""
    rest = matrix.argsort(dim=1, descending=True, stable=True)[:, top:]
    return (matrix + 1e-8).log().scatter(1, rest, -1e4)  # not -inf, whose derivatives would be NaN
