"""Online soft mining and class-aware attention (Wang 2019): a contrastive loss over weighted pairs, and cross entropy.

No program was published. The formulas are those that later programs agree on; `OSMCAA` lists what had to be chosen.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph, row_losses
from reweigh.lab.methods.protocol import Context
from reweigh.lab.nets import Net
from reweigh.margin import at_least_float32


class OSMCAA(BaseMethod):
    """L = cce CE + (1 - λ) L_P + λ L_N over the pairs of the batch, weighted by distance and confidence.

    With unit features f, their distances d and the unit rows c of the classifier,

        a_i = softmax_k(f_i · c_k / temperature) at k = y_i,    a_ij = min(a_i, a_j)
        w+ = exp(-d² / σ²) a_ij,    L_P = 1/2 Σ w+ d² / Σ w+                    over pairs of one label
        w- = max(0, α - d) a_ij,    L_N = 1/2 Σ w- max(0, α - d)² / Σ w-        over pairs of two

    The weights are constants: no gradient passes through them. Two details are chosen here, because they are not
    published: the attention's temperature is 0.18, a published number without a stated use, and cross entropy has
    weight 1. A batch
    without a pair of a kind, or with all negatives beyond α, gives that part no gradient.

    Args:
        alpha: α, the margin of negatives, in (0, 2].
        sigma: σ of the mining of positives.
        temperature: of the attention's softmax.
        lam: λ in [0, 1].
        cce: weight of cross entropy.
    """

    capture_key = constant_graph
    reads_features: ClassVar[bool] = True

    def __init__(
        self,
        context: Context,
        alpha: float = 1.2,
        sigma: float = 0.8,
        temperature: float = 0.18,
        lam: float = 0.5,
        cce: float = 1.0,
    ) -> None:
        super().__init__(context)
        if not isinstance(context.net, Net):
            raise TypeError(f"OSMCAA needs a net with features, not {type(context.net).__name__}")
        self.body = context.net
        self.alpha: float = number(0, 2, above=True)("OSMCAA's alpha", alpha)
        self.sigma: float = number(0, above=True)("OSMCAA's sigma", sigma)
        self.temperature: float = number(0, above=True)("OSMCAA's temperature", temperature)
        self.lam: float = number(0, 1)("OSMCAA's lam", lam)
        self.cce: float = number(0)("OSMCAA's cce", cce)

    def loss(self, batch: Batch, step: int) -> Tensor:
        h = self.body.features(batch.inputs)
        own = row_losses(self.body.classified(h), batch.target).mean()
        unit = functional.normalize(at_least_float32(h))
        a = attention(unit.detach(), batch.target, self.body.classifier.weight.detach(), self.temperature)
        positive, negative = pair_losses(unit, batch.target, a, self.alpha, self.sigma)
        return self.cce * own + (1 - self.lam) * positive + self.lam * negative


def attention(unit: Tensor, target: Tensor, vectors: Tensor, temperature: float = 0.18) -> Tensor:
    """Return (B,) the confidence of the classifier in each label: softmax_k(f · c_k / temperature) at k = y.

    Args:
        unit: (B, F) unit features.
        target: (B,) labels.
        vectors: (C, F) class vectors, of any length.
        temperature: divides the cosines.

    >>> attention(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), torch.tensor([0, 0]), torch.eye(2), 1.0)
    tensor([0.7311, 0.5498])
    """
    with torch.autocast(unit.device.type, enabled=False):
        cosines = unit @ functional.normalize(vectors.to(unit)).T
    return (cosines / temperature).softmax(1).gather(1, target[:, None]).squeeze(1)


def pair_losses(
    unit: Tensor, target: Tensor, trust: Tensor, alpha: float = 1.2, sigma: float = 0.8
) -> tuple[Tensor, Tensor]:
    """Return L_P and L_N of unit features (B, F), labels (B,) and their attention (B,), as in `OSMCAA`."""
    with torch.autocast(unit.device.type, enabled=False):
        square = (unit.square().sum(1)[:, None] + unit.square().sum(1) - 2 * unit @ unit.T).clamp_min(0)
    inside = (alpha - square.clamp_min(1e-12).sqrt()).clamp_min(0)  # clamped, because √ has no derivative at 0
    both = torch.minimum(trust[:, None], trust)
    same = target[:, None] == target
    pairs = torch.ones_like(same).triu(1)  # every pair of two examples once
    near = (-square / sigma**2).exp()
    positive = _weighted_mean(square, near * both, same & pairs)
    return positive / 2, _weighted_mean(inside.square(), inside * both, ~same & pairs) / 2


def _weighted_mean(values: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    w = weights.detach() * chosen
    return (w * values).sum() / w.sum().clamp_min(torch.finfo(w.dtype).tiny)
