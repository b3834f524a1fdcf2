"""What there is to see of a weighting: its curve over p, and the few numbers that describe it."""

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
    """A weighting over p in [0, 1], and its numbers.

    Attributes:
        label: its name.
        p: evenly spaced from 0 to 1.
        h: w / Z at those p, the emphasis density; w itself where Z is infinite.
        mode: argmax of w; a pair where both ends tie, None where w is constant.
        integral: Z, of w over p; may be inf.
        variance: the emphasis variance, of w for p uniform on [0, 1].
        density_variance: the same of h = w / Z, which compares weightings of different scale.
        hard: the share of the whole weight on p < 1/2; None where Z is infinite.
        taper: with which the objective was taken.
        objective: (inf, sup) of the potential with fixed scale, as p goes to 1 and to 0.
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
        """Whether the objective lies between two finite numbers."""
        return all(map(math.isfinite, self.objective))

    @property
    def modes(self) -> tuple[float, ...]:
        """The modes, none to two of them."""
        if self.mode is None:
            return ()
        return self.mode if isinstance(self.mode, tuple) else (self.mode,)

    def at(self, p: float) -> float:
        """h at the nearest of the points."""
        return self.h[round(p * (len(self.p) - 1))]


def density_of(weighting: Weighting) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """p evenly from 0 to 1 and h = w / Z there, w itself where Z is infinite: a curve without its numbers, which cost.

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
    """The curve of a weighting.

    Args:
        weighting: with numbers as parameters, not tensors; or a function of p.
        label: what to call it; by default its repr.
        taper: of the objective; None is what `Criterion` does: none for a loss, the published one for a density.

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
    """The upper edge of a figure that shows all curves; one far above the others is cut off, or it would hide them."""
    peaks = [max((h for h in curve.h if math.isfinite(h)), default=1.0) for curve in curves]
    return min(max(peaks), 5 * statistics.median(peaks)) or 1.0


def _density_variance(weighting: Weighting, log_z: float) -> float:
    """∫ h² dp - 1, which is finite even where w itself overflows."""
    return max(0.0, float(torch.expm1(log_integral(weighting, power=2) - 2 * log_z)))


def _objective(weighting: Weighting, taper: float) -> tuple[float, float]:
    try:
        low, high = potential_range(weighting, taper)
    except ValueError:  # w is infinite at p = 1: there is no objective
        return -math.inf, math.inf
    return low, math.inf if math.isnan(high) else high  # where w is beyond the numbers there are
