"""Active-passive losses: normalised cross entropy with a passive partner."""

from __future__ import annotations

import math

from torch import Tensor

from reweigh.checks import number
from reweigh.losses.loss import Loss, pick

_POSITIVE = number(0)
_LOWEST = -1e30  # log 0 in a ratio of logarithms, in float32 as well


class NCE_RCE(Loss):  # noqa: N801  # the literature's name
    """Active-passive loss (Ma 2020), L = α NCE + β RCE.

    NCE = log p_y / Σ_k log p_k, in [0, 1] and summing to 1 over labels (0 for a single class); RCE = |A| (1 - p_y).

    Args:
        alpha: α; published are 1 for CIFAR-10 and 10 for CIFAR-100.
        beta: β; published are 1 and 0.1.
        A: value of log 0; log 1e-4 as in the published program.
    """

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, A: float = math.log(1e-4), *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.alpha, self.beta = _factors("NCE_RCE", alpha, beta)
        self.A: float = number(-math.inf, 0)("NCE_RCE's A", A)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        log_p = logits.log_softmax(1)
        passive = self.A * pick(log_p, target).expm1()
        return self.alpha * normalised(log_p, target) + self.beta * passive


class NCE_AGCE(Loss):  # noqa: N801
    """Normalised cross entropy with asymmetric GCE (Zhou 2021), L = α NCE + β ((a + 1)^q - (a + p_y)^q) / q.

    Args:
        alpha: α; published are 1 for CIFAR-10 and 10 for CIFAR-100.
        beta: β; published are 4 and 0.1.
        a: published are 6 and 1.8.
        q: published are 1.5 and 3.
    """

    def __init__(
        self, alpha: float = 1.0, beta: float = 4.0, a: float = 6.0, q: float = 1.5, *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.alpha, self.beta = _factors("NCE_AGCE", alpha, beta)
        self.a: float = _POSITIVE("NCE_AGCE's a", a)
        self.q: float = number(0, above=True)("NCE_AGCE's q", q)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        log_p = logits.log_softmax(1)
        log_own = pick(log_p, target)
        # (a + p)^q from log p, so that the derivative at p = 0 is 0 and not 0^(q - 1) * 0
        powered: Tensor = (self.q * log_own).exp() if self.a == 0 else (self.a + log_own.exp()) ** self.q
        passive = (float((self.a + 1) ** self.q) - powered) / self.q
        return self.alpha * normalised(log_p, target) + self.beta * passive


class ANL_CE(Loss):  # noqa: N801
    """Active negative loss (Ye 2023), L = α NCE + β NNCE, NNCE = 1 - (a + log p_y) / Σ_k (a + log p_k), a = -log 1e-7.

    Probabilities are clamped to at least 1e-7 in NNCE. The published recipe replaces weight decay by an L1 penalty on
    the weights, as the method `ANL` does.

    Args:
        alpha: α; published are 5 for CIFAR-10 and 10 for CIFAR-100.
        beta: β; published are 5 and 1.
    """

    def __init__(self, alpha: float = 5.0, beta: float = 5.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.alpha, self.beta = _factors("ANL_CE", alpha, beta)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        log_p = logits.log_softmax(1)
        lifted = (log_p - math.log(1e-7)).clamp_min(0)
        return self.alpha * normalised(log_p, target) + self.beta * (1 - pick(lifted, target) / lifted.sum(1))


def normalised(log_p: Tensor, target: Tensor) -> Tensor:
    """Return NCE = log p_y / Σ_k log p_k; 0 for a single class; where p_y is 0, its limit 1 without a gradient.

    >>> import torch
    >>> normalised(torch.tensor([[-torch.inf, -0.7, -0.7]]), torch.tensor([0]))
    tensor([1.])
    """
    log_p = log_p.clamp_min(_LOWEST)
    own = pick(log_p, target)
    return own if log_p.shape[1] == 1 else own / log_p.sum(1)


def _factors(owner: str, alpha: float, beta: float) -> tuple[float, float]:
    return _POSITIVE(f"{owner}'s alpha", alpha), _POSITIVE(f"{owner}'s beta", beta)
