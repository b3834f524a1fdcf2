"""A weighting as an emphasis density: its integral, spread, and how much of it lies where.

Wherever a weighting is asked for, a callable of p or of (p, q) will do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.emphasis.quadrature import is_traced, log_integral
from reweigh.weightings import PerClass, Scaled, Weighting, as_weighting
from reweigh.weightings.compose import has_classes, has_examples
from reweigh.weightings.parameter import holds, is_readable

# exp(-ROOM) is still a number, and so is what a factor of it leaves of most weights.
ROOM = 600.0
# exp(FAR) - 1 is exp(FAR).
FAR = 40.0


def integral(weighting: Weighting | Callable[..., Tensor]) -> Tensor:
    """Z, the integral of w over p in [0, 1]: what unit derivative normalisation divides by. May be inf.

    >>> from reweigh.weightings import DM, MAE
    >>> print(f"{integral(DM(0.5, 12)).item():.10f}  {integral(MAE()).item():.10f}")
    44.3634479272  0.3333333333
    """
    return log_integral(as_weighting(weighting)).exp()


def unit_weighting(weighting: Weighting | Callable[..., Tensor]) -> Weighting:
    """The weighting divided by its integral over [0, 1]: the paper's density h. Refused where that is infinite.

    Each class has an integral of its own where a `PerClass` stands anywhere in the weighting.

    >>> from reweigh.weightings import CCE, DM
    >>> print(f"{unit_weighting(DM(2, 8))(2 / 3):.4f}")
    1.5530
    """
    weighting = as_weighting(weighting)
    by_class = has_classes(weighting)
    if by_class and has_examples(weighting):
        raise ValueError(f"normalise='unit' needs tensors by class or by example, not both, got {weighting!r}")
    log_z = log_integral(weighting)
    with torch.no_grad():  # a factor of 0 that is learnt is one of 0
        exact = log_integral(weighting) if log_z.requires_grad else log_z
    if not holds(exact.isfinite()):
        raise ValueError(
            f"normalise='unit' divides by the integral of w over [0, 1], which is {exact.exp().tolist()} for "
            f"{weighting!r}; use normalise='batch' or None"
        )
    # where w is beyond the numbers there are, so is its integral; several factors keep within them
    parts = max(1, math.ceil(log_z.detach().abs().max().item() / ROOM)) if _is_known(log_z) else 1
    root = (-log_z / parts).exp()
    factor = root.item() if root.ndim == 0 and _is_known(root) and not root.requires_grad else root
    for _ in range(parts):
        weighting = Scaled(weighting, factor)
    return PerClass(weighting) if by_class else weighting


def _is_known(x: Tensor) -> bool:
    return is_readable(x) and not is_traced()


def emphasis_variance(weighting: Weighting | Callable[..., Tensor], p: Tensor | None = None) -> Tensor:
    """σ, the variance of w over the given p, or over p uniform on [0, 1]: ∫ w² dp - (∫ w dp)².

    >>> from reweigh.weightings import CCE
    >>> round(emphasis_variance(CCE()).item(), 12)
    0.333333333333
    """
    weighting = as_weighting(weighting)
    if p is not None:
        return weighting(p.double()).var(correction=0)
    log_mean = log_integral(weighting)
    log_variance = 2 * log_mean + log_integral(_Deviation(weighting, log_mean))
    return torch.where(log_mean.isinf(), 2 * log_mean, log_variance).exp()  # of no weight at all, or an infinite one


@dataclass(frozen=True)
class _Deviation(Weighting):
    """(w / mean - 1)²: the difference of two moments would leave no digit of it where w is almost constant."""

    weighting: Weighting
    log_mean: Tensor

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        x = self.weighting.log_weight(log_p, log_q) - self.log_mean
        size = torch.expm1(x.clamp_max(FAR)).abs().clamp_min(torch.finfo(x.dtype).tiny)  # log 0 has no derivative
        return 2 * torch.where(x > FAR, x, size.log())

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints


def emphasis_share(weighting: Weighting | Callable[..., Tensor], low: float, high: float) -> Tensor:
    """The part of the whole weight that falls on p in [low, high], for p uniform on [0, 1].

    >>> from reweigh.weightings import CCE
    >>> round(emphasis_share(CCE(), 0.0, 0.5).item(), 12)
    0.75
    """
    if not 0 <= low <= high <= 1:
        raise ValueError(f"share: needs 0 <= low <= high <= 1, got low={low}, high={high}")
    if low == high:
        return torch.zeros((), dtype=torch.float64)
    weighting = as_weighting(weighting)
    total = log_integral(weighting)
    if not bool((total < math.inf).all()):
        raise ValueError(f"share: the integral of w over [0, 1] is infinite for {weighting!r}")
    return (log_integral(weighting, low, high) - total).exp()
