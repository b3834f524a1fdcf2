"""What the JSON of a record must be: a shape finds the first place in a value that is something else.

A shape is a function: value -> None where it fits, else the rest of a sentence, which begins with the place.

>>> listed(mapping({"accuracy": maybe(number)}))([{"accuracy": 0.5}, {"accuracy": "high"}])
"[1].accuracy is 'high'; expected a number or null"
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from reweigh.errors import DataError

Shape: TypeAlias = Callable[[Any], str | None]

LARGEST = 2**53  # whole number that every reader of JSON has


def check_shape(path: Path | str, value: Any, shape: Shape) -> None:
    """Refuse a value with the file it is from and the field in it."""
    if (problem := shape(value)) is not None:
        raise DataError(f"{path}: {problem.lstrip('. ')}")


def anything(value: Any) -> None:
    """What nobody looks into."""


def number(value: Any) -> str | None:
    """A finite number; true and false are none."""
    good = type(value) in (int, float) and -sys.float_info.max <= value <= sys.float_info.max
    return None if good else _is(value, "a number")


def whole(value: Any) -> str | None:
    """A whole number."""
    return None if type(value) is int and abs(value) <= LARGEST else _is(value, "a whole number")


def text(value: Any) -> str | None:
    """A text."""
    return None if isinstance(value, str) else _is(value, "a text")


def maybe(shape: Shape) -> Shape:
    """Null, or what fits `shape`."""

    def check(value: Any) -> str | None:
        problem = None if value is None else shape(value)
        return f"{problem} or null" if problem is not None and problem.startswith(" ") else problem

    return check


def listed(shape: Shape) -> Shape:
    """A list of what fits `shape`."""

    def check(value: Any) -> str | None:
        if not isinstance(value, list):
            return _is(value, "a list")
        return next((f"[{i}]{problem}" for i, item in enumerate(value) if (problem := shape(item)) is not None), None)

    return check


def mapping(
    needed: Mapping[str, Shape] | None = None, allowed: Mapping[str, Shape] | None = None, rest: Shape = anything
) -> Shape:
    """An object with the keys `needed`, perhaps those `allowed`, and others that fit `rest`."""
    due, known = dict(needed or {}), {**(needed or {}), **(allowed or {})}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return _is(value, "a JSON object")
        for key in due:
            if key not in value:
                return f".{key} is missing"
        for key, item in value.items():
            if (problem := known.get(key, rest)(item)) is not None:
                return f".{key}{problem}"
        return None

    return check


def _is(value: Any, expected: str) -> str:
    return f" is {value!r:.60}; expected {expected}"
