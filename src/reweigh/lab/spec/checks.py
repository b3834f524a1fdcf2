"""Checks of the fields of `Run`: (name, value) -> the canonical value, or an error that states what is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from reweigh.checks import integer, number, text
from reweigh.lab.spec.expression import Expression, Value, parse
from reweigh.lab.spec.schedule import check_parameters, check_rate, check_schedule

DATA_NAMES = ("cifar10", "cifar100", "vehicles10", "tin100", "digits", "imdb", "clothing1m", "mars", "tracklets")
"""The data sets that have a name; a folder of the same name needs a path, as in ./digits. (A test checks the list.)"""

_FILES = {"given": "file", "kept": "file", "file": "path"}
"""Expressions besides objectives whose first argument is a path, and the name of that argument."""


def place(name: str, value: object) -> str:
    """Accept a name or a path, also as a `Path`.

    >>> from pathlib import PurePosixPath
    >>> place("data", PurePosixPath("photos/all"))
    'photos/all'
    """
    return text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def data_place(name: str, value: object) -> str:
    """Accept the name of a data set, or a path, which is normalised.

    >>> data_place("data", "./photos/"), data_place("data", "digits"), data_place("data", "./digits")
    ('photos', 'digits', './digits')
    """
    given = place(name, value)
    if ":" in given:  # tracklets:videos, or a drive
        return given
    path = plain_path(given)
    return f"./{path}" if path in DATA_NAMES and path != given else path


def plain_path(path: str) -> str:
    """Drop `./`, double slashes and a trailing slash; `..` stays, because it may follow a link.

    >>> plain_path("./a//b/"), plain_path("a/../b")
    ('a/b', 'a/../b')
    """
    return str(PurePosixPath(path)) if path else path


def plain_paths(expression: Expression) -> Expression:
    """Normalise every path in an expression.

    >>> print(plain_paths(parse("Forward(file('./T.npy'))")))
    Forward(file('T.npy'))
    """
    key_of_path = _FILES.get(expression.name, "file")

    def normalised(value: Value, is_path: bool) -> Value:
        if isinstance(value, Expression):
            return plain_paths(value)
        return plain_path(value) if is_path and isinstance(value, str) else value

    first_is_path = bool(expression.args) and isinstance(expression.args[0], str) and _takes_file(expression.name)
    args = tuple(normalised(value, i == 0 and first_is_path) for i, value in enumerate(expression.args))
    kwargs = tuple((key, normalised(value, key == key_of_path)) for key, value in expression.kwargs)
    return Expression(expression.name, args, kwargs)


def _takes_file(name: str) -> bool:
    """Return whether the first argument of an expression of that name is a path."""
    if name in _FILES:
        return True
    from reweigh.lab.objectives import class_of, kind_of
    from reweigh.lab.weightings import parameters_of

    kind = kind_of(name)
    return kind is not None and next(iter(parameters_of(class_of(kind, name))), None) == "file"


def expression(name: str, value: object) -> str:
    """Accept an expression without schedules, as in 'symmetric' or 'given(file=...)'.

    >>> expression("noise", "given('./labels.npy')")
    "given('labels.npy')"
    """
    return str(plain_paths(_parsed(name, value)))


def objective(name: str, value: object) -> str:
    """Accept a weighting, a loss or a method, whose numbers may be schedules."""
    parsed = _parsed(name, value)
    _prefix_errors(name, check_parameters, parsed)
    return str(plain_paths(parsed))


def fold_of(name: str, value: object) -> str:
    """Accept a fold among several, counted from 1: "2/5" is the second of five.

    >>> fold_of("fold", "2/5")
    '2/5'
    """
    found = re.fullmatch("([1-9][0-9]*)/([1-9][0-9]*)", text(name, value))
    if found is None or not 1 <= int(found[1]) <= int(found[2]) or found[2] == "1":
        raise ValueError(f"{name} is {value!r}; expected a fold among two or more, as in 2/5")
    return found[0]


def column_list(name: str, value: object) -> str:
    """Accept names of columns, separated by commas.

    >>> column_list("drop_columns", "age, city of birth,")
    'age,city of birth'
    """
    names = [part.strip() for part in text(name, value).split(",") if part.strip()]
    if not names:
        raise ValueError(f"{name} is {value!r}; expected names of columns, as in age,city")
    return ",".join(dict.fromkeys(names))


def picture_size(name: str, value: object) -> int | str:
    """Accept the side of a square, or height x width, each from 4 to 1,024; squares become one number.

    >>> picture_size("image_size", "128x64"), picture_size("image_size", "32x32"), picture_size("image_size", 32)
    ('128x64', 32, 32)
    """
    side = integer(4, 1024)
    if not isinstance(value, str):
        return int(side(name, value))
    if not re.fullmatch("[0-9]{1,4}(x[0-9]{1,4})?", value):
        raise ValueError(f"{name} is {value!r}; expected a side as in 32, or height x width as in 128x64")
    height, width = (side(name, number) for number in height_and_width(value))
    return int(height) if height == width else f"{height}x{width}"


def height_and_width(size: int | str) -> tuple[int, int]:
    """Convert a value of `picture_size` to (height, width).

    >>> height_and_width(32), height_and_width("128x64")
    ((32, 32), (128, 64))
    """
    height, _, width = str(size).partition("x")
    return int(height), int(width or height)


def rate_schedule(name: str, value: object) -> str:
    """Accept a learning-rate schedule."""
    parsed = _parsed(name, value)
    _prefix_errors(name, check_rate, parsed)
    return str(parsed)


def taper_value(name: str, value: object) -> float | str:
    """Accept "auto", a number >= 0 (also as text, from a command line), or a schedule of such numbers.

    >>> taper_value("taper", "5e-7"), taper_value("taper", "linear(1e-3, 0)")
    (5e-07, 'linear(0.001, 0)')
    """
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            parsed = _parsed(name, value)
            _prefix_errors(name, lambda schedule: check_schedule(schedule, low=0), parsed)
            return str(parsed)
    return float(number(0)(name, value))


def read_seeds(text: str) -> tuple[int, ...]:
    """Read seeds separated by commas; "a-b" is a range with both ends, and repeated seeds count once.

    >>> read_seeds("0-2, 7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or int(last or first) < int(first):
            raise ValueError(f"seeds are {text!r}: {part.strip()!r} is not a seed; expected such as 0,1,2 or 0-4")
        seeds += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(seeds))


def _parsed(name: str, value: object) -> Any:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; expected a string{_as_text(value)}")
    return _prefix_errors(name, parse, text(name, value))


def _as_text(value: object) -> str:
    """Return a hint for an object, such as a weighting, whose `repr` is an expression."""
    try:
        parse(repr(value))
    except ValueError:
        return ""
    return f": {repr(value)!r}"


def _prefix_errors(name: str, function: Callable[[Any], Any], value: Any) -> Any:
    """Return `function(value)`; its ValueErrors get the name of the field as a prefix."""
    try:
        return function(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
