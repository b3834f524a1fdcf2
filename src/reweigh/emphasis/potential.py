"""The objective behind a weighting, and what the robustness theorems ask of it.

With a fixed scale the emitted gradient has a potential in the margin, dL/dm = -w/2:

    L(m) = 1/2 ∫_m^∞ w dm                            where it converges (w(1) = 0, or any taper > 0)
    L(m) = -w(1) m / 2 + 1/2 ∫_m^∞ (w - w(1)) dm     else

CCE, MAE, MSE and GCE get back -log p, 1 - p, (1 - p)² and (1 - p^q)/q. Under batch normalisation the field has no
potential; there L is the objective at a frozen normaliser.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from reweigh.emphasis.quadrature import (
    REACH,
    edges,
    log_tail,
    log_weight_at,
    panels,
    parameter_device,
    parameter_dims,
    refined,
    unit_nodes,
)
from reweigh.margin import margins
from reweigh.weightings import FromLoss, Tapered, Weighting, as_weighting
from reweigh.weightings.parameter import Parameter, entries, holds


def from_loss(loss: Callable[[Tensor], Tensor], breakpoints: tuple[float, ...] = ()) -> FromLoss:
    """The weighting of any differentiable, non-increasing loss f(p): w = -2 p (1 - p) f'(p).

    Args:
        loss: f, elementwise.
        breakpoints: the p at which w has a kink or a jump. Integrals and objectives find them by themselves, but it
            takes them some milliseconds, and in a compiled graph, or an objective on a GPU, they cannot look.

    >>> from_loss(lambda p: -p.log())(0.25)
    1.5
    """
    weighting = FromLoss(loss, breakpoints)
    p = torch.linspace(0, 1, 1001, dtype=torch.float64)[1:-1]
    slope = torch.func.grad(lambda x: loss(x).sum())(p)
    if not bool(slope.isfinite().all()):
        where = p[~slope.isfinite()][0].item()
        raise ValueError(
            f"from_loss: the loss must be differentiable on (0, 1); its derivative at p = {where:g} is not finite"
        )
    if bool((slope > 1e-9).any()):
        where = p[slope.argmax()].item()
        raise ValueError(
            f"from_loss: the loss must not increase with p; its derivative at p = {where:g} is {slope.max():g}"
        )
    if not bool(slope.any()):
        raise ValueError("from_loss: the derivative of the loss is 0 at every p: nothing would be learnt from it")
    return weighting


def tapered(weighting: Weighting, taper: Parameter) -> Weighting:
    return weighting if not isinstance(taper, Tensor) and taper == 0 else Tapered(weighting, taper)


def potential(weighting: Weighting | Callable[..., Tensor], margin: Tensor | float, taper: Parameter = 0.0) -> Tensor:
    """L(m) with dL/dm = -w q / (q + taper) / 2, differentiable in the margin, float64.

    Args:
        weighting: w, or a callable of p or of (p, q); its tensor parameters, if any, broadcast with `margin`.
        margin: m = log(p / q), any shape, or a number; at -inf (p = 0) L is its limit, which may be infinite.
        taper: as the criterion's.

    >>> from reweigh.weightings import CCE
    >>> potential(CCE(), torch.tensor([0.0]))  # -log 1/2
    tensor([0.6931], dtype=torch.float64)
    """
    if not isinstance(margin, Tensor):
        margin = torch.as_tensor(margin, dtype=torch.float64)
    w_eff, never = tapered(as_weighting(weighting), taper), margin == -math.inf
    m = torch.where(never, -REACH, margin.double())
    if parameter_dims(w_eff) > m.ndim:
        raise ValueError(
            f"potential: margin of shape {tuple(m.shape)} has fewer dimensions than a parameter of {weighting!r}"
        )
    floor = limit(w_eff, math.inf, m.device)
    if not holds(floor < math.inf):
        raise ValueError(f"potential: w is infinite at p = 1 for {weighting!r}, so no objective exists; give a taper")
    cuts = edges(w_eff.breakpoints).to(m.device)
    if parameter_dims(w_eff) == 0:  # one curve for all margins
        cuts = refined(cuts, lambda at: log_weight_at(w_eff, at))

    def excess(at: Tensor) -> Tensor:
        return log_weight_at(w_eff, at).exp() - floor

    (x, weight), (nodes, weights) = unit_nodes(m.device), panels(cuts[:-1], cuts[1:])
    spread = (*nodes.shape, *(1,) * m.ndim)
    whole = (excess(nodes.reshape(spread)) * weights.reshape(spread)).sum(1)
    beyond = torch.cat((whole.flip(0).cumsum(0).flip(0), torch.zeros_like(whole[:1])))  # from each cut to the end
    index = torch.searchsorted(cuts, m.detach().contiguous()).clamp_max(len(cuts) - 1)
    gap = (entries(cuts, index) - m).clamp_min(0)  # 0 beyond the last cut
    partial = (excess(m + gap * x.reshape(-1, *(1,) * m.ndim)) * weight.reshape(-1, *(1,) * m.ndim)).sum(0) * gap
    rest = beyond.expand(len(cuts), *m.shape).gather(0, index[None])[0]
    end, inner = excess(torch.tensor([REACH, REACH - 1], dtype=m.dtype, device=m.device).reshape(2, *(1,) * m.ndim))
    falls = inner / end > 1  # else both are 0, or the rounding errors of w(1)
    rate = (torch.where(falls, inner, math.e) / torch.where(falls, end, 1.0)).log()
    # w - w(1) falls like exp(-rate m) there, for some losses slowly; no clamp, whose slope at m = REACH is 1
    tail = excess(torch.where(m > REACH, m, REACH)) / rate
    # w(1) m is 0 for w(1) = 0 even at m = ±inf
    line = torch.where(floor == 0, torch.zeros_like(m), floor * m)
    ends = torch.tensor([-REACH, -REACH + 1], dtype=m.dtype, device=m.device).reshape(2, *(1,) * m.ndim)
    below = torch.where(never, log_tail(*log_weight_at(w_eff, ends)).exp(), 0.0)
    return (partial + rest + tail - line + below) / 2


def limit(weighting: Weighting, margin: float, device: torch.device | None) -> Tensor:
    """w at an end: p = 1 for margin = inf, p = 0 for -inf."""
    end = torch.full((1,) * parameter_dims(weighting), margin, dtype=torch.float64, device=device)
    return log_weight_at(weighting, end).exp()


def potential_range(weighting: Weighting | Callable[..., Tensor], taper: float = 0.0) -> tuple[float, float]:
    """(inf L, sup L): what L falls to as p -> 1 and rises to as p -> 0; infinite where it is unbounded.

    >>> from reweigh.weightings import CCE, MAE
    >>> [round(x, 9) + 0.0 for x in potential_range(MAE())], potential_range(CCE())[1]
    ([0.0, 1.0], inf)
    """
    w_eff = tapered(as_weighting(weighting), taper)
    device = parameter_device(w_eff)
    top = float(potential(w_eff, torch.tensor([-math.inf], device=device)))
    return (0.0 if float(limit(w_eff, math.inf, device)) == 0 else -math.inf), top


def is_bounded(weighting: Weighting | Callable[..., Tensor], taper: float = 0.0) -> bool:
    """Whether the objective lies between two finite numbers, as the noise-tolerance theorems require.

    >>> from reweigh.weightings import CCE, GCE
    >>> is_bounded(CCE()), is_bounded(GCE(0.7))
    (False, True)
    """
    return all(map(math.isfinite, potential_range(weighting, taper)))


def symmetry_gap(
    weighting: Weighting | Callable[..., Tensor], num_classes: int, taper: float = 0.0, samples: int = 4096
) -> float:
    """sup - inf over the simplex of Σ_j L(p_j), the sum of the objective over all labels; 0 for a symmetric loss.

    Ghosh et al. (2017): a loss whose sum over labels is constant tolerates symmetric noise below (C - 1)/C; Zhang &
    Sabuncu bound the excess risk by this gap. Searched over equal shares among k classes, one class against the
    rest, and `samples` random points.

    >>> from reweigh.weightings import MAE
    >>> symmetry_gap(MAE(), num_classes=10) < 1e-9
    True
    """
    if num_classes < 2:
        raise ValueError(f"symmetry_gap: num_classes must be at least 2, got {num_classes}")
    if not is_bounded(weighting, taper):
        return math.inf
    sharp = torch.linspace(-40, 40, 161, dtype=torch.float64)
    line = torch.stack([sharp, *[torch.zeros_like(sharp)] * (num_classes - 1)], 1)
    equal = torch.where(torch.tril(torch.ones(num_classes, num_classes, dtype=torch.bool)), 0.0, -80.0).double()
    rng = torch.Generator().manual_seed(0)
    scale = torch.rand(samples, 1, generator=rng, dtype=torch.float64) * 12
    random = torch.randn(samples, num_classes, generator=rng, dtype=torch.float64) * scale
    total = potential(weighting, margins(torch.cat((line, equal, random))), taper).sum(0)
    return float(total.max() - total.min())
