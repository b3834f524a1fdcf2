"""Custom weightings: interpolated points, a callable, or the derivative of a loss."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from reweigh.weightings.base import Kind, Weighting
from reweigh.weightings.losses import LOG2
from reweigh.weightings.parameter import all_true


@dataclass(frozen=True)
class Curve(Weighting):
    """w through the given points by monotone cubic interpolation (Fritsch & Carlson 1980), flat outside them.

    The curve between two points stays within their range, so w >= 0.

    Args:
        points: pairs (p, w), p rising within [0, 1], w >= 0.

    >>> Curve(((0.0, 0.0), (0.5, 2.0), (1.0, 0.0)))(0.5)
    2.0
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        try:
            points = tuple((float(p), float(w)) for p, w in self.points)
        except (TypeError, ValueError) as error:
            raise TypeError(f"Curve: points must be pairs (p, w) of numbers, got {self.points!r}") from error
        object.__setattr__(self, "points", points)
        p, w = [x for x, _ in points], [y for _, y in points]
        if len(points) < 2 or not all(0 <= a < b <= 1 for a, b in pairwise(p)):
            raise ValueError(f"Curve: points must be at least two with p rising within [0, 1], got p = {p}")
        if not all(0 <= y < math.inf for y in w) or max(w) == 0:
            raise ValueError(f"Curve: w must be >= 0, finite and somewhere positive, got w = {w}")
        object.__setattr__(self, "_columns", (p, w, _slopes(p, w)))

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        to_tensor = log_p.new_tensor if log_p.device.type == "cpu" else partial(constants_like, like=log_p)
        columns = [to_tensor(column) for column in self.__dict__["_columns"]]
        p, q = log_p.exp(), log_q.exp()
        # count the knots below p: vmap supports neither bucketize nor indexing by a single number
        i = (p.detach()[..., None] >= columns[0][1:-1]).sum(-1, keepdim=True)
        left, a, slope_a = (column[i].squeeze(-1) for column in columns)
        right, b, slope_b = (column[i + 1].squeeze(-1) for column in columns)
        width = right - left
        # distances from both knots as fractions of the interval; u is computed from q to be exact at p = 1
        t = ((p - left) / width).clamp(0, 1)
        u = ((q - (1 - right)) / width).clamp(0, 1)
        bend = width * (slope_a * u - slope_b * t) + (b - a) * (t - u)
        return (a * u + b * t + t * u * bend).clamp_min(0).log()

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return tuple(p for p, _ in self.points if 0 < p < 1)


def constants_like(numbers: list[float], like: Tensor) -> Tensor:
    """Return the numbers as a tensor on the device of `like`.

    Fills one element at a time: copying from the host would synchronise with the GPU and cannot be captured in a graph.
    """
    return torch.stack([torch.full((), number, dtype=like.dtype, device=like.device) for number in numbers])


def _slopes(p: list[float], w: list[float]) -> list[float]:
    """Return dw/dp at the points: the weighted harmonic mean of the adjacent slopes, 0 where their sign changes."""
    gaps = [b - a for a, b in pairwise(p)]
    rises = [(b - a) / gap for (a, b), gap in zip(pairwise(w), gaps, strict=True)]
    inner = [
        3 * (h + k) / ((2 * k + h) / d + (k + 2 * h) / e) if d * e > 0 else 0.0
        for (h, k), (d, e) in zip(pairwise(gaps), pairwise(rises), strict=True)
    ]
    return [rises[0], *inner, rises[-1]]


