"""Emphasis densities of the paper: DM and its normal, exponential and beta variants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.weightings.base import BELL, EMPHASIS, POWERS, Form, Mode, Weighting
from reweigh.weightings.parameter import LARGEST, Parameter, check, power


@dataclass(frozen=True)
class DM(Weighting):
    """Derivative manipulation, w = exp(β p^λ (1 - p)), the paper's unified form.

    Args:
        lam: λ >= 0 sets the emphasis mode, ψ = λ / (λ + 1) for β > 0.
        beta: β sets the emphasis variance; 0 weights all examples equally.

    Special cases: λ = 0 is `Exponential(beta)`; λ = 1 is `Normal(0.5, beta)` and `IMAE(beta)`; β = 0 is `Uniform()`.

    >>> DM(lam=0.5, beta=12)(0.5)
    69.591...
    >>> round(DM(lam=2, beta=8).mode, 6)
    0.666667
    """

    lam: Parameter
    beta: Parameter

    def __post_init__(self) -> None:
        check(self, "lam", self.lam, low=0, high=LARGEST)
        check(self, "beta", self.beta, low=-LARGEST, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        if isinstance(self.lam, Tensor):
            return self.beta * (power(self.lam, log_p) + log_q).exp()
        # fewer operations for a scalar λ, and a float β saves a conversion; at λ = 0, log p may be -inf and is left out
        beta = self.beta if isinstance(self.beta, Tensor) else float(self.beta)
        return beta * (torch.add(log_q, log_p, alpha=self.lam) if self.lam else log_q).exp()

    @property
    def form(self) -> Form | None:
        return Form(EMPHASIS, self.lam, self.beta)

    @property
    def mode(self) -> Mode:
        if isinstance(self.lam, Tensor) or isinstance(self.beta, Tensor):
            return super().mode
        if self.beta == 0:
            return None
        if self.beta < 0:
            return 1.0 if self.lam == 0 else (0.0, 1.0)
        return self.lam / (self.lam + 1)


@dataclass(frozen=True)
class IMAE(Weighting):
    """IMAE (Wang 2019), w = exp(T p (1 - p)); equals `DM(lam=1, beta=T)`.

    >>> IMAE(8.0)(0.5) == DM(1, 8.0)(0.5)
    True
    """

    T: Parameter = 8.0

    def __post_init__(self) -> None:
        check(self, "T", self.T, low=-LARGEST, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return DM(1.0, self.T).log_weight(log_p, log_q)

    @property
    def form(self) -> Form | None:
        return Form(EMPHASIS, 1.0, self.T)

    @property
    def mode(self) -> Mode:
        return DM(1.0, self.T).mode


@dataclass(frozen=True)
class Normal(Weighting):
    """Normal variant, w = exp(-β p (p - 2ψ)).

    Args:
        psi: ψ >= 0, the emphasis mode when β > 0.
        beta: β, the inverse width; a negative β puts a minimum at ψ.

    >>> Normal(psi=0.5, beta=8)(0.25) == DM(lam=1, beta=8)(0.25)
    True
    """

    psi: Parameter
    beta: Parameter

    def __post_init__(self) -> None:
        check(self, "psi", self.psi, low=0, high=LARGEST)
        check(self, "beta", self.beta, low=-LARGEST, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        # p (2ψ - p) = p ((2ψ - 1) + q), which loses no digits at p = 1 when ψ = 1/2
        return self.beta * log_p.exp() * ((2 * self.psi - 1) + log_q.exp())

    @property
    def form(self) -> Form | None:
        return Form(BELL, 2 * self.psi - 1, self.beta)

    @property
    def mode(self) -> Mode:
        if isinstance(self.psi, Tensor) or isinstance(self.beta, Tensor):
            return super().mode
        if self.beta == 0:
            return None
        if self.beta > 0:
            return min(self.psi, 1.0)
        return (0.0, 1.0) if self.psi == 0.5 else float(self.psi < 0.5)


@dataclass(frozen=True)
class Exponential(Weighting):
    """Exponential variant, w = exp(β (1 - p)): β > 0 favours hard examples, β < 0 easy ones.

    >>> Exponential(2.0).mode, Exponential(-0.5).mode
    (0.0, 1.0)
    """

    beta: Parameter

    def __post_init__(self) -> None:
        check(self, "beta", self.beta, low=-LARGEST, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return self.beta * log_q.exp()

    @property
    def form(self) -> Form | None:
        return Form(EMPHASIS, 0.0, self.beta)

    @property
    def mode(self) -> Mode:
        if isinstance(self.beta, Tensor):
            return super().mode
        return None if self.beta == 0 else float(self.beta < 0)

    def log_integral(self) -> Tensor | None:
        beta = torch.as_tensor(self.beta, dtype=torch.float64)
        # log(expm1(β) / β), rewritten for β > 0 to avoid overflow
        size = beta.abs().clamp_min(0.01)
        far = beta.clamp_min(0) + (-torch.expm1(-size) / size).log()
        # series around 0, where the derivative of the form above cancels
        near = beta / 2 + beta**2 / 24 - beta**4 / 2880
        return torch.where(beta.abs() < 0.01, near, far)


@dataclass(frozen=True)
class Beta(Weighting):
    """Beta variant, w = p^(α - 1) (1 - p)^(η - 1), of which CCE, MAE, MSE and GCE are multiples.

    Args:
        alpha: α >= 0; w is infinite at p = 0 for α < 1, and its integral too for α = 0.
        eta: η >= 0, likewise at p = 1.

    >>> 2 * Beta(2, 2)(0.25)  # MAE
    0.375
    """

    alpha: Parameter
    eta: Parameter

    def __post_init__(self) -> None:
        check(self, "alpha", self.alpha, low=0, high=LARGEST)
        check(self, "eta", self.eta, low=0, high=LARGEST)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return power(self.alpha - 1, log_p) + power(self.eta - 1, log_q)

    @property
    def form(self) -> Form | None:
        return Form(POWERS, self.alpha - 1, self.eta - 1)

    def log_integral(self) -> Tensor | None:
        a = torch.as_tensor(self.alpha, dtype=torch.float64)
        e = torch.as_tensor(self.eta, dtype=torch.float64)
        # avoids ∞ - ∞ at α = η = 0
        return torch.where((a == 0) | (e == 0), math.inf, a.lgamma() + e.lgamma() - (a + e).lgamma())


@dataclass(frozen=True)
class Uniform(Weighting):
    """w = 1: all examples have equal weight, DM(β = 0) in the paper.

    >>> Uniform()(0.3), Uniform().mode
    (1.0, None)
    """

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return torch.zeros_like(log_p)

    @property
    def form(self) -> Form | None:
        return Form(POWERS, 0.0, 0.0)

    @property
    def mode(self) -> Mode:
        return None

    def log_integral(self) -> Tensor | None:
        return torch.zeros((), dtype=torch.float64)
