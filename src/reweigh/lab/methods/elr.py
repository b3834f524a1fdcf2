"""Early-learning regularisation (Liu 2020)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import flag, number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph
from reweigh.lab.methods.protocol import Context
from reweigh.margin import at_least_float32


class ELR(BaseMethod):
    """L = CE + λ mean log(1 - <t_i, p_i>), t_i a running average of the example's own predictions.

    On each visit t_i ← β t_i + (1 - β) p_i first, p_i detached, clamped to [1e-4, 1 - 1e-4] and normalised; then the
    loss. Since t never exceeds its clamp, the logarithm is bounded, and the gradient is
    g - λ p ⊙ (t - <t, p>) / (1 - <t, p>) exactly. The loss is negative by design. An example that occurs twice in a
    batch is averaged once.

    Args:
        lam: λ; published are 3 for CIFAR-10, 1 with asymmetric noise, 7 for CIFAR-100.
        beta: β in [0, 1); published are 0.7, 0.9 and 0.9.
        half: store t, N x C numbers, in float16.
    """

    saved: ClassVar[tuple[str, ...]] = ("t",)
    capture_key = constant_graph

    def __init__(self, context: Context, lam: float = 3.0, beta: float = 0.7, half: bool = False) -> None:
        super().__init__(context)
        self.lam: float = number(0)("ELR's lam", lam)
        self.beta: float = number(0, 1, below=True)("ELR's beta", beta)
        kind = torch.float16 if flag("ELR's half", half) else torch.float32
        self.t = torch.zeros(len(context.labels), context.num_classes, dtype=kind, device=context.device)

    def loss(self, batch: Batch, step: int) -> Tensor:
        logits = at_least_float32(self.net(batch.inputs))
        p = logits.softmax(1)
        seen = p.detach().clamp(1e-4, 1 - 1e-4)
        t = self.beta * self.t[batch.index].to(p.dtype) + (1 - self.beta) * seen / seen.sum(1, keepdim=True)
        # float16 would round 0.9999 to 1, and the logarithm would be unbounded
        self.t[batch.index] = t.clamp_max(1 - torch.finfo(self.t.dtype).eps / 2).to(self.t.dtype)
        return functional.cross_entropy(logits, batch.target) + self.lam * (1 - (t * p).sum(1)).log().mean()
