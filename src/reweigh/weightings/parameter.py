"""Parameters of a weighting: floats, or tensors that broadcast over examples."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from reweigh.checks import plain_number

Parameter: TypeAlias = "float | Tensor"
# The largest size of exponents and the like, of which w in float64 keeps seven digits.
LARGEST = 1e9


def in_checked_mode() -> bool:
    """Return whether `torch.autograd.detect_anomaly` is active, which enables checks that synchronise the device."""
    return not torch.compiler.is_compiling() and torch.is_anomaly_enabled()


def is_readable(x: Tensor) -> bool:
    """Return whether values may be read: on a CPU, or in checked mode on any device; never in a compiled graph."""
    return not torch.compiler.is_compiling() and (x.device.type == "cpu" or torch.is_anomaly_enabled())


def all_true(condition: Tensor) -> bool:
    """Return whether all of `condition` is true; True if its values cannot be read, as inside `vmap`."""
    if not is_readable(condition):
        return True
    try:
        return bool(condition.all())
    except RuntimeError:  # vmap: "data-dependent control flow"
        return True


def is_within(x: Tensor, low: int, high: int) -> bool:
    """Return whether all of x is known to be in [low, high]; False if its values cannot be read."""
    if not is_readable(x) or not x.numel():
        return False
    try:
        least, largest = x.aminmax()
        return low <= least.item() and largest.item() <= high
    except RuntimeError:  # inside `vmap`
        return False


def item_or_none(x: Tensor) -> float | None:
    """Return the value of a tensor with one element; None if it cannot be read, as inside `vmap`."""
    try:
        number = x.item() if is_readable(x) else None
    except RuntimeError:
        return None
    return number if isinstance(number, (int, float)) else None  # not a symbolic number


def check(owner: object, name: str, value: Parameter, low: float, high: float = math.inf) -> None:
    """Raise if a parameter is not finite or lies outside [low, high].

    Replaces a NumPy number in its owner with a Python number, because records store the owner's repr.

    >>> check("GCE", "q", -1.0, low=0)
    Traceback (most recent call last):
        ...
    ValueError: GCE: q must be a number in [0, inf), got -1.0
    """
    given: object = value
    if isinstance(given, torch.fx.Proxy):  # torch 2.6 copies a weighting with these while it compiles
        return
    label = owner if isinstance(owner, str) else type(owner).__name__
    allowed = f"{'(' if low == -math.inf else '['}{low:g}, {high:g}{')' if high == math.inf else ']'}"
    if isinstance(value, Tensor):
        good = all_true((value >= low) & (value <= high) & value.isfinite())
        reason = ""
    else:
        number = plain_number(value)
        if number is None:
            raise TypeError(f"{label}: {name} must be a number or a tensor, got {value!r}")
        good = low <= number <= high and abs(number) != math.inf  # compilers read this, but not math.isfinite
        reason = ", where float64 has no digits left for log w" if LARGEST < abs(number) < math.inf else ""
        if number is not value and not isinstance(owner, str):
            object.__setattr__(owner, name, number)
    if not good:
        raise ValueError(f"{label}: {name} must be a number in {allowed}, got {value!r}{reason}")


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Return table[index] along the first dimension; unlike indexing, supports a scalar index inside `vmap`.

    >>> take_rows(torch.tensor([5.0, 6.0, 7.0]), torch.tensor([[2], [0]]))
    tensor([[7.],
            [5.]])
    """
    return table.index_select(0, index.reshape(-1)).reshape(index.shape + table.shape[1:])


def clamp_log(log_x: Tensor) -> Tensor:
    """Return log x with log 0 replaced by the lowest finite number, so that x ** a * x ** -a is 1 at x = 0.

    Its exponential is 0, as is that of any positive multiple that is not tiny.
    """
    return log_x.clamp_min(torch.finfo(log_x.dtype).min)


def is_log_zero(log_x: Tensor) -> Tensor:
    """Return whether x is 0: log x is -inf or a multiple of the bound of `clamp_log`, which no finite logits reach.

    >>> is_log_zero(0.7 * clamp_log(torch.tensor([-torch.inf, -1e9, 0.0])))
    tensor([ True, False, False])
    """
    return log_x < torch.finfo(log_x.dtype).min * 1e-8


def power(exponent: Parameter, log_x: Tensor) -> Tensor:
    """Return log(x ** exponent), with 0 ** 0 = 1."""
    return exponent * clamp_log(log_x)


def log_parameter(value: Parameter, like: Tensor) -> Tensor:
    """Return log(value) on the device of `like`; a 0 that requires a gradient is replaced by a tiny number."""
    if isinstance(value, Tensor):
        if not (value.requires_grad and torch.is_grad_enabled()):
            return value.log()
        # the derivative of exp(log x) is x / x, which is 1 even for this tiny x
        value = value.to(torch.promote_types(value.dtype, like.dtype))
        return torch.where(value == 0, value + torch.finfo(value.dtype).tiny ** 0.5, value).log()
    return like.new_full((), math.log(value) if value > 0 else -math.inf)


def log_sum(value: Parameter, log_x: Tensor) -> Tensor:
    """Return log(value + x) for value >= 0, differentiable in the value also at 0."""
    if not isinstance(value, Tensor):
        return torch.logaddexp(log_parameter(value, log_x), log_x)
    is_zero = value == 0
    positive = torch.logaddexp(value.masked_fill(is_zero, 1.0).log(), log_x)
    # 1 / x, below overflow
    inverse = (-log_x).clamp_max(700 if log_x.dtype == torch.float64 else 80).exp()
    return torch.where(is_zero, log_x + torch.log1p(value.masked_fill(~is_zero, 0.0) * inverse), positive)


def log_add(log_x: Tensor, log_y: Tensor) -> Tensor:
    """Return log(x + y); unlike `torch.logaddexp`, has the derivative 0 instead of NaN where both are 0."""
    both_zero = (log_x == -math.inf) & (log_y == -math.inf)
    return torch.logaddexp(log_x, log_y.masked_fill(both_zero, 0.0)).masked_fill(both_zero, -math.inf)
