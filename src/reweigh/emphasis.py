"""Analysis of weightings: integral, variance, mode and objective, and the emphasis of any loss.

Integrals over p are computed in the margin, dp = p q dm, in which the integrand is smooth also near p = 0, p = 1 and
the taper at q = 5e-7. They use Gauss-Legendre quadrature on short panels over [-60, 60], split at the weighting's
breakpoints and refined adaptively, plus the exponential tails beyond.

At a fixed scale the gradient has a potential in the margin, dL/dm = -w/2:

    L(m) = 1/2 ∫_m^∞ w dm                            if it converges (w(1) = 0, or any taper > 0)
    L(m) = -w(1) m / 2 + 1/2 ∫_m^∞ (w - w(1)) dm     otherwise

For CCE, MAE, MSE and GCE this gives -log p, 1 - p, (1 - p)² and (1 - p^q)/q. Under batch normalisation the gradient
has no potential; L is then the objective at a frozen normaliser.

Every function that accepts a weighting also accepts a callable of p or of (p, q).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from reweigh.margin import margins
from reweigh.weightings import FromLoss, PerClass, Tapered, Weighting, as_weighting
from reweigh.weightings.base import Form, Kind
from reweigh.weightings.compose import field_values, form_of, has_class_parameters, has_example_parameters, tensors_in
from reweigh.weightings.parameter import Parameter, all_true, is_log_zero, is_readable, item_or_none, take_rows

MARGIN_LIMIT = 60.0
NODES = 10
# Error of a panel relative to the integral. A jump needs about -log2(TOLERANCE) halvings.
TOLERANCE = 1e-12
MAX_HALVINGS = 42


# Nodes and weights on [-1, 1]. A module constant, because torch.compile traces into cached functions.
_GAUSS_LEGENDRE = tuple(map(torch.from_numpy, np.polynomial.legendre.leggauss(NODES)))


def gauss_legendre(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = (t.to(device) for t in _GAUSS_LEGENDRE)
    return (nodes + 1) / 2, weights / 2


def panel_edges(breakpoints: tuple[float, ...], low: float = -MARGIN_LIMIT, high: float = MARGIN_LIMIT) -> Tensor:
    """Return panel edges at most one unit of margin apart, including the margin of every breakpoint."""
    cuts = [math.log(p) - math.log1p(-p) for p in breakpoints]
    pieces = sorted({low, high, *[cut for cut in cuts if low < cut < high]})
    spans = [
        torch.linspace(a, b, max(2, math.ceil(b - a) + 1), dtype=torch.float64)[:-1]
        for a, b in itertools.pairwise(pieces)
    ]
    return torch.cat([*spans, torch.tensor([high], dtype=torch.float64)])


def panels(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of the panels with these ends, each of shape (panels, NODES)."""
    x, weight = gauss_legendre(left.device)
    width = (right - left)[:, None]
    return left[:, None] + width * x, width * weight


