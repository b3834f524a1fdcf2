"""A weighting as an emphasis density: its integral, spread, and how much of it lies where."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reweigh.density.quadrature import log_integral
from reweigh.weighting import PerClass, Scaled, Weighting


def integral(weighting: Weighting) -> Tensor:
    """Z, the integral of w over p in [0, 1]: what unit derivative normalisation divides by. May be inf.

    >>> from reweigh.weighting import DM, MAE
    >>> print(f"{integral(DM(0.5, 12)).item():.10f}  {integral(MAE()).item():.10f}")
    44.3634479272  0.3333333333
    """
    return log_integral(weighting).exp()


def unit(weighting: Weighting) -> Weighting:
    """The weighting divided by its integral over [0, 1]: the paper's density h. Refused where that is infinite.

    >>> from reweigh.weighting import CCE, DM
    >>> print(f"{unit(DM(2, 8))(2 / 3):.4f}")
    1.5530
    """
    if isinstance(weighting, PerClass):
        return PerClass(unit(weighting.weighting))
    log_z = log_integral(weighting)
    if not bool(log_z.isfinite().all()):
        raise ValueError(
            f"normalise='unit' divides by the integral of w over [0, 1], which is {log_z.exp().tolist()} for "
            f"{weighting!r}; use normalise='batch' or None"
        )
    factor = (-log_z).exp()
    return Scaled(weighting, factor.item() if factor.ndim == 0 else factor)


def emphasis_variance(weighting: Weighting, p: Tensor | None = None) -> Tensor:
    """σ, the variance of w over the given p, or over p uniform on [0, 1]: ∫ w² dp - (∫ w dp)².

    >>> from reweigh.weighting import CCE
    >>> round(emphasis_variance(CCE()).item(), 12)
    0.333333333333
    """
    if p is not None:
        return weighting(p.double()).var(correction=0)
    log_second, log_first = log_integral(weighting, power=2), log_integral(weighting)
    # E² (E[w²]/E² - 1): the ratio is what cancellation would eat when w is huge
    return (2 * log_first).exp() * torch.expm1(log_second - 2 * log_first).clamp_min(0)


def share(weighting: Weighting, low: float, high: float) -> Tensor:
    """The part of the whole weight that falls on p in [low, high], for p uniform on [0, 1].

    >>> from reweigh.weighting import CCE
    >>> round(share(CCE(), 0.0, 0.5).item(), 12)
    0.75
    """
    if not 0 <= low <= high <= 1:
        raise ValueError(f"share: needs 0 <= low <= high <= 1, got low={low}, high={high}")
    if low == high:
        return torch.zeros((), dtype=torch.float64)
    total = log_integral(weighting)
    if not bool((total < math.inf).all()):
        raise ValueError(f"share: the integral of w over [0, 1] is infinite for {weighting!r}")
    return (log_integral(weighting, low, high) - total).exp()
