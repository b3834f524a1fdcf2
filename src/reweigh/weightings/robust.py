"""Robust losses after 2017, as the weightings they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from reweigh.checks import integer
from reweigh.weightings.base import Kind, Mode, Weighting
from reweigh.weightings.losses import LOG2
from reweigh.weightings.parameter import Parameter, check, floored, holds, log_parameter, log_sum, power


@dataclass(frozen=True)
class PHuber(Weighting):
    """Partially Huberised cross entropy (Menon 2020), w = 2 (1 - p) min(1, τ p).

    f = -log p where p > 1/τ, and the tangent -τ p + log τ + 1 below.

    >>> PHuber(tau=10.0).mode
    0.1
    """

    tau: Parameter = 2.0
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "tau", self.tau, low=1)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return LOG2 + log_q + (log_parameter(self.tau, log_p) + log_p).clamp_max(0)

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return () if isinstance(self.tau, Tensor) or self.tau == 1 else (1 / self.tau,)

    @property
    def mode(self) -> Mode:
        return super().mode if isinstance(self.tau, Tensor) else min(0.5, 1 / self.tau)


@dataclass(frozen=True)
class AGCE(Weighting):
    """Asymmetric GCE (Zhou 2021), f = ((a + 1)^q - (a + p)^q) / q, w = 2 p (1 - p) (a + p)^(q - 1).

    Special cases: q = 1 is MAE, a = 0 is GCE.

    >>> AGCE(a=3.0, q=1.0)(0.25)
    0.375
    """

    a: Parameter = 0.6
    q: Parameter = 0.6
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "a", self.a, low=0)
        check(self, "q", self.q, low=0)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        log_p = floored(log_p)
        return LOG2 + log_q + (log_p + power(self.q - 1, log_sum(self.a, log_p)))


@dataclass(frozen=True)
class AUL(Weighting):
    """Asymmetric unhinged loss (Zhou 2021), f = ((a - p)^q - (a - 1)^q) / q, w = 2 p (1 - p) (a - p)^(q - 1), a >= 1.

    >>> AUL(a=2.0, q=1.0)(0.25)
    0.375
    """

    a: Parameter = 5.5
    q: Parameter = 3.0
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "a", self.a, low=1)
        check(self, "q", self.q, low=0)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        # a - p = (a - 1) + (1 - p), with no subtraction left
        log_q = floored(log_q)
        return LOG2 + log_p + (log_q + power(self.q - 1, log_sum(self.a - 1, log_q)))


@dataclass(frozen=True)
class AEL(Weighting):
    """Asymmetric exponential loss (Zhou 2021), f = exp(-p / a), w = 2 p (1 - p) exp(-p / a) / a.

    >>> round(AEL(a=2.5).mode, 3)
    0.45
    """

    a: Parameter = 2.5
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "a", self.a, low=1e-6)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return LOG2 + log_p + log_q - log_parameter(self.a, log_p) - log_p.exp() / self.a


@dataclass(frozen=True)
class ForwardSymmetric(Weighting):
    """Forward correction (Patrini 2017) for symmetric noise, f = -log(t + s p), w = 2 s p (1 - p) / (t + s p).

    t = ρ / (C - 1) and s = 1 - ρ - t. The mode rises with the noise rate: the paper's tuning rule, from a noise model.

    Args:
        rate: ρ, the share of wrong labels, below (C - 1) / C; 0 is CCE.
        num_classes: C.

    >>> round(ForwardSymmetric(rate=0.4, num_classes=10).mode, 3)
    0.214
    """

    rate: Parameter
    num_classes: int
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_classes", integer(2)("ForwardSymmetric's num_classes", self.num_classes))
        check(self, "rate", self.rate, low=0, high=1)
        limit = (self.num_classes - 1) / self.num_classes
        below = self.rate < limit
        if not (holds(below) if isinstance(below, Tensor) else below):
            raise ValueError(f"ForwardSymmetric: rate must be below (C - 1)/C = {limit:g}, got {self.rate}")

    @property
    def mixture(self) -> tuple[Parameter, Parameter]:
        """(t, s)."""
        t = self.rate / (self.num_classes - 1)
        return t, 1 - self.rate - t

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        t, s = self.mixture
        log_sp = floored(log_p) + log_parameter(s, log_p)
        return LOG2 + log_q + (log_sp - log_sum(t, log_sp))

    @property
    def mode(self) -> Mode:
        t, s = self.mixture
        if isinstance(t, Tensor) or isinstance(s, Tensor):
            return super().mode
        return (math.sqrt(t * t + t * s) - t) / s