@dataclass(frozen=True)
class FromCallable(Weighting):
    """A function of p, or of (p, q) where q = 1 - p is exact near p = 1.

    Args:
        function: elementwise; p is float64 and of any shape, so a network is passed as
            `lambda p: net(p.float()[..., None])[..., 0]`.
        breakpoints: the p at which w has a kink or a jump, as in `reweigh.from_loss`.

    >>> FromCallable(lambda p, q: 4 * p * q)(0.5)
    1.0
    """

    function: Callable[..., Tensor]
    breakpoints: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_breakpoints(self)
        required = _arguments(self.function)
        if required not in (1, 2):
            raise TypeError(f"a weighting function takes (p) or (p, q), got one of {required} arguments: {self!r}")
        object.__setattr__(self, "_takes_q", required == 2)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        p = log_p.exp()
        w = self.function(p, log_q.exp()) if self.__dict__["_takes_q"] else self.function(p)
        if w is None:
            raise TypeError(f"a weighting function must return a tensor or a number, got None: {self!r}")
        w = torch.as_tensor(w, dtype=log_p.dtype, device=log_p.device)
        if not _broadcasts(w.shape, p.shape):
            raise ValueError(
                f"a weighting function must return one w for every p, of shape {tuple(p.shape)}, got shape "
                f"{tuple(w.shape)}: {self!r}"
            )
        w = w.expand_as(log_p)
        below = w < 0  # false for NaN, which propagates
        if not all_true(~below):
            value, where = w[below][0].item(), p[below][0].item()
            raise ValueError(f"a weighting function must return w >= 0, got {value:g} at p = {where:g}: {self!r}")
        return w.log()

    def __repr__(self) -> str:
        return _name(self.function)


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def _name(function: Callable[..., Tensor]) -> str:
    if isinstance(function, nn.Module):
        return type(function).__name__  # its repr may have many lines
    return getattr(function, "__name__", repr(function))


def _arguments(function: Callable[..., Tensor]) -> int:
    """Return the number of required arguments; 1 if all are optional or the signature is not available."""
    try:
        # Module.__call__ takes (*args, **kwargs)
        parameters = inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters
    except ValueError:  # built-in functions such as torch.sqrt
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = sum(each.default is each.empty and each.kind in positional for each in parameters.values())
    takes = any(each.kind in (*positional, inspect.Parameter.VAR_POSITIONAL) for each in parameters.values())
    return required or int(takes)


def _check_breakpoints(weighting: FromCallable | FromLoss) -> None:
    if not all(0 < p < 1 for p in weighting.breakpoints):
        name = type(weighting).__name__
        raise ValueError(f"{name}: breakpoints must be p inside (0, 1), got {weighting.breakpoints}")


@dataclass(frozen=True)
class FromLoss(Weighting):
    """The weighting of a differentiable, non-increasing loss f(p): w = -2 p (1 - p) f'(p).

    Use `reweigh.from_loss`, which checks f.
    """

    loss: Callable[[Tensor], Tensor]
    breakpoints: tuple[float, ...] = ()
    kind: ClassVar[Kind] = "loss"

    def __post_init__(self) -> None:
        _check_breakpoints(self)

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        def total(p: Tensor) -> Tensor:
            return self.loss(p).sum()

        # f' of a log-like loss overflows near p = 1e-308 in float64; w has reached its limit before
        log_p = log_p.clamp_min(-700)
        # f' may be infinite or NaN at p = 1, where w = 0 in the limit: use the largest p below 1
        slope: Tensor = torch.func.grad(total)(log_p.double().exp().clamp_max(1 - 2**-53))
        return LOG2 + log_p + log_q + (-slope).clamp_min(0).log().to(log_p.dtype)

    def __repr__(self) -> str:
        return f"from_loss({_name(self.loss)})"


def as_weighting(weighting: Weighting | Callable[..., Tensor]) -> Weighting:
    """Return a weighting unchanged and a callable as `FromCallable`; raise TypeError for anything else.

    >>> as_weighting(8)
    Traceback (most recent call last):
        ...
    TypeError: weighting must be a Weighting or a callable of p or (p, q), got 8
    """
    if isinstance(weighting, Weighting):
        return weighting
    if isinstance(weighting, str):
        raise TypeError(
            f"weighting must be a Weighting or a callable of p or (p, q), got the text {weighting!r}; pass the "
            "weighting itself, such as reweigh.DM(0.5, 8)"
        )
    if isinstance(weighting, type) or not callable(weighting):
        raise TypeError(f"weighting must be a Weighting or a callable of p or (p, q), got {weighting!r}")
    return FromCallable(weighting)
