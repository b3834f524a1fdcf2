"""What every weighting is: a function w(p) >= 0 written as log w of (log p, log q)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias, overload

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from reweigh.weightings.parameter import Parameter

Kind: TypeAlias = Literal["loss", "density"]
Mode: TypeAlias = "float | tuple[float, float] | None"


POWERS, EMPHASIS, BELL, FOCUS = 0, 1, 2, 3
# A tie, and a constant, are recognised on log w with this much room for rounding.
TOLERANCE = 1e-12


class Form(NamedTuple):
    """log w as a few numbers, which a fused kernel can evaluate; log(q / (q + inner)) is added to it.

    POWERS     a log p + b log q + c                           CCE, MAE, MSE, GCE, Beta, Uniform
    EMPHASIS   b exp(a log p + log q) + c                      DM, IMAE, Exponential
    BELL       b p (a + q) + c                                 Normal
    FOCUS      (a + 1) log q + log(1 + a (-p log p) / q) + c   Focal
    """

    family: int
    a: Parameter
    b: Parameter
    c: Parameter = 0.0
    inner: Parameter = 0.0


class Weighting(ABC):
    """w(p): the L1 norm of the derivative that an example with label probability p hands to its logits.

    A subclass is a frozen dataclass with one method, `log_weight`. The two arguments hold the same number twice,
    q = 1 - p, so that neither end of [0, 1] loses digits.

    `kind` decides what `Criterion` does by default: a weighting that comes from a *loss* keeps its own scale,
    a *density* is normalised over the batch. `breakpoints` are the p at which w has a kink or a jump: quadrature is
    split there.
    """

    @property
    def kind(self) -> Kind:
        return "density"

    @abstractmethod
    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        """log w, elementwise; -inf where w = 0."""

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return ()

    @property
    def mode(self) -> Mode:
        """The emphasis mode ψ = argmax w(p); a pair where both ends tie, None where w is constant."""
        return argmax(self.log_weight)

    @property
    def form(self) -> Form | None:
        """log w as a `Form`, for parameters that are numbers; None where there is none."""
        return None

    def log_integral(self) -> Tensor | None:
        """log of the integral of w over [0, 1] where a closed form exists, in float64."""
        return None

    @overload
    def __call__(self, p: float, q: float | None = None) -> float: ...
    @overload
    def __call__(self, p: Tensor | Iterable[float], q: Tensor | Iterable[float] | None = None) -> Tensor: ...
    def __call__(
        self, p: float | Tensor | Iterable[float], q: float | Tensor | Iterable[float] | None = None
    ) -> float | Tensor:
        """w(p); give q = 1 - p too where p is so close to 1 that the difference would be lost.

        A number gives a number, a tensor a tensor, and a list or array a tensor of float64.
        """
        if isinstance(p, Tensor):
            other = 1 - p if q is None else torch.as_tensor(q)
            return self.log_weight(p.log(), other.log()).exp()
        given = _numbers("p", p)
        w = self(given, None if q is None else _numbers("q", q))
        return w.item() if given.ndim == 0 else w

    def __add__(self, other: Weighting) -> Weighting:
        from reweigh.weightings.compose import Sum

        return Sum((self, other)) if isinstance(other, Weighting) else NotImplemented

    def __mul__(self, other: Weighting | float | Tensor) -> Weighting:
        from reweigh.weightings.compose import Product, Scaled

        if isinstance(other, Weighting):
            return Product((self, other))
        return Scaled(self, other) if isinstance(other, (int, float, Tensor)) else NotImplemented

    def __rmul__(self, other: float | Tensor) -> Weighting:
        return self * other


def _numbers(name: str, value: object) -> Tensor:
    """Probabilities that are no tensor yet."""
    try:
        found = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a number, a tensor, or a list or array of numbers, got {value!r}") from error
    if bool(((found < 0) | (found > 1)).any()):
        raise ValueError(f"{name} must be in [0, 1], got {value!r}")
    return found


def argmax(log_weight: Callable[[Tensor, Tensor], Tensor]) -> float | tuple[float, float] | None:
    """Return the argmax of w over [0, 1]: a grid in the margin log(p/q), then ever finer grids around the best point.

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
        raise ValueError("mode: a weighting with tensor parameters has one mode for each of them; use one at a time")
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