def log_panels(left: Tensor, right: Tensor, log_f: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the log of the integral of exp(log_f) over every panel."""
    nodes, weights = panels(left, right)
    log_values = log_f(nodes)
    return (log_values + weights.log().reshape(weights.shape + (1,) * (log_values.ndim - 2))).logsumexp(1)


@torch.no_grad()
def refine_edges(edges: Tensor, log_f: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the edges, with every panel halved until the integral of exp(log_f) over it no longer changes.

    This resolves kinks, jumps and narrow peaks that are not declared as breakpoints, provided that some node lies on
    them (nodes are at most 0.15 apart in the margin). Returns the edges unchanged if values cannot be read.
    """
    if not is_readable(edges):
        return edges
    refined, left, right = [edges], edges[:-1], edges[1:]
    coarse_integral = log_panels(left, right, log_f)
    total = torch.full_like(coarse_integral[0], -math.inf)
    for _ in range(MAX_HALVINGS):
        middle = (left + right) / 2
        left, right = torch.cat((left, middle)), torch.cat((middle, right))
        halves = log_panels(left, right, log_f)
        both = torch.logaddexp(*halves.chunk(2))
        total = torch.maximum(total, both.logsumexp(0))  # halving may reveal a narrow peak
        change = ((coarse_integral - total).exp() - (both - total).exp()).abs()
        unresolved = (change > TOLERANCE).reshape(len(middle), -1).any(1)
        if all_true(~unresolved):  # also if values cannot be read, as inside `vmap`
            break
        refined.append(middle[unresolved])
        split = unresolved.repeat(2)
        left, right, coarse_integral = left[split], right[split], halves[split]
    return torch.cat(refined).sort().values


def parameter_dims(weighting: Weighting) -> int:
    """Return the largest number of dimensions of a tensor parameter; the grid is prepended to them."""
    return max([0, *[x.ndim for x, _ in tensors_in(weighting)]])


def parameter_device(part: object) -> torch.device | None:
    """Return the device of the tensors of a weighting, also of a function that is a module; None without any."""
    if isinstance(part, Tensor):
        return part.device
    if isinstance(part, nn.Module):
        parts: tuple[object, ...] = (*part.parameters(), *part.buffers())
    else:
        parts = field_values(part) if isinstance(part, Weighting) else part if isinstance(part, tuple) else ()
    for each in parts:  # torch 2.6 does not compile next() with a default
        if (device := parameter_device(each)) is not None:
            return device
    return None


def log_weight_at(weighting: Weighting, margin: Tensor) -> Tensor:
    """Return log w at the given margins."""
    return weighting.log_weight(logsigmoid(margin), logsigmoid(-margin))


def log_integral(weighting: Weighting, low: float = 0.0, high: float = 1.0, power: int = 1) -> Tensor:
    """Return the log of the integral of w^power over p in [low, high] in float64; inf if it diverges.

    The result is a scalar, or has one entry per element of the weighting's tensor parameters.
    """
    if low == 0 and high == 1 and power == 1 and (closed := weighting.log_integral()) is not None:
        return closed
    right = math.log(high) - math.log1p(-high) if high < 1 else MARGIN_LIMIT
    left = math.log(low) - math.log1p(-low) if low > 0 else min(-MARGIN_LIMIT, right - 1)
    dims, device = parameter_dims(weighting), parameter_device(weighting)

    def integrand(margin: Tensor) -> Tensor:
        margin = margin.reshape(margin.shape + (1,) * dims)
        return power * log_weight_at(weighting, margin) + logsigmoid(margin) + logsigmoid(-margin)

    edges = refine_edges(panel_edges(weighting.breakpoints, left, right).to(device), integrand)
    parts = [log_panels(edges[:-1], edges[1:], integrand).logsumexp(0)]
    if low == 0:
        parts.append(log_tail(*integrand(torch.tensor([left, left + 1], dtype=torch.float64, device=device))))
    if high == 1:
        parts.append(log_tail(*integrand(torch.tensor([right, right - 1], dtype=torch.float64, device=device))))
    return torch.stack(parts).logsumexp(0)


def log_tail(end: Tensor, inner: Tensor) -> Tensor:
    """Return the log of the integral beyond an end, where the integrand decays as exp(-rate * distance)."""
    rate = inner - end
    tail = torch.where(rate > 1e-9, end - rate.clamp_min(1e-300).log(), math.inf)
    return torch.where(end == -math.inf, end, tail)  # no tail if w is 0 there


# Of log w, where an objective replaces larger ones: sums of exp(MAX_LOG_WEIGHT) are finite in float64.
MAX_LOG_WEIGHT = 690.0
# In float64, exp(x) - 1 = exp(x) for x > EXPM1_LIMIT.
EXPM1_LIMIT = 40.0


def integral(weighting: Weighting | Callable[..., Tensor]) -> Tensor:
    """Return Z, the integral of w over p in [0, 1], by which unit normalisation divides; may be inf.

    >>> from reweigh.weightings import DM, MAE
    >>> print(f"{integral(DM(0.5, 12)).item():.10f}  {integral(MAE()).item():.10f}")
    44.3634479272  0.3333333333
    """
    return log_integral(as_weighting(weighting)).exp()


@dataclass(frozen=True)
class Density(Weighting):
    """w = w_1 exp(-log_divisor), for divisors beyond the range of float64, such as an integral."""

    weighting: Weighting
    log_divisor: Parameter

    @property
    def kind(self) -> Kind:
        return self.weighting.kind

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return self.weighting.log_weight(log_p, log_q) - self.log_divisor

    @property
    def form(self) -> Form | None:
        form = form_of(self.weighting)
        return form and form._replace(c=form.c - self.log_divisor)

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints


def unit_weighting(weighting: Weighting | Callable[..., Tensor]) -> Weighting:
    """Return the weighting divided by its integral over [0, 1], the density h of the paper.

    Raises ValueError if the integral is infinite. If the weighting contains a `PerClass`, each class has its own
    integral.

    >>> from reweigh.weightings import CCE, DM
    >>> print(f"{unit_weighting(DM(2, 8))(2 / 3):.4f}")
    1.5530
    """
    weighting = as_weighting(weighting)
    by_class = has_class_parameters(weighting)
    if by_class and has_example_parameters(weighting):
        raise ValueError(f"normalise='unit' needs tensors by class or by example, not both, got {weighting!r}")
    log_z = log_integral(weighting)
    with torch.no_grad():  # with gradients, log_parameter replaces a factor of 0 by a tiny number
        exact = log_integral(weighting) if log_z.requires_grad else log_z
    if not all_true(exact.isfinite()):
        raise ValueError(
            f"normalise='unit' divides by the integral of w over [0, 1], which is {exact.exp().tolist()} for "
            f"{weighting!r}; use normalise='batch' or None"
        )
    number = item_or_none(log_z) if log_z.ndim == 0 and not log_z.requires_grad else None
    density = Density(weighting, log_z if number is None else number)
    return PerClass(density) if by_class else density


def emphasis_variance(weighting: Weighting | Callable[..., Tensor], p: Tensor | None = None) -> Tensor:
    """Return σ, the variance of w over the given p, or over p uniform on [0, 1]: ∫ w² dp - (∫ w dp)².

    >>> from reweigh.weightings import CCE
    >>> round(emphasis_variance(CCE()).item(), 12)
    0.333333333333
    """
    weighting = as_weighting(weighting)
    if p is not None:
        return weighting(p.double()).var(correction=0)
    log_mean = log_integral(weighting)
    log_variance = 2 * log_mean + log_integral(_Deviation(weighting, log_mean))
    return torch.where(log_mean.isinf(), 2 * log_mean, log_variance).exp()  # the integral of w is 0 or infinite


@dataclass(frozen=True)
class _Deviation(Weighting):
    """(w / mean - 1)², which avoids the cancellation of ∫ w² - (∫ w)² if w is almost constant."""

    weighting: Weighting
    log_mean: Tensor

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        x = self.weighting.log_weight(log_p, log_q) - self.log_mean
        size = torch.expm1(x.clamp_max(EXPM1_LIMIT)).abs()
        log_size = size.clamp_min(torch.finfo(x.dtype).tiny).log()  # log is not differentiable at 0
        return 2 * torch.where(x > EXPM1_LIMIT, x, log_size)

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints


def emphasis_share(weighting: Weighting | Callable[..., Tensor], low: float, high: float) -> Tensor:
    """Return the fraction of the total weight on p in [low, high], for p uniform on [0, 1].

    >>> from reweigh.weightings import CCE
    >>> round(emphasis_share(CCE(), 0.0, 0.5).item(), 12)
    0.75
    """
    if not 0 <= low <= high <= 1:
        raise ValueError(f"emphasis_share: expected 0 <= low <= high <= 1, got low={low}, high={high}")
    if low == high:
        return torch.zeros((), dtype=torch.float64)
    weighting = as_weighting(weighting)
    total = log_integral(weighting)
    if not bool((total < math.inf).all()):
        raise ValueError(f"emphasis_share: the integral of w over [0, 1] is infinite for {weighting!r}")
    return (log_integral(weighting, low, high) - total).exp()


def from_loss(loss: Callable[[Tensor], Tensor], breakpoints: tuple[float, ...] = ()) -> FromLoss:
    """Return the weighting of a differentiable, non-increasing loss f(p): w = -2 p (1 - p) f'(p).

    Args:
        loss: f, elementwise.
        breakpoints: the p at which w has a kink or a jump. Integrals and objectives detect them otherwise, which takes
            a few milliseconds and is not possible in a compiled graph or for an objective on a GPU.

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
        raise ValueError("from_loss: the derivative of the loss is 0 at every p")
    return weighting


def tapered(weighting: Weighting, taper: Parameter) -> Weighting:
    return weighting if not isinstance(taper, Tensor) and taper == 0 else Tapered(weighting, taper)


def potential(weighting: Weighting | Callable[..., Tensor], margin: Tensor | float, taper: Parameter = 0.0) -> Tensor:
    """Return L(m) with dL/dm = -w q / (q + taper) / 2 in float64, differentiable in the margin.

    Args:
        weighting: w, or a callable of p or of (p, q); tensor parameters broadcast with `margin`.
        margin: m = log(p / q), a tensor or a number; at -inf (p = 0) L is its limit, which may be infinite.
        taper: as in `Criterion`.

    >>> from reweigh.weightings import CCE
    >>> potential(CCE(), torch.tensor([0.0]))  # -log 1/2
    tensor([0.6931], dtype=torch.float64)
    """
    if not isinstance(margin, Tensor):
        margin = torch.as_tensor(margin, dtype=torch.float64)
    w_eff, at_zero = tapered(as_weighting(weighting), taper), margin == -math.inf
    m = torch.where(at_zero, -MARGIN_LIMIT, margin.double())
    if parameter_dims(w_eff) > m.ndim:
        raise ValueError(
            f"potential: margin of shape {tuple(m.shape)} has fewer dimensions than a parameter of {weighting!r}"
        )
    floor = limit(w_eff, math.inf, m.device)
    if not all_true(floor < math.inf):
        raise ValueError(f"potential: w is infinite at p = 1 for {weighting!r}, so no objective exists; use a taper")
    edges = panel_edges(w_eff.breakpoints).to(m.device)
    if parameter_dims(w_eff) == 0:  # the same weighting for all margins
        edges = refine_edges(edges, lambda at: log_weight_at(w_eff, at))

    def excess(at: Tensor) -> Tensor:
        return weight_at(w_eff, at) - floor

    (x, weight), (nodes, weights) = gauss_legendre(m.device), panels(edges[:-1], edges[1:])
    spread = (*nodes.shape, *(1,) * m.ndim)
    panel_integrals = (excess(nodes.reshape(spread)) * weights.reshape(spread)).sum(1)
    beyond = torch.cat((panel_integrals.flip(0).cumsum(0).flip(0), torch.zeros_like(panel_integrals[:1])))
    index = torch.searchsorted(edges, m.detach().contiguous()).clamp_max(len(edges) - 1)
    gap = (take_rows(edges, index) - m).clamp_min(0)  # 0 beyond the last edge
    partial = (excess(m + gap * x.reshape(-1, *(1,) * m.ndim)) * weight.reshape(-1, *(1,) * m.ndim)).sum(0) * gap
    # integral from the next edge to the last
    rest = beyond.expand(len(edges), *m.shape).gather(0, index[None])[0]
    ends = torch.tensor([MARGIN_LIMIT, MARGIN_LIMIT - 1], dtype=m.dtype, device=m.device)
    ends = ends.reshape(2, *(1,) * m.ndim)
    end, inner = excess(ends)
    falls = inner / end > 1  # otherwise both are 0 or rounding errors of w(1)
    rate = (torch.where(falls, inner, math.e) / torch.where(falls, end, 1.0)).log()
    # w - w(1) decays as exp(-rate m), slowly for some losses; not clamp, whose derivative at the limit is 1
    tail = excess(torch.where(m > MARGIN_LIMIT, m, MARGIN_LIMIT)) / rate
    # w(1) m = 0 for w(1) = 0, even at m = ±inf
    line = torch.where(floor == 0, torch.zeros_like(m), floor * m)
    below = torch.where(at_zero, saturating_exp(log_tail(*log_weight_at(w_eff, -ends))), 0.0)
    return (partial + rest + tail - line + below) / 2


def limit(weighting: Weighting, margin: float, device: torch.device | None) -> Tensor:
    """Return w in the limit p = 1 (margin = inf) or p = 0 (margin = -inf)."""
    end = torch.full((1,) * parameter_dims(weighting), margin, dtype=torch.float64, device=device)
    return weight_at(weighting, end)


def weight_at(weighting: Weighting, margin: Tensor) -> Tensor:
    """Return w at the given margins; of numbers too large for float64 the largest that can be summed."""
    return saturating_exp(log_weight_at(weighting, margin))


def saturating_exp(log_x: Tensor) -> Tensor:
    """Return x, infinite only where log x is, up to multiples of the bound of `clamp_log`."""
    return torch.where(is_log_zero(-log_x), math.inf, log_x.clamp_max(MAX_LOG_WEIGHT).exp())


def potential_range(weighting: Weighting | Callable[..., Tensor], taper: float = 0.0) -> tuple[float, float]:
    """Return (inf L, sup L), the limits of L for p -> 1 and p -> 0; infinite if L is unbounded.

    >>> from reweigh.weightings import CCE, MAE
    >>> [round(x, 9) + 0.0 for x in potential_range(MAE())], potential_range(CCE())[1]
    ([0.0, 1.0], inf)
    """
    w_eff = tapered(as_weighting(weighting), taper)
    device = parameter_device(w_eff)
    top = float(potential(w_eff, torch.tensor([-math.inf], device=device)))
    return (0.0 if float(limit(w_eff, math.inf, device)) == 0 else -math.inf), top


def is_bounded(weighting: Weighting | Callable[..., Tensor], taper: float = 0.0) -> bool:
    """Return whether the objective is bounded, as the noise-tolerance theorems require.

    >>> from reweigh.weightings import CCE, GCE
    >>> is_bounded(CCE()), is_bounded(GCE(0.7))
    (False, True)
    """
    return all(map(math.isfinite, potential_range(weighting, taper)))


def symmetry_gap(
    weighting: Weighting | Callable[..., Tensor], num_classes: int, taper: float = 0.0, samples: int = 4096
) -> float:
    """Return sup - inf over the simplex of Σ_j L(p_j), the objective summed over all labels; 0 for a symmetric loss.

    A loss whose sum over labels is constant tolerates symmetric noise below (C - 1)/C (Ghosh et al. 2017); Zhang &
    Sabuncu (2018) bound the excess risk by this gap. The search covers equal probabilities of k classes, one class
    against the rest, and `samples` random points.

    >>> from reweigh.weightings import MAE
    >>> symmetry_gap(MAE(), num_classes=10) < 1e-9
    True
    """
    if num_classes < 2:
        raise ValueError(f"symmetry_gap: num_classes must be at least 2, got {num_classes}")
    if not is_bounded(weighting, taper):
        return math.inf
    logit = torch.linspace(-40, 40, 161, dtype=torch.float64)
    one_class = torch.stack([logit, *[torch.zeros_like(logit)] * (num_classes - 1)], 1)
    equal = torch.where(torch.tril(torch.ones(num_classes, num_classes, dtype=torch.bool)), 0.0, -80.0).double()
    rng = torch.Generator().manual_seed(0)
    scale = torch.rand(samples, 1, generator=rng, dtype=torch.float64) * 12
    random = torch.randn(samples, num_classes, generator=rng, dtype=torch.float64) * scale
    total = potential(weighting, margins(torch.cat((one_class, equal, random))), taper).sum(0)
    return float(total.max() - total.min())


class Emphasis(NamedTuple):
    """The L1 norm w of a criterion's derivative at each p, and its cosine similarity with that of CCE.

    A criterion with a cosine of 1 everywhere is equivalent to a weighting.
    """

    p: Tensor
    w: Tensor
    cosine: Tensor


def emphasis_of(
    criterion: Callable[[Tensor, Tensor], Tensor],
    num_classes: int,
    *,
    points: int = 101,
    generator: torch.Generator | None = None,
    reduction: str = "mean",
) -> Emphasis:
    """Return the emphasis of any `criterion(logits, target)` on a grid of p, and its cosine similarity with CCE.

    All points are passed as one batch, so a criterion that normalises over the batch returns weights relative to
    their mean.

    Args:
        criterion: called once with float64 logits (points, C) and targets; returns a scalar or one value per row. A
            module with parameters or buffers of another type or device is copied to float64 on the CPU.
        num_classes: C.
        points: number of p, evenly spaced inside (0, 1).
        generator: None makes all non-target logits equal; a generator draws them from a standard normal, which is
            needed to detect changes of direction that vanish for equal logits.
        reduction: the criterion's reduction; "mean" multiplies its gradient by the number of points.

    >>> emphasis = emphasis_of(torch.nn.CrossEntropyLoss(), num_classes=10, points=3)
    >>> emphasis.p.tolist(), [round(w, 6) for w in emphasis.w.tolist()]
    ([0.25, 0.5, 0.75], [1.5, 1.0, 0.5])
    """
    if num_classes < 2 or points < 1:
        raise ValueError(f"emphasis_of: expected num_classes >= 2 and points >= 1, got {num_classes} and {points}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"emphasis_of: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    p = torch.arange(1, points + 1, dtype=torch.float64) / (points + 1)
    others = torch.zeros(points, num_classes - 1, dtype=torch.float64)
    if generator is not None:
        others = torch.randn(others.shape, generator=generator, dtype=torch.float64)
    target = torch.arange(points) % num_classes
    logits = torch.full((points, num_classes), -math.inf, dtype=torch.float64)
    own = torch.nn.functional.one_hot(target, num_classes).bool()
    logits[~own] = others.reshape(-1)
    logits[own] = p.logit() + others.logsumexp(1)
    logits = (logits - logits.mean(1, keepdim=True)).requires_grad_()
    value = _to_double(criterion)(logits, target)
    per_row = reduction == "mean" and value.ndim == 0
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    cce = logits.detach().softmax(1) - own.double()
    cosine = torch.nn.functional.cosine_similarity(gradient, cce, dim=1, eps=1e-300)
    return Emphasis(p, gradient.abs().sum(1) * (points if per_row else 1), cosine)


def _to_double(criterion: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the criterion, or a copy in float64 on the CPU if it is a module with other tensors."""
    if not isinstance(criterion, nn.Module):
        return criterion
    double = torch.zeros((), dtype=torch.float64)
    tensors = itertools.chain(criterion.parameters(), criterion.buffers())
    fits = all(x.device == double.device and x.dtype == (double if x.is_floating_point() else x).dtype for x in tensors)
    return criterion if fits else deepcopy(criterion).to(double)
