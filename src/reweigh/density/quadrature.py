"""Integrals over p, taken in the margin: dp = p q dm.

In the margin a taper layer at q = 5e-7 and the ends of [0, 1] are as smooth as the middle. Gauss-Legendre on short
panels over [-60, 60], split at the weighting's breakpoints, plus the exponential tails beyond.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from reweigh.weighting import Weighting

REACH = 60.0
NODES = 10


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


def panels(cuts: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of every panel between consecutive cuts, each (panels, NODES)."""
    x, weight = unit_nodes(cuts.device)
    width = cuts[1:, None] - cuts[:-1, None]
    return cuts[:-1, None] + width * x, width * weight


def parameter_dims(weighting: object) -> int:
    """The most dimensions that any tensor parameter has: the grid goes in front of them."""
    if isinstance(weighting, Tensor):
        return weighting.ndim
    if isinstance(weighting, tuple):
        return max([0, *map(parameter_dims, weighting)])
    if isinstance(weighting, Weighting):
        return parameter_dims(tuple(vars(weighting).values()))
    return 0


def log_weight_at(weighting: Weighting, margin: Tensor) -> Tensor:
    """log w at the given margins."""
    return weighting.log_weight(logsigmoid(margin), logsigmoid(-margin))


def log_integral(weighting: Weighting, low: float = 0.0, high: float = 1.0, power: int = 1) -> Tensor:
    """log of the integral of w^power over p in [low, high], float64; +inf where it diverges.

    One number, or one per element of the weighting's tensor parameters.
    """
    if low == 0 and high == 1 and power == 1 and (closed := weighting.log_integral()) is not None:
        return closed
    left = math.log(low) - math.log1p(-low) if low > 0 else -REACH
    right = math.log(high) - math.log1p(-high) if high < 1 else REACH
    dims = parameter_dims(weighting)

    def integrand(margin: Tensor) -> Tensor:
        margin = margin.reshape(margin.shape + (1,) * dims)
        return power * log_weight_at(weighting, margin) + logsigmoid(margin) + logsigmoid(-margin)

    nodes, weights = panels(edges(weighting.breakpoints, max(left, -REACH), min(right, REACH)))
    log_weights = weights.reshape(weights.numel(), *(1,) * dims).log()
    parts = [(integrand(nodes.reshape(-1)) + log_weights).logsumexp(0)]
    if low == 0:
        parts.append(log_tail(*integrand(torch.tensor([-REACH, -REACH + 1], dtype=torch.float64))))
    if high == 1:
        parts.append(log_tail(*integrand(torch.tensor([REACH, REACH - 1], dtype=torch.float64))))
    return torch.stack(parts).logsumexp(0)


def log_tail(end: Tensor, inner: Tensor) -> Tensor:
    """log of the integral beyond an end at which the integrand falls like exp(-rate * distance)."""
    rate = inner - end
    tail = torch.where(rate > 1e-9, end - rate.clamp_min(1e-300).log(), math.inf)
    return torch.where(end == -math.inf, end, tail)  # a weight that is already 0 has no tail
