"""Schedules of parameters, such as beta, and of the learning rate over the iterations.

A *parameter* schedule replaces a number and gives its value:

    constant(a)                     a
    linear(a, b, until=1)           linearly from a to b, then b
    cosine(a, b, until=1)           from a to b along half a cosine, then b
    step(a, b, c, at=[s, t])        a, from s on b, from t on c

A *learning-rate* schedule gives the factor on the base rate:

    constant                        1
    step(f, at=[s, t])              1, from s on f, from t on f^2
    inv(gamma, power)               (1 + gamma i)^(-power) at iteration i
    halving(every)                  2^(-floor(i / every))
    cosine(end=0)                   from 1 to `end` along half a cosine, reached after the last iteration

Times (`until`, `at`, `every`) up to 1 are fractions of the training; above 1 they are iterations.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from reweigh.checks import nearest
from reweigh.lab.spec.expression import Expression, Value

_Kinds: TypeAlias = Mapping[str, Callable[..., float]]


def value_at(schedule: float | Expression, step: float, total: int) -> float:
    """Return the value of a number or parameter schedule at an iteration of `total`.

    >>> from reweigh.lab.spec import parse
    >>> [value_at(parse("linear(2, 16, until=0.5)"), step, 100) for step in (0, 25, 50, 99)]
    [2.0, 9.0, 16.0, 16.0]
    >>> value_at(8, 0, 100)
    8.0
    """
    return _evaluate(_VALUES, schedule, step, total) if isinstance(schedule, Expression) else float(schedule)


def factor_at(schedule: Expression, step: float, total: int) -> float:
    """Return the factor of a learning-rate schedule at an iteration of `total`.

    >>> from reweigh.lab.spec import parse
    >>> factor_at(parse("halving(every=10000)"), 29999, 50000)
    0.25
    """
    return _evaluate(_FACTORS, schedule, step, total)


def at_step(expression: Expression, step: float, total: int) -> Expression:
    """Replace every parameter schedule in an expression by its value at an iteration of `total`.

    >>> from reweigh.lab.spec import parse
    >>> print(at_step(parse("DM(0.5, linear(2, 16, until=0.5))"), 25, 100))
    DM(0.5, 9)
    """

    return _with_schedules(expression, lambda schedule: value_at(schedule, step, total))


def rescale_schedule(schedule: Expression, share: float) -> Expression:
    """Adapt a schedule of either kind to a run with a `share` of the iterations: times above 1 shrink in proportion.

    Times up to 1 are fractions of the training and stay.

    >>> from reweigh.lab.spec import parse
    >>> print(rescale_schedule(parse("step(0.1, at=[0.5, 15000])"), 0.1))
    step(0.1, at=[0.5, 1500])
    """

    def shrunk(key: str, value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(shrunk(key, item) for item in value)
        if key in ("until", "at", "every") and isinstance(value, int | float) and value > 1:
            return max(1.5, round(value * share))  # not 1, which would mean the end of the training
        return value

    if schedule.name == "halving":  # its only argument is a time, positional or not
        schedule = schedule.bind(("every",))
    kwargs = tuple((key, shrunk(key, value)) for key, value in schedule.kwargs)
    return Expression(schedule.name, schedule.args, kwargs)


def rescale_schedules(expression: Expression, share: float) -> Expression:
    """Apply `rescale_schedule` to every parameter schedule in the expression.

    >>> from reweigh.lab.spec import parse
    >>> print(rescale_schedules(parse("DM(1, linear(0, 16, until=5000))"), 0.1))
    DM(1, linear(0, 16, until=500))
    """
    return _with_schedules(expression, lambda schedule: rescale_schedule(schedule, share))


def is_scheduled(expression: Expression) -> bool:
    """Return whether the expression contains a parameter schedule."""
    return any(True for _ in _schedules(expression))


def check_parameters(expression: Expression) -> None:
    """Raise ValueError for an expression that is a schedule, or contains an invalid one.

    >>> from reweigh.lab.spec import parse
    >>> check_parameters(parse("DM(0.5, linear(2))"))
    Traceback (most recent call last):
        ...
    ValueError: schedule linear(2): missing a required argument: 'b'
    """
    if expression.name in _VALUES:
        raise ValueError(f"{expression} is a schedule; it can only replace a number")
    for schedule in _schedules(expression):
        _check(_VALUES, schedule)


def check_schedule(schedule: Expression, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise ValueError unless this is a parameter schedule with values in [low, high]."""
    _check(_VALUES, schedule)
    for value in schedule.args:  # no kind of schedule leaves the range of these values
        if isinstance(value, int | float) and not low <= value <= high:
            raise ValueError(f"schedule {schedule} reaches {value}; expected values from {low:g} to {high:g}")


