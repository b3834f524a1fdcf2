"""Losses whose target is a mixture: label smoothing and bootstrapping."""

from __future__ import annotations

import math

from torch import Tensor

from reweigh.checks import flag, number
from reweigh.losses.loss import Loss, expected, pick


class LabelSmoothing(Loss):
    """Label smoothing (Szegedy 2016), L = -Σ q_j log p_j with q = (1 - ε) e_y + ε / C; gradient p - q.

    Args:
        epsilon: ε; 0 is cross entropy. Below 0 it is the backward correction of symmetric noise.
        sl_compat: the target of the published SL program, which has 1 - ε on the label and ε / 10 on every other class
            for any C: it sums to 1.89 for C = 100. Only to reproduce that row of the tables.

    >>> import torch
    >>> logits, target = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([2])
    >>> LabelSmoothing(0.1)(logits, target) - torch.nn.CrossEntropyLoss(label_smoothing=0.1)(logits, target)
    tensor(0.)
    """

    def __init__(self, epsilon: float = 0.1, sl_compat: bool = False, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.epsilon: float = number(-math.inf, 1)("LabelSmoothing's epsilon", epsilon)
        self.sl_compat = flag("LabelSmoothing's sl_compat", sl_compat)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        log_p = logits.log_softmax(1)
        own, everywhere = 1 - self.epsilon, self.epsilon / logits.shape[1]
        if self.sl_compat:
            everywhere = self.epsilon / 10
            own -= everywhere
        label = -own * pick(log_p, target)
        return label - everywhere * log_p.sum(1) if everywhere else label  # 0 log 0 = 0, because classes may be masked


class BootstrapSoft(Loss):
    """Soft bootstrapping (Reed 2015), L = -Σ q_j log p_j with q = β e_y + (1 - β) p.

    The gradient flows through q, so L = β CE + (1 - β) H(p); with q detached the second term would have none.

    Args:
        beta: β, trust in the label; 1 is cross entropy. In a run, a warm-up is a schedule: step(1, 0.95, at=[0.1]).
    """

    def __init__(self, beta: float = 0.95, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.beta: float = number(0, 1)("BootstrapSoft's beta", beta)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        log_p = logits.log_softmax(1)
        return -self.beta * pick(log_p, target) - (1 - self.beta) * expected(log_p.exp(), log_p)


class BootstrapHard(Loss):
    """Hard bootstrapping (Reed 2015), q = β e_y + (1 - β) e_ŷ with ŷ = argmax p; gradient p - q.

    Args:
        beta: β, trust in the label; 1 is cross entropy.
    """

    def __init__(self, beta: float = 0.8, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.beta: float = number(0, 1)("BootstrapHard's beta", beta)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        return bootstrapped(logits, target, self.beta)


def bootstrapped(logits: Tensor, target: Tensor, beta: float) -> Tensor:
    """Return (N,) cross entropies with the target β e_y + (1 - β) e_ŷ."""
    log_p = logits.log_softmax(1)
    return -beta * pick(log_p, target) - (1 - beta) * pick(log_p, logits.detach().argmax(1))
