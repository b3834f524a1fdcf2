"""Emphasis curves of weightings: w over p, and the numbers that describe it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.emphasis import emphasis_share, emphasis_variance, integral, log_integral, potential_range
from reweigh.weightings import Weighting, as_weighting
from reweigh.weightings.compose import is_tapered

POINTS = 401


@dataclass(frozen=True)
class Curve:
    """The curve of a weighting over p in [0, 1], and its numbers.

    Attributes:
        label: name in legends and tables.
        p: evenly spaced points from 0 to 1.
        h: the emphasis density w / Z at those p; w if Z is infinite.
        mode: argmax of w; a pair if both ends tie, None if w is constant.
        integral: Z, the integral of w over p; may be inf.
        variance: emphasis variance: that of w for p uniform on [0, 1].
        density_variance: variance of h = w / Z, comparable between weightings of different scale.
        hard: share of the weight on p < 1/2; None if Z is infinite.
        taper: taper of the objective.
        objective: (inf, sup) of the potential at fixed scale, as p goes to 1 and to 0.
    """

    label: str
    p: tuple[float, ...]
    h: tuple[float, ...]
    mode: float | tuple[float, float] | None
    integral: float
    variance: float
    density_variance: float
    hard: float | None
    taper: float
    objective: tuple[float, float]

    @property
    def bounded(self) -> bool:
        """Return whether the objective lies between two finite numbers."""
        return all(map(math.isfinite, self.objective))

    @property
    def modes(self) -> tuple[float, ...]:
        """Return the modes, none to two."""
        if self.mode is None:
            return ()
        return self.mode if isinstance(self.mode, tuple) else (self.mode,)

    def at(self, p: float) -> float:
        """Return h at the nearest point."""
        return self.h[round(p * (len(self.p) - 1))]


def density_of(weighting: Weighting) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return evenly spaced p from 0 to 1 and h = w / Z, or w if Z is infinite: a curve without its slow numbers.

    >>> from reweigh.weightings import CCE
    >>> density_of(CCE())[1][0]
    2.0
    """
    return _density(weighting, float(log_integral(weighting)))


def _density(weighting: Weighting, log_z: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    p = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    log_w = weighting.log_weight(p.log(), p.flip(0).log())
    return tuple(p.tolist()), tuple((log_w - (0.0 if log_z == math.inf else log_z)).exp().tolist())


def curve_of(
    weighting: Weighting | Callable[..., Tensor], label: str | None = None, *, taper: float | None = None
) -> Curve:
    """Return the curve of a weighting.

    Args:
        weighting: with numbers as parameters, not tensors; or a function of p.
        label: its name; by default its repr.
        taper: taper of the objective; None: that of `Criterion`, 0 for a loss and the published one for a density.

    >>> from reweigh.weightings import CCE
    >>> curve = curve_of(CCE())
    >>> curve.h[0], curve.mode, curve.bounded
    (2.0, 0.0, False)
    """
    from reweigh.functional import PUBLISHED_TAPER

    weighting = as_weighting(weighting)
    log_z = float(log_integral(weighting))
    infinite = log_z == math.inf
    p, h = _density(weighting, log_z)
    if taper is None:
        own = weighting.kind == "loss" or is_tapered(weighting)
        taper = 0.0 if own else PUBLISHED_TAPER
    return Curve(
        label=label or repr(weighting),
        p=p,
        h=h,
        mode=weighting.mode,
        integral=float(integral(weighting)),
        variance=math.inf if infinite else float(emphasis_variance(weighting)),
        density_variance=math.inf if infinite else _density_variance(weighting, log_z),
        hard=None if infinite else float(emphasis_share(weighting, 0.0, 0.5)),
        taper=taper,
        objective=_objective(weighting, taper),
    )


def height_of(curves: Sequence[Curve]) -> float:
    """Return the upper end of the axis for these curves; one far above the others is cut off, to keep them visible."""
    peaks = [max((h for h in curve.h if math.isfinite(h)), default=1.0) for curve in curves]
    return min(max(peaks), 5 * statistics.median(peaks)) or 1.0


def _density_variance(weighting: Weighting, log_z: float) -> float:
    """Return ∫ h² dp - 1, which is finite even where w overflows."""
    return max(0.0, float(torch.expm1(log_integral(weighting, power=2) - 2 * log_z)))


def _objective(weighting: Weighting, taper: float) -> tuple[float, float]:
    try:
        low, high = potential_range(weighting, taper)
    except ValueError:  # w is infinite at p = 1: there is no objective
        return -math.inf, math.inf
    return low, math.inf if math.isnan(high) else high  # where w overflows
