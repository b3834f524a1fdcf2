"""Checks of a field of `Run`: (name, value) -> the value in canonical form, or a sentence about what is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from reweigh.checks import integer, number, text
from reweigh.lab.spec.expression import parse
from reweigh.lab.spec.paths import plain_path, plain_paths
from reweigh.lab.spec.schedule import check_parameters, check_rate, check_schedule

DATA_NAMES = ("cifar10", "cifar100", "vehicles10", "tin100", "digits", "imdb", "clothing1m", "mars", "tracklets")
"""The named data sets; a folder that is called like one is told apart by its path. (A test holds them complete.)"""


def place(name: str, value: object) -> str:
    """The name or path of something, also as a `Path`.

    >>> from pathlib import PurePosixPath
    >>> place("data", PurePosixPath("photos/all"))
    'photos/all'
    """
    return text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def data_place(name: str, value: object) -> str:
    """A data set's name, or a path in one spelling: without what leads nowhere, as `./` and the slash at the end.

    >>> data_place("data", "./photos/"), data_place("data", "digits"), data_place("data", "./digits")
    ('photos', 'digits', './digits')
    """
    given = place(name, value)
    if ":" in given:  # tracklets:videos, or a drive
        return given
    path = plain_path(given)
    return f"./{path}" if path in DATA_NAMES and path != given else path


def expression(name: str, value: object) -> str:
    """An expression without schedules, as in 'symmetric' or 'given(file=...)'.

    >>> expression("noise", "given('./labels.npy')")
    "given('labels.npy')"
    """
    return str(plain_paths(_parsed(name, value)))


def objective(name: str, value: object) -> str:
    """An expression whose numbers may be schedules: a weighting, a loss or a method."""
    parsed = _parsed(name, value)
    _named(name, check_parameters, parsed)
    return str(plain_paths(parsed))


def fold_of(name: str, value: object) -> str:
    """A fold among several, counted from 1: "2/5" is the second of five.

    >>> fold_of("fold", "2/5")
    '2/5'
    """
    found = re.fullmatch("([1-9][0-9]*)/([1-9][0-9]*)", text(name, value))
    if found is None or not 1 <= int(found[1]) <= int(found[2]) or found[2] == "1":
        raise ValueError(f"{name} is {value!r}; expected a fold among two or more, as in 2/5")
    return found[0]


def picture_size(name: str, value: object) -> int | str:
    """The side of a square, or height x width, each from 4 to 1,024; a square has one name.

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
    """What `picture_size` stands for.

    >>> height_and_width(32), height_and_width("128x64")
    ((32, 32), (128, 64))
    """
    height, _, width = str(size).partition("x")
    return int(height), int(width or height)


def rate_schedule(name: str, value: object) -> str:
    """A learning-rate schedule."""
    parsed = _parsed(name, value)
    _named(name, check_rate, parsed)
    return str(parsed)


def taper_value(name: str, value: object) -> float | str:
    """The word auto, a number >= 0 (also as text, as a command line gives it), or a schedule of such numbers.

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
            _named(name, lambda schedule: check_schedule(schedule, low=0), parsed)
            return str(parsed)
    return float(number(0)(name, value))


def _parsed(name: str, value: object) -> Any:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; expected a text{_as_text(value)}")
    return _named(name, parse, text(name, value))


def _as_text(value: object) -> str:
    """A hint for a weighting or the like, which is written as it is called."""
    try:
        parse(repr(value))
    except ValueError:
        return ""
    return f": {repr(value)!r}"


def _named(name: str, function: Callable[[Any], Any], value: Any) -> Any:
    """The function's result, its refusal preceded by the name of the field."""
    try:
        return function(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
