"""Schedules in training: the learning rate, the taper and the weighting at an iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from reweigh.lab.spec import Expression, Value, at_step, factor_at, is_scheduled, parse, value_at
from reweigh.lab.spec.schedule import check_schedule
from reweigh.lab.weightings import weighting_from
from reweigh.weightings import Weighting

T = TypeVar("T")


def learning_rate(base: float, schedule: Expression, step: int, total: int) -> float:
    """Return the learning rate, base * factor, of iteration `step`, counted from 0, of `total`.

    >>> from reweigh.lab.spec import parse
    >>> [round(learning_rate(0.1, parse("step(0.1, at=[15000, 22000])"), i, 30000), 6) for i in (0, 15000, 22000)]
    [0.1, 0.01, 0.001]
    """
    return base * factor_at(schedule, step, total)


def taper_at(taper: float | str, step: int, total: int) -> float | Literal["auto"]:
    """Return the taper of a `Run` at an iteration: "auto", or the value of a schedule.

    >>> taper_at("auto", 0, 100), taper_at(5e-7, 0, 100), taper_at("linear(0.5, 0)", 50, 100)
    ('auto', 5e-07, 0.25)
    """
    if taper == "auto":
        return "auto"
    return value_at(parse(taper) if isinstance(taper, str) else taper, step, total)


def over_steps(build: Callable[[Expression], T], expression: Expression, total: int) -> Callable[[int], T]:
    """Return step -> build(the expression with the values of its schedules at that step).

    Without schedules it is built once.

    >>> from reweigh.lab.spec import parse
    >>> beta = over_steps(lambda now: now.args[1], parse("DM(0.5, linear(2, 16, until=0.5))"), 100)
    >>> beta(0), beta(25), beta(99)
    (2, 9, 16)
    """
    if not is_scheduled(expression):
        built = build(expression)
        return lambda step: built
    cached = lru_cache(maxsize=1)(build)  # schedules can be constant for long
    return lambda step: cached(at_step(expression, step, total))


def weighting_in_tensors(
    expression: Expression, total: int, device: torch.device
) -> tuple[Weighting, Callable[[int], None]] | None:
    """Return a weighting whose scheduled numbers are float64 tensors on the device, and a function that sets them.

    The function takes a step. Returns None where a schedule is in a list, such as a curve's points.

    >>> from reweigh.lab.spec import parse
    >>> weighting, set_to = weighting_in_tensors(parse("DM(0.5, linear(2, 16, until=0.5))"), 100, torch.device("cpu"))
    >>> set_to(25)
    >>> weighting
    DM(lam=0.5, beta=tensor(9., dtype=torch.float64))
    """
    schedules: list[Expression] = []

    def note(schedule: Expression) -> float:
        schedules.append(schedule)
        return value_at(schedule, 0, total)

    _filled(expression, note)
    start = [value_at(schedule, 0, total) for schedule in schedules]
    numbers = _numbers(_weighting(expression, start))
    cells: dict[int, tuple[Expression, Tensor]] = {}  # by place among the weighting's numbers
    for i, schedule in enumerate(schedules):
        # find the number that this schedule sets: the one that changes with another of its values
        others = [float(cast(float, value)) for value in schedule.args if value != start[i]]
        if others:
            moved = _numbers(_weighting(expression, [*start[:i], others[0], *start[i + 1 :]]))
            places = [place for place, (old, new) in enumerate(zip(numbers, moved, strict=True)) if old != new]
            if len(places) != 1:
                return None
            cells[places[0]] = schedule, torch.tensor(start[i], dtype=torch.float64, device=device)
    count = iter(range(len(numbers)))

    def cell(number: float) -> float | Tensor:
        place = next(count)
        return cells[place][1] if place in cells else number

    weighting = _changed(_weighting(expression, start), cell)
    values: dict[int, float] = {}

    def set_to(step: int) -> None:
        for place, (schedule, tensor) in cells.items():
            value = value_at(schedule, step, total)
            if values.get(place) != value:  # saves launches while schedules are constant
                values[place] = value
                tensor.fill_(value)

    return weighting, set_to


def _weighting(expression: Expression, values: list[float]) -> Weighting:
    """Return the weighting with its schedules, from left to right, replaced by these values."""
    upcoming = iter(values)
    return weighting_from(cast(Expression, _filled(expression, lambda schedule: next(upcoming))))


def _filled(value: Value, fill: Callable[[Expression], float]) -> Value:
    """Replace every schedule in an expression."""
    if isinstance(value, tuple):
        return tuple(_filled(each, fill) for each in value)
    if not isinstance(value, Expression):
        return value
    if _is_schedule(value):
        return fill(value)
    kwargs = tuple((key, _filled(each, fill)) for key, each in value.kwargs)
    return Expression(value.name, tuple(_filled(each, fill) for each in value.args), kwargs)


def _numbers(weighting: Weighting) -> list[float]:
    """Return the numbers of a weighting, in the order of `_changed`."""
    numbers: list[float] = []

    def note(number: float) -> float:
        numbers.append(number)
        return number

    _changed(weighting, note)
    return numbers


def _changed(part: Any, change: Callable[[float], Any]) -> Any:
    """Change the numbers of a weighting, always in the same order; those in lists are unchanged."""
    if isinstance(part, tuple):
        return tuple(_changed(each, change) if isinstance(each, Weighting) else each for each in part)
    if isinstance(part, Weighting):
        names = [field.name for field in fields(cast(Any, part))]  # every weighting is a dataclass
        return replace(cast(Any, part), **{name: _changed(getattr(part, name), change) for name in names})
    return change(part) if isinstance(part, int | float) and not isinstance(part, bool) else part


def _is_schedule(expression: Expression) -> bool:
    try:
        check_schedule(expression)
    except ValueError:
        return False
    return True
