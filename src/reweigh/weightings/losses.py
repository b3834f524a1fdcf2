"""Weightings of losses f(p) that depend on p alone: w = -2 p (1 - p) f'(p)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from reweigh.checks import integer
from reweigh.weightings.base import FOCUS, POWERS, Form, Kind, Mode, Weighting
from reweigh.weightings.dm import Beta
from reweigh.weightings.parameter import LARGEST, Parameter, all_true, check, clamp_log, log_parameter, log_sum, power

LOG2 = math.log(2)


@dataclass(frozen=True)
class CCE(Weighting):
    """Categorical cross entropy, f = -log p, w = 2 (1 - p).

    >>> CCE()(0.25)
    1.5
    """

    kind: ClassVar[Kind] = "loss"

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return LOG2 + log_q

    @property
    def form(self) -> Form | None:
        return Form(POWERS, 0.0, 1.0, LOG2)

    @property
    def mode(self) -> Mode:
        return 0.0

    def log_integral(self) -> Tensor | None:
        return torch.zeros((), dtype=torch.float64)


@dataclass(frozen=True)
class MAE(Weighting):
    """Mean absolute error in the paper's one-term form, f = 1 - p, w = 2 p (1 - p); also known as DFT.

    The full-vector form |p - e_y|_1 is twice this.

    >>> MAE()(0.5)
    0.5
    """

    kind: ClassVar[Kind] = "loss"

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return LOG2 + log_p + log_q

    @property
    def form(self) -> Form | None:
        return Form(POWERS, 1.0, 1.0, LOG2)

    @property
    def mode(self) -> Mode:
        return 0.5


@dataclass(frozen=True)
class MSE(Weighting):
    """Mean squared error in the paper's one-term form, f = (1 - p)^2, w = 4 p (1 - p)^2; half of Brier's at C = 2.

    >>> MSE()(0.5)
    0.5
    """

    kind: ClassVar[Kind] = "loss"

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return 2 * LOG2 + log_p + 2 * log_q

    @property
    def form(self) -> Form | None:
        return Form(POWERS, 1.0, 2.0, 2 * LOG2)

    @property
    def mode(self) -> Mode:
        return 1 / 3


@dataclass(frozen=True)
class GCE(Weighting):
    """Generalised cross entropy (Zhang & Sabuncu 2018), f = (1 - p^q) / q, w = 2 p^q (1 - p).

    Args:
        q: 0 gives CCE, 1 gives MAE; larger values are allowed.

    >>> round(GCE(0.7).mode, 6)
    0.411765
    """

    q: Parameter = 0.7
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "q", self.q, low=0, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return LOG2 + power(self.q, log_p) + log_q

    @property
    def form(self) -> Form | None:
        return Form(POWERS, self.q, 1.0, LOG2)

    @property
    def mode(self) -> Mode:
        return super().mode if isinstance(self.q, Tensor) else self.q / (self.q + 1)

    def log_integral(self) -> Tensor | None:
        integral = Beta(self.q + 1, 2.0).log_integral()
        return None if integral is None else integral + LOG2


@dataclass(frozen=True)
class TruncatedGCE(Weighting):
    """Truncated GCE: w = 2 p^q (1 - p) for p > k, else 0.

    >>> TruncatedGCE(q=0.7, k=0.5)(0.4)
    0.0
    """

    q: Parameter = 0.7
    k: float = 0.5
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "q", self.q, low=0, high=LARGEST)
        check(self, "k", self.k, low=0, high=1)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        kept = log_p > log_parameter(self.k, log_p)
        return torch.where(kept, GCE(self.q).log_weight(log_p, log_q), -math.inf)

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return (self.k,) if 0 < self.k < 1 else ()


@dataclass(frozen=True)
class SL(Weighting):
    """Symmetric cross entropy (Wang 2019), f = α (-log p) + b (1 - p), w = 2 (1 - p) (α + b p).

    Args:
        alpha: weight of cross entropy.
        b: β |A|, the product of the published β and |A|; the authors' program uses 9.21 for CIFAR-10 (α = 0.1) and
            0.921 for CIFAR-100 (α = 6).

    >>> SL(alpha=1.0, b=0.0)(0.25) == CCE()(0.25)
    True
    """

    alpha: Parameter = 0.1
    b: Parameter = 9.21
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "alpha", self.alpha, low=0)
        check(self, "b", self.b, low=0)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return LOG2 + log_q + log_sum(self.alpha, log_parameter(self.b, log_p) + log_p)

    @property
    def mode(self) -> Mode:
        if isinstance(self.alpha, Tensor) or isinstance(self.b, Tensor) or self.alpha == self.b == 0:
            return super().mode
        return max(0.0, (self.b - self.alpha) / (2 * self.b)) if self.b > 0 else 0.0


@dataclass(frozen=True)
class Focal(Weighting):
    """Focal loss (Lin 2017) in its softmax form, f = -(1 - p)^γ log p.

    w = 2 (1 - p)^γ ((1 - p) - γ p log p); with `detach=True` the factor (1 - p)^γ is detached, as in
    some implementations, and w = 2 (1 - p)^(γ + 1), which is up to γ + 1 times smaller.

    >>> Focal(gamma=0.0)(0.25) == CCE()(0.25)
    True
    """

    gamma: Parameter = 2.0
    detach: bool = False
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        check(self, "gamma", self.gamma, low=0, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        outer = LOG2 + power(self.gamma, log_q)
        if self.detach:
            return outer + log_q
        # log(-p log p / q) <= 0; near p = 1 log p is too coarse: use the series -log(1 - q) = q + q²/2 + ...
        near_one, at_zero = log_q < -14, log_p == -math.inf
        far = (-log_p.masked_fill(near_one | at_zero, -1.0)).log() - log_q.masked_fill(near_one, 0.0)
        log_ratio = log_p + torch.where(near_one, log_q.exp() / 2, far)
        # log(q + γ (-p log p)), avoiding log γ, which is not differentiable at 0
        return outer + log_q + torch.log1p(self.gamma * log_ratio.exp())

    @property
    def form(self) -> Form | None:
        return Form(POWERS, 0.0, self.gamma + 1, LOG2) if self.detach else Form(FOCUS, self.gamma, 0.0, LOG2)


@dataclass(frozen=True)
class PHuber(Weighting):
    """Partially Huberised cross entropy (Menon 2020), w = 2 (1 - p) min(1, τ p).

    f = -log p for p > 1/τ, else its tangent -τ p + log τ + 1.

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
        check(self, "q", self.q, low=0, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        log_p = clamp_log(log_p)
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
        check(self, "q", self.q, low=0, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        # a - p = (a - 1) + (1 - p) avoids cancellation
        log_q = clamp_log(log_q)
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

    t = ρ / (C - 1) and s = 1 - ρ - t. The mode rises with the noise rate, as the paper recommends for DM.

    Args:
        rate: ρ, the fraction of noisy labels, below (C - 1) / C; 0 is CCE.
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
        if not (all_true(below) if isinstance(below, Tensor) else below):
            raise ValueError(f"ForwardSymmetric: rate must be below (C - 1)/C = {limit:g}, got {self.rate}")

    @property
    def mixture(self) -> tuple[Parameter, Parameter]:
        """The coefficients (t, s)."""
        t = self.rate / (self.num_classes - 1)
        return t, 1 - self.rate - t

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        t, s = self.mixture
        log_sp = clamp_log(log_p) + log_parameter(s, log_p)
        return LOG2 + log_q + (log_sp - log_sum(t, log_sp))

    @property
    def mode(self) -> Mode:
        t, s = self.mixture
        if isinstance(t, Tensor) or isinstance(s, Tensor):
            return super().mode
        return (math.sqrt(t * t + t * s) - t) / s
