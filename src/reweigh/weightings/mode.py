"""The emphasis mode by search, for weightings without a closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

# A tie, and a constant, are judged on log w with this much room for rounding.
TOLERANCE = 1e-12


def argmax(log_weight: Callable[[Tensor, Tensor], Tensor]) -> float | tuple[float, float] | None:
    """argmax of w over [0, 1]: a grid in the margin log(p/q), then ever finer grids around the best point.

    >>> round(argmax(lambda log_p, log_q: 2 * log_p + log_q), 6)
    0.666667
    >>> argmax(lambda log_p, log_q: torch.zeros_like(log_p)) is None
    True
    """
    end = torch.tensor(math.inf, dtype=torch.float64)
    grid = torch.cat((-end[None], torch.linspace(-40, 40, 4001, dtype=torch.float64), end[None]))

    def value(margin: Tensor) -> Tensor:
        return log_weight(logsigmoid(margin), logsigmoid(-margin))

    if value(grid[:1]).shape != (1,):
        raise ValueError("mode: a weighting with tensor parameters has one mode for each of them; ask them one by one")
    log_w = value(grid)
    best = log_w.max()
    room = TOLERANCE * max(1.0, abs(float(best)))
    if best == -math.inf or best - log_w.min() <= room:
        return None
    low, high = bool(log_w[0] >= best - room), bool(log_w[-1] >= best - room)
    if low or high:
        return (0.0, 1.0) if low and high else float(high)
    centre, step = grid[log_w.argmax()], torch.tensor(0.02, dtype=torch.float64)
    for _ in range(8):  # each round narrows the bracket fifty-fold, down to the flat top of rounding
        fine = centre + step * torch.linspace(-1, 1, 101, dtype=torch.float64)
        centre, step = fine[value(fine).argmax()], step / 50
    return float(centre.sigmoid())
