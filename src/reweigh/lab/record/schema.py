"""Schemas of the JSON in a record.

A schema is a function that returns None for a value that fits, else the rest of a sentence, which begins with the place
of the first mismatch.

>>> list_of(object_of({"accuracy": nullable(number)}))([{"accuracy": 0.5}, {"accuracy": "high"}])
"[1].accuracy is 'high'; expected a number or null"
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from reweigh.errors import DataError

Schema: TypeAlias = Callable[[Any], str | None]

MAX_INTEGER = 2**53  # up to which a double, and so every reader of JSON, is exact


def check_schema(path: Path | str, value: Any, schema: Schema) -> None:
    """Raise DataError, naming the file and the field, unless the value fits."""
    if (problem := schema(value)) is not None:
        raise DataError(f"{path}: {problem.lstrip('. ')}")


def anything(value: Any) -> None:
    """Accept any value."""


def number(value: Any) -> str | None:
    """Accept a finite number; booleans are not numbers."""
    fits = type(value) in (int, float) and -sys.float_info.max <= value <= sys.float_info.max
    return None if fits else _mismatch(value, "a number")


def integer(value: Any) -> str | None:
    """Accept an integer."""
    return None if type(value) is int and abs(value) <= MAX_INTEGER else _mismatch(value, "an integer")


def string(value: Any) -> str | None:
    """Accept a string."""
    return None if isinstance(value, str) else _mismatch(value, "a string")


def nullable(schema: Schema) -> Schema:
    """Accept null, or what fits `schema`."""

    def check(value: Any) -> str | None:
        problem = None if value is None else schema(value)
        return f"{problem} or null" if problem is not None and problem.startswith(" ") else problem

    return check


def list_of(schema: Schema) -> Schema:
    """Accept a list of items that fit `schema`."""

    def check(value: Any) -> str | None:
        if not isinstance(value, list):
            return _mismatch(value, "a list")
        return next((f"[{i}]{problem}" for i, item in enumerate(value) if (problem := schema(item)) is not None), None)

    return check


def object_of(
    required: Mapping[str, Schema] | None = None, optional: Mapping[str, Schema] | None = None, rest: Schema = anything
) -> Schema:
    """Accept a JSON object with the `required` keys, some of the `optional` ones, and others that fit `rest`."""
    due, known = dict(required or {}), {**(required or {}), **(optional or {})}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return _mismatch(value, "a JSON object")
        for key in due:
            if key not in value:
                return f".{key} is missing"
        for key, item in value.items():
            if (problem := known.get(key, rest)(item)) is not None:
                return f".{key}{problem}"
        return None

    return check


def _mismatch(value: Any, expected: str) -> str:
    return f" is {value!r:.60}; expected {expected}"