def check_rate(schedule: Expression) -> None:
    """Raise ValueError unless this is a learning-rate schedule."""
    _check(_FACTORS, schedule)


def _constant(step: float, total: int, a: float, /) -> float:
    return a


def _linear(step: float, total: int, a: float, b: float, /, *, until: float = 1) -> float:
    done = step / _time(until, total)
    return b if done >= 1 else a + (b - a) * done


def _cosine(step: float, total: int, a: float, b: float, /, *, until: float = 1) -> float:
    done = step / _time(until, total)
    return b if done >= 1 else a + (b - a) * (1 - math.cos(math.pi * done)) / 2


def _step(step: float, total: int, /, *values: float, at: tuple[float, ...]) -> float:
    passed = _passed(step, at, total)
    if len(values) != len(at) + 1:
        raise ValueError(f"{len(at)} times in `at` need {len(at) + 1} values, not {len(values)}")
    return values[passed]


def _rate_constant(step: float, total: int, /) -> float:
    return 1.0


def _rate_step(step: float, total: int, f: float, /, at: tuple[float, ...]) -> float:
    return math.pow(_positive("the factor", f), _passed(step, at, total))


def _rate_inv(step: float, total: int, /, gamma: float, power: float) -> float:
    return math.pow(1 + _positive("gamma", gamma) * step, -_positive("power", power))


def _rate_halving(step: float, total: int, /, every: float) -> float:
    return math.pow(0.5, step // _time(every, total))


def _rate_cosine(step: float, total: int, /, end: float = 0) -> float:
    if not 0 <= end <= 1:
        raise ValueError(f"end is {end}; expected 0 to 1")
    return _cosine(step, total, 1, end)


_VALUES: _Kinds = {"constant": _constant, "linear": _linear, "cosine": _cosine, "step": _step}
_FACTORS: _Kinds = {
    "constant": _rate_constant,
    "step": _rate_step,
    "inv": _rate_inv,
    "halving": _rate_halving,
    "cosine": _rate_cosine,
}


def _time(time: float, total: int) -> float:
    return _positive("a time", time) * (total if time <= 1 else 1)


def _passed(step: float, at: tuple[float, ...], total: int) -> int:
    if not isinstance(at, tuple) or list(at) != sorted(at):
        raise ValueError("`at` must be a list of times in rising order, as in at=[0.5, 0.75]")
    return sum(step >= _time(time, total) for time in at)


def _positive(name: str, value: float) -> float:
    if value <= 0:
        raise ValueError(f"{name} is {value}; expected more than 0")
    return value


def _check(kinds: _Kinds, schedule: Expression) -> None:
    """Raise ValueError for an unknown kind, and for arguments that are not numbers, do not fit or are out of range."""
    for name, value in [*(("", value) for value in schedule.args), *schedule.kwargs]:
        for number in value if name == "at" and isinstance(value, tuple) else [value]:
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError(f"schedule {schedule}: {number!r} is not a number")
    keywords: dict[str, Any] = dict(schedule.kwargs)
    try:
        inspect.signature(_kind(kinds, schedule)).bind(0, 1, *schedule.args, **keywords)
        _evaluate(kinds, schedule, 0, 1)
    except (TypeError, ValueError) as error:
        raise ValueError(f"schedule {schedule}: {error}") from None


def _evaluate(kinds: _Kinds, schedule: Expression, step: float, total: int) -> float:
    keywords: dict[str, Any] = dict(schedule.kwargs)
    return float(_kind(kinds, schedule)(step, total, *schedule.args, **keywords))


def _kind(kinds: _Kinds, schedule: Expression) -> Callable[..., float]:
    if schedule.name not in kinds:
        raise ValueError(f"no schedule is named {schedule.name!r}; {nearest(schedule.name, list(kinds))}")
    return kinds[schedule.name]


def _with_schedules(expression: Expression, change: Callable[[Expression], Value]) -> Expression:
    """Apply `change` to every parameter schedule inside an expression, but not to the expression itself."""

    def inside(value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(inside(item) for item in value)
        if not isinstance(value, Expression):
            return value
        return change(value) if value.name in _VALUES else _with_schedules(value, change)

    kwargs = tuple((key, inside(value)) for key, value in expression.kwargs)
    return Expression(expression.name, tuple(inside(value) for value in expression.args), kwargs)


def _schedules(expression: Expression) -> Iterator[Expression]:
    """Yield the parameter schedules inside an expression, without the expression itself."""

    def inside(value: Value) -> Iterator[Expression]:
        if isinstance(value, tuple):
            for item in value:
                yield from inside(item)
        elif isinstance(value, Expression):
            if value.name in _VALUES:
                yield value
            else:
                yield from _schedules(value)

    for value in [*expression.args, *(value for _, value in expression.kwargs)]:
        yield from inside(value)
