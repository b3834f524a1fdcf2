"""Checks of arguments: (name, value) -> the canonical value, or an error that states what is allowed."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[str, object], Any]


def nearest(word: str, words: Sequence[str]) -> str:
    """Return the hint for an unknown word: the closest known one, whatever its case, or all of them.

    >>> nearest("bta", ["lam", "beta"]), nearest("dn", ["DM", "GCE"]), nearest("x", ["lam", "beta"])
    ("did you mean 'beta'?", "did you mean 'DM'?", 'there are lam, beta')
    """
    known = {other.lower(): other for other in reversed(words)}
    near = get_close_matches(word.lower(), known, n=1, cutoff=0.5 if len(word) < 4 else 0.6)
    return f"did you mean {known[near[0]]!r}?" if near else f"there are {', '.join(words) or 'none'}"


def plain_number(value: object) -> int | float | None:
    """Convert a real number, such as numpy's, to int or float; return None for anything else, booleans included.

    >>> from fractions import Fraction
    >>> plain_number(8), plain_number(Fraction(1, 2)), plain_number(True), plain_number("8")
    (8, 0.5, None, None)
    """
    if type(value) is int or type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return int(value) if isinstance(value, Integral) else float(value)


def text(name: str, value: object) -> str:
    """Accept one line of 1 to 1,024 printable characters."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; expected a string")
    if not 1 <= len(value) <= 1024 or not value.isprintable() or value != value.strip():
        raise ValueError(f"{name} is {value[:60]!r}; expected one line of printable text without surrounding spaces")
    return value


def flag(name: str, value: object) -> bool:
    """Accept True or False, but no value that is merely equal to one of them."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; expected true or false")
    return value


def one_of(*choices: str) -> Check:
    """Accept one of a few words.

    >>> one_of("sgd", "adam")("optimiser", "adm")
    Traceback (most recent call last):
        ...
    ValueError: optimiser is 'adm'; did you mean 'adam'?
    """

    def check(name: str, value: object) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}; expected one of {', '.join(choices)}")
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; {nearest(value, choices)}")
        return value

    return check


def matching(pattern: str, what: str) -> Check:
    """Accept text that matches a pattern; `what` describes it in the error."""

    def check(name: str, value: object) -> str:
        if not re.fullmatch(pattern, text(name, value)):
            raise ValueError(f"{name} is {value!r}; expected {what}")
        return str(value)

    return check


def integer(low: int, high: int = 2**53) -> Check:
    """Accept a whole number in [low, high], also as 8.0 or from numpy."""

    def check(name: str, value: object) -> int:
        found = plain_number(value)
        if found is None:
            raise TypeError(f"{name} is {value!r}; expected a whole number")
        if not (low <= found <= high and found == int(found)):
            raise ValueError(f"{name} is {value!r}; expected a whole number from {low} to {high}")
        return int(found)

    return check


def number(low: float, high: float = math.inf, *, above: bool = False, below: bool = False) -> Check:
    """Accept a finite number in [low, high]; `above` and `below` exclude the ends.

    >>> number(0, 1, below=True)("dropout", 1)
    Traceback (most recent call last):
        ...
    ValueError: dropout is 1; expected a number in [0, 1)
    >>> number(0, 1)("rate", 40)
    Traceback (most recent call last):
        ...
    ValueError: rate is 40; expected a number in [0, 1]; did you mean 0.4?
    """
    allowed = f"{'(' if above else '['}{low:g}, {high:g}{')' if below or high == math.inf else ']'}"

    def check(name: str, value: object) -> float:
        found = plain_number(value)
        if found is None:
            raise TypeError(f"{name} is {value!r}; expected a number in {allowed}")
        inside = low <= found <= min(high, sys.float_info.max)
        if not inside or (above and found == low) or (below and found == high):
            per_cent = f"; did you mean {found / 100:g}?" if high == 1 < found < 100 else ""
            raise ValueError(f"{name} is {value!r}; expected a number in {allowed}{per_cent}")
        return float(found) + 0.0  # -0.0 becomes 0.0: one number, one hash

    return check


def pair(item: Check) -> Check:
    """Accept two values that pass `item`."""

    def check(name: str, value: object) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise TypeError(f"{name} is {value!r}; expected two numbers")
        return item(name, value[0]), item(name, value[1])

    return check


def optional(check: Check) -> Check:
    """Accept None, or what passes `check`."""
    return lambda name, value: None if value is None else check(name, value)
