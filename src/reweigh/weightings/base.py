"""The base class of all weightings: a function w(p) >= 0, given as log w of (log p, log q)."""

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
# Relative tolerance on log w for detecting ties between both ends, and constants.
TOLERANCE = 1e-12


class Form(NamedTuple):
    """Coefficients of log w for the fused kernels, which add log(q / (q + inner)) to it.

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
    """w(p): the L1 norm of the derivative with respect to the logits of an example with label probability p.

    A subclass is a frozen dataclass with one method, `log_weight`. It takes both log p and log q, q = 1 - p, so that
    no digits are lost at either end of [0, 1].

    `kind` sets the defaults of `Criterion`: a weighting derived from a *loss* keeps its own scale, a *density* is
    normalised over the batch. `breakpoints` are the p at which w has a kink or a jump; quadrature is split there.
    """

    @property
    def kind(self) -> Kind:
        return "density"

    @abstractmethod
    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        """Return log w, elementwise; -inf where w = 0."""

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return ()

    @property
    def mode(self) -> Mode:
        """The emphasis mode ψ = argmax w(p); a pair if both ends tie, None if w is constant."""
        return argmax(self.log_weight)

    @property
    def form(self) -> Form | None:
        """log w as a `Form` if the parameters are numbers; None if no form applies."""
        return None

    def log_integral(self) -> Tensor | None:
        """Return the log of the integral of w over [0, 1] in float64; None without a closed form."""
        return None

    @overload
    def __call__(self, p: float, q: float | None = None) -> float: ...
    @overload
    def __call__(self, p: Tensor | Iterable[float], q: Tensor | Iterable[float] | None = None) -> Tensor: ...
    def __call__(
        self, p: float | Tensor | Iterable[float], q: float | Tensor | Iterable[float] | None = None
    ) -> float | Tensor:
        """Return w(p). Pass q = 1 - p as well if p is too close to 1 to compute it accurately.

        Returns a number for a number, a tensor for a tensor, and a float64 tensor for a list or array.
        """
        if isinstance(p, Tensor):
            other = 1 - p if q is None else torch.as_tensor(q)
            return self.log_weight(p.log(), other.log()).exp()
        values = _probabilities("p", p)
        w = self(values, None if q is None else _probabilities("q", q))
        return w.item() if values.ndim == 0 else w

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


def _probabilities(name: str, value: object) -> Tensor:
    """Convert numbers in [0, 1] to a float64 tensor."""
    try:
        probabilities = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a number, a tensor, or a list or array of numbers, got {value!r}") from error
    if bool(((probabilities < 0) | (probabilities > 1)).any()):
        raise ValueError(f"{name} must be in [0, 1], got {value!r}")
    return probabilities


def argmax(log_weight: Callable[[Tensor, Tensor], Tensor]) -> float | tuple[float, float] | None:
    """Return the argmax of w over [0, 1], by a grid in the margin log(p/q) that is refined around the maximum.

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
        raise ValueError("mode: a weighting with tensor parameters has one mode per element; pass plain numbers")
    log_w = value(grid)
    best = log_w.max()
    tolerance = TOLERANCE * max(1.0, abs(float(best)))
    if best == -math.inf or best - log_w.min() <= tolerance:
        return None
    low, high = bool(log_w[0] >= best - tolerance), bool(log_w[-1] >= best - tolerance)
    if low or high:
        return (0.0, 1.0) if low and high else float(high)
    centre, step = grid[log_w.argmax()], torch.tensor(0.02, dtype=torch.float64)
    for _ in range(8):  # each round narrows the bracket fifty-fold, until rounding limits it
        fine = centre + step * torch.linspace(-1, 1, 101, dtype=torch.float64)
        centre, step = fine[value(fine).argmax()], step / 50
    return float(centre.sigmoid())
