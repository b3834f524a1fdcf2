"""What the loop asks of a schedule at every iteration: the learning rate, and a weighting with its current numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, TypeVar

from reweigh.spec import Expression, at_step, factor_at, is_scheduled, parse, value_at

T = TypeVar("T")


def learning_rate(base: float, schedule: Expression, step: int, total: int) -> float:
    """The learning rate of iteration `step`, counted from 0, of `total`: base * factor.

    >>> from reweigh.spec import parse
    >>> [round(learning_rate(0.1, parse("step(0.1, at=[15000, 22000])"), i, 30000), 6) for i in (0, 15000, 22000)]
    [0.1, 0.01, 0.001]
    """
    return base * factor_at(schedule, step, total)


def taper_at(taper: float | str, step: int, total: int) -> float | Literal["auto"]:
    """The taper of `Run` at an iteration: "auto" stays, a schedule gives its value.

    >>> taper_at("auto", 0, 100), taper_at(5e-7, 0, 100), taper_at("linear(0.5, 0)", 50, 100)
    ('auto', 5e-07, 0.25)
    """
    if taper == "auto":
        return "auto"
    return value_at(parse(taper) if isinstance(taper, str) else taper, step, total)


def over_steps(build: Callable[[Expression], T], expression: Expression, total: int) -> Callable[[int], T]:
    """step -> build(the expression with its schedules' values at that step); built once if nothing in it changes.

    >>> from reweigh.spec import parse
    >>> beta = over_steps(lambda now: now.args[1], parse("DM(0.5, linear(2, 16, until=0.5))"), 100)
    >>> beta(0), beta(25), beta(99)
    (2, 9, 16)
    """
    if not is_scheduled(expression):
        built = build(expression)
        return lambda step: built
    cached = lru_cache(maxsize=1)(build)  # schedules rest: after `until`, between steps
    return lambda step: cached(at_step(expression, step, total))
