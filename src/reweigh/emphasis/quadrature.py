"""Integrals over p, taken in the margin: dp = p q dm.

In the margin a taper layer at q = 5e-7 and the ends of [0, 1] are as smooth as the middle. Gauss-Legendre on short
panels over [-60, 60], split at the weighting's breakpoints and wherever else it takes, plus the exponential tails
beyond.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from reweigh.weightings import Weighting
from reweigh.weightings.compose import inner
from reweigh.weightings.parameter import is_readable

REACH = 60.0
NODES = 10
# Of the whole integral, on every panel; a jump needs about as many halvings as this has binary digits.
TOLERANCE = 1e-12
HALVINGS = 42


# On [-1, 1], once: a cached function would be traced anew by torch.compile.
_GAUSS_LEGENDRE = tuple(map(torch.from_numpy, np.polynomial.legendre.leggauss(NODES)))


def unit_nodes(device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = (t.to(device) for t in _GAUSS_LEGENDRE)
    return (nodes + 1) / 2, weights / 2


def edges(breakpoints: tuple[float, ...], low: float = -REACH, high: float = REACH) -> Tensor:
    """Panel edges about one unit of margin apart, with every breakpoint (a p) among them."""
    inside = [math.log(p) - math.log1p(-p) for p in breakpoints]
    pieces = sorted({low, high, *[cut for cut in inside if low < cut < high]})
    spans = [
        torch.linspace(a, b, max(2, math.ceil(b - a) + 1), dtype=torch.float64)[:-1]
        for a, b in itertools.pairwise(pieces)
    ]
    return torch.cat([*spans, torch.tensor([high], dtype=torch.float64)])


def panels(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the panels between these ends, each (panels, NODES)."""
    x, weight = unit_nodes(left.device)
    width = (right - left)[:, None]
    return left[:, None] + width * x, width * weight


def log_panels(left: Tensor, right: Tensor, log_f: Callable[[Tensor], Tensor]) -> Tensor:
    """log of the integral of exp(log_f) over every panel."""
    nodes, weights = panels(left, right)
    log_values = log_f(nodes)
    return (log_values + weights.log().reshape(weights.shape + (1,) * (log_values.ndim - 2))).logsumexp(1)


def is_traced() -> bool:
    """Whether values are not there to be looked at: in a compiled graph, or inside `vmap`."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


@torch.no_grad()
def refined(cuts: Tensor, log_f: Callable[[Tensor], Tensor]) -> Tensor:
    """The cuts, and more in every panel whose integral of exp(log_f) changes when it is halved.

    That finds kinks, jumps and narrow peaks of which no breakpoint tells, if a node sees anything of them (the nodes
    are at most 0.15 apart in the margin). Where values cannot be looked at, the cuts stay as they are.
    """
    if is_traced() or not is_readable(cuts):
        return cuts
    found, left, right = [cuts], cuts[:-1], cuts[1:]
    whole = log_panels(left, right, log_f)
    total = torch.full_like(whole[0], -math.inf)
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        left, right = torch.cat((left, middle)), torch.cat((middle, right))
        halves = log_panels(left, right, log_f)
        both = torch.logaddexp(*halves.chunk(2))
        total = torch.maximum(total, both.logsumexp(0))  # a narrow peak may only come to light now
        change = ((whole - total).exp() - (both - total).exp()).abs()
        coarse = (change > TOLERANCE).reshape(len(middle), -1).any(1)
        if not bool(coarse.any()):
            break
        found.append(middle[coarse])
        again = coarse.repeat(2)
        left, right, whole = left[again], right[again], halves[again]
    return torch.cat(found).sort().values


def parameter_dims(weighting: object) -> int:
    """The most dimensions that any tensor parameter has: the grid goes in front of them."""
    if isinstance(weighting, Tensor):
        return weighting.ndim
    if isinstance(weighting, tuple):
        return max([0, *map(parameter_dims, weighting)])
    if isinstance(weighting, Weighting):
        return parameter_dims(inner(weighting))
    return 0


def parameter_device(part: object) -> torch.device | None:
    """Where the tensors of a weighting are, those of a function that is a module included; None without any."""
    if isinstance(part, Tensor):
        return part.device
    if isinstance(part, nn.Module):
        return next((tensor.device for tensor in itertools.chain(part.parameters(), part.buffers())), None)
    if isinstance(part, Weighting):
        part = inner(part)
    found = [parameter_device(each) for each in part] if isinstance(part, tuple) else []
    known = [device for device in found if device is not None]
    return known[0] if known else None


def log_weight_at(weighting: Weighting, margin: Tensor) -> Tensor:
    """log w at the given margins."""
    return weighting.log_weight(logsigmoid(margin), logsigmoid(-margin))


def log_integral(weighting: Weighting, low: float = 0.0, high: float = 1.0, power: int = 1) -> Tensor:
    """log of the integral of w^power over p in [low, high], float64; +inf where it diverges.

    One number, or one per element of the weighting's tensor parameters.
    """
    if low == 0 and high == 1 and power == 1 and (closed := weighting.log_integral()) is not None:
        return closed
    right = math.log(high) - math.log1p(-high) if high < 1 else REACH
    left = math.log(low) - math.log1p(-low) if low > 0 else min(-REACH, right - 1)
    dims, device = parameter_dims(weighting), parameter_device(weighting)

    def integrand(margin: Tensor) -> Tensor:
        margin = margin.reshape(margin.shape + (1,) * dims)
        return power * log_weight_at(weighting, margin) + logsigmoid(margin) + logsigmoid(-margin)

    cuts = refined(edges(weighting.breakpoints, left, right).to(device), integrand)
    parts = [log_panels(cuts[:-1], cuts[1:], integrand).logsumexp(0)]
    if low == 0:
        parts.append(log_tail(*integrand(torch.tensor([left, left + 1], dtype=torch.float64, device=device))))
    if high == 1:
        parts.append(log_tail(*integrand(torch.tensor([right, right - 1], dtype=torch.float64, device=device))))
    return torch.stack(parts).logsumexp(0)


def log_tail(end: Tensor, inner: Tensor) -> Tensor:
    """log of the integral beyond an end at which the integrand falls like exp(-rate * distance)."""
    rate = inner - end
    tail = torch.where(rate > 1e-9, end - rate.clamp_min(1e-300).log(), math.inf)
    return torch.where(end == -math.inf, end, tail)  # a weight that is already 0 has no tail
