"""Methods for class imbalance: class-balanced weights (Cui 2019) and LDAM with its cosine head (Cao 2019)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch, constant_graph, gradient_norm, row_losses
from reweigh.lab.methods.protocol import Context
from reweigh.lab.nets import Net
from reweigh.losses.prior import checked_counts
from reweigh.margin import at_least_float32
from reweigh.streams import generator


def class_weights(class_counts: npt.ArrayLike, beta: float) -> Tensor:
    """Return (C,) c_j ∝ (1 - β) / (1 - β^n_j) with Σ c = C; a class without examples has 0.

    β = 0 is uniform, β → 1 gives 1 / n_j.

    >>> class_weights([1, 3], 0.5)
    tensor([1.2727, 0.7273], dtype=torch.float64)
    """
    counts = checked_counts("ClassBalanced", class_counts)
    beta = number(0, 1, below=True)("ClassBalanced's beta", beta)
    log_beta = math.log(beta) if beta > 0 else -1e3
    present = counts > 0
    weights = np.where(present, -1 / np.expm1(np.where(present, counts, 1) * log_beta), 0.0)
    return torch.from_numpy(weights * len(counts) / weights.sum())


class ClassBalanced(BaseMethod):
    """Cross entropy with a weight per class, L = Σ c_y l / B; torch's `weight` divides by Σ c_y instead of B.

    Args:
        beta: β in [0, 1).
    """

    capture_key = constant_graph

    def __init__(self, context: Context, beta: float = 0.9999) -> None:
        super().__init__(context)
        counts = np.bincount(context.labels, minlength=context.num_classes)
        self.c = class_weights(counts, beta).to(context.device, torch.float32)

    def loss(self, batch: Batch, step: int) -> Tensor:
        return (self.c[batch.target] * row_losses(self.net(batch.inputs), batch.target)).mean()

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        return gradient_norm(self.c[target], row_losses(logits, target))


class CosineLinear(nn.Linear):
    """Logits s cos(h, w_c): features and class vectors normalised, no bias.

    Args:
        in_features, out_features: as in `nn.Linear`.
        scale: s.
    """

    def __init__(self, in_features: int, out_features: int, scale: float = 30.0) -> None:
        super().__init__(in_features, out_features, bias=False)
        self.scale = scale

    def forward(self, input: Tensor) -> Tensor:
        return self.scale * functional.linear(functional.normalize(input), functional.normalize(self.weight))


def margins(class_counts: npt.ArrayLike, max_margin: float = 0.5) -> Tensor:
    """Return (C,) m_j = max_margin (n_min / n_j)^(1/4), largest for the rarest class; 0 for a class without examples.

    >>> margins([16, 1], 0.5)
    tensor([0.2500, 0.5000], dtype=torch.float64)
    """
    counts = torch.from_numpy(checked_counts("LDAM", class_counts))
    least = counts[counts > 0].min()
    return torch.where(counts > 0, max_margin * (least / counts.clamp_min(1)) ** 0.25, 0.0)


class LDAM(BaseMethod):
    """Cross entropy of s (cos θ - m_y e_y); from epoch `drw_at` on with class-balanced weights.

    The net's classifier is replaced by a cosine head whose logits are s cos θ. In terms of p = softmax(s cos θ)_y it is
    a weighting with m = 1 / (1 - p (1 - e^(-s m_y))).

    Args:
        max_margin: the margin of the rarest class.
        scale: s.
        drw_at: the first epoch, from 0, with class weights; published is 160 of 200; None for never.
        beta: of the class weights.
    """

    times: ClassVar[dict[str, int]] = {"drw_at": 0}

    def __init__(
        self,
        context: Context,
        max_margin: float = 0.5,
        scale: float = 30.0,
        drw_at: int | None = None,
        beta: float = 0.9999,
    ) -> None:
        super().__init__(context)
        if not isinstance(context.net, Net):
            raise TypeError(f"LDAM needs a net with a classifier, not {type(context.net).__name__}")
        counts = np.bincount(context.labels, minlength=context.num_classes)
        self.scale: float = number(0, above=True)("LDAM's scale", scale)
        self.shift = self.scale * margins(counts, number(0)("LDAM's max_margin", max_margin))
        self.shift = self.shift.to(context.device, torch.float32)
        self.drw_at: int | None = None if drw_at is None else check_start_epoch(context, "LDAM's drw_at", drw_at)
        self.c = class_weights(counts, beta).to(context.device, torch.float32)
        old = context.net.classifier
        with torch.device("meta"):  # torch would draw initial values from its global generator
            head = CosineLinear(old.in_features, old.out_features, self.scale)
        head = head.to_empty(device="cpu")
        with torch.no_grad():
            head.weight.copy_(torch.randn(head.weight.shape, generator=generator(context.seed, "cosine head")))
        context.net.fc = head.to(context.device)

    def capture_key(self, step: int) -> Hashable:
        return self.reweighted(step)

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = self.losses(self.net(batch.inputs), batch.target)
        if self.reweighted(step):
            losses = self.c[batch.target] * losses
        return losses.mean()

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return (B,) cross entropies with the margin subtracted from the target's logit."""
        own = target[:, None] == torch.arange(logits.shape[1], device=target.device)
        return row_losses(at_least_float32(logits) - own * self.shift[target, None], target)

    def reweighted(self, step: int) -> bool:
        return self.drw_at is not None and step // self.context.epoch >= self.drw_at

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        factor = weighting_factor((-losses).exp(), self.shift[target])
        return gradient_norm(factor * self.c[target] if self.reweighted(step) else factor, losses)


def weighting_factor(p: Tensor, shift: Tensor) -> Tensor:
    """Return m(p) = 1 / (1 - p (1 - e^(-s m_y))), the ratio of LDAM's gradient to that of cross entropy.

    >>> weighting_factor(torch.tensor([0.0, 1.0]), torch.tensor([4.0, 4.0]).log())
    tensor([1., 4.])
    """
    return 1 / (1 + p * (-shift).expm1())
