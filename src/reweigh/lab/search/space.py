"""The space of a search: "DM(lam=0..2, beta=0.5..24, taper=1e-7..1:log), lr=0.01..0.3:log".

    space  = branch | branch | ...                  alternatives, each with its own ranges
    branch = item, item, ...                        at most one item is a call, the others are fields of `Run`
    item   = NAME(key=choice, ...) | field=choice   a weighting (also with taper, normalise), loss or method
    choice = low..high | low..high:log              a number in this range, on a logarithmic scale with :log
           | low..high:int | low..high:log:int      an integer; integer fields need no :int
           | {value, value, ...}                    one of these values
           | value                                  a fixed value

A space without a range is a grid: all its points are run, in the order written, the last key varying fastest.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from reweigh.checks import nearest
from reweigh.lab.spec import describe, parse

Scalar: TypeAlias = "bool | int | float | str | None"
RUN_FIELDS = ("taper", "normalise")  # fields of a run that can be written as arguments of a weighting
MAX_POINTS = 10_000  # of a grid
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})\s*((?::\s*[a-z]+\s*)*)")
_CALL = re.compile(r"([A-Za-z]\w*)\s*(?:\((.*)\))?", re.DOTALL)
_WORDS: Mapping[str, Scalar] = {"true": True, "false": False, "none": None}


class SpaceError(ValueError):
    """The text is not a valid space; the message quotes the wrong part and the valid form."""


@dataclass(frozen=True)
class Range:
    """The numbers from low to high."""

    low: float
    high: float
    log: bool = False
    is_integer: bool = False

    def value(self, raw: float) -> float:
        """Round a sampled number to four significant digits, which keeps the names of runs short."""
        if self.is_integer:
            return int(raw)
        return min(max(float(f"{raw:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class Branch:
    """One alternative of a space.

    Attributes:
        objective: the name of the weighting, loss or method; None if the space has none.
        arguments: its parameters: a fixed value, a `Range`, or a tuple of values to choose from.
        fields: the same for fields of `Run`.
    """

    objective: str | None
    arguments: Mapping[str, Choice]
    fields: Mapping[str, Choice]

    @property
    def choices(self) -> dict[str, Choice]:
        """All that is not fixed, in the order written; names of arguments and fields never coincide."""
        every = {**self.arguments, **self.fields}
        return {key: choice for key, choice in every.items() if isinstance(choice, Range | tuple)}

    def settle(self, chosen: Mapping[str, Scalar]) -> dict[str, Any]:
        """Return the fields of `Run` for the chosen values; all others must be fixed."""
        fields = {key: chosen.get(key, fixed) for key, fixed in self.fields.items()}
        if self.objective is None:
            return fields
        arguments = ", ".join(f"{key}={chosen.get(key, fixed)}" for key, fixed in self.arguments.items())
        return {field_of(self.objective): str(parse(f"{self.objective}({arguments})")), **fields}


Choice: TypeAlias = "Scalar | Range | tuple[Scalar, ...]"


@dataclass(frozen=True)
class Space:
    """A parsed space: its text and its alternatives."""

    text: str
    branches: tuple[Branch, ...]

    @property
    def is_grid(self) -> bool:
        """Whether there are only lists and fixed values."""
        choices = (choice for branch in self.branches for choice in branch.choices.values())
        return not any(isinstance(choice, Range) for choice in choices)

    def points(self) -> Iterator[dict[str, Scalar]]:
        """Yield the points of a grid, with the names of `key`."""
        for number, branch in enumerate(self.branches):
            lists = [[(key, value) for value in _values(choice)] for key, choice in branch.choices.items()]
            for point in itertools.product(*lists):
                yield self._branch(number) | {self.key(number, key): value for key, value in point}

    def corners(self) -> Iterator[dict[str, Any]]:
        """Yield fields of `Run` that together cover the ends of every range and every value of every list."""
        for branch in self.branches:
            ends = {key: _values(choice) for key, choice in branch.choices.items()}
            for i in range(max(map(len, ends.values()), default=1)):
                yield branch.settle({key: values[min(i, len(values) - 1)] for key, values in ends.items()})

    def settle(self, point: Mapping[str, Scalar]) -> dict[str, Any]:
        """Return the fields of `Run` at a point."""
        number = int(point.get("branch") or 0)
        branch = self.branches[number]
        return branch.settle({key: point[self.key(number, key)] for key in branch.choices})

    def key(self, branch: int, key: str) -> str:
        """Return the name of a choice in a point, prefixed by the branch if there are several."""
        return key if len(self.branches) == 1 else f"{branch}.{key}"

    def _branch(self, number: int) -> dict[str, Scalar]:
        return {} if len(self.branches) == 1 else {"branch": number}


def parse_space(text: str) -> Space:
    """Parse a space.

    >>> space = parse_space("DM(lam={0, 0.5}, beta=8), lr={0.1, 0.2}")
    >>> space.is_grid, [space.settle(point) for point in space.points()][1]
    (True, {'weighting': 'DM(lam=0, beta=8)', 'lr': 0.2})
    >>> parse_space("DM(lam=2..0)")
    Traceback (most recent call last):
        ...
    reweigh.lab.search.space.SpaceError: space: lam=2..0 has its limits swapped; write 0..2
    """
    if not isinstance(text, str) or not text.strip():
        raise SpaceError("space is empty; write something like 'DM(lam=0..2, beta=0.5..24)' or 'lr=0.01..0.3:log'")
    space = Space(text.strip(), tuple(_branch(part) for part in _split(text, "|")))
    if not any(branch.choices for branch in space.branches) and len(space.branches) == 1:
        raise SpaceError(f"space: {text.strip()!r} has no choices; write a range (0..2) or a list ({{0, 1}})")
    if space.is_grid:
        count = sum(math.prod(map(len, map(_values, branch.choices.values()))) for branch in space.branches)
        if count > MAX_POINTS:
            raise SpaceError(f"space: {count} points are too many for a grid (at most {MAX_POINTS}); use ranges")
    return space


def field_of(name: str) -> str:
    """The field of `Run` that a name belongs in: weighting, loss or method."""
    from reweigh.lab.objectives import KINDS
    from reweigh.lab.objectives import kind_of as known_kind

    kind = known_kind(name)
    if kind is None:
        near = nearest(name, [each.__name__ for classes in KINDS.values() for each in classes])
        raise SpaceError(f"space: no weighting, loss or method is named {name!r}; {near}")
    return kind


def _parameters(name: str) -> tuple[str, ...]:
    from reweigh.lab.objectives import class_of
    from reweigh.lab.weightings import parameters_of

    return tuple(parameters_of(class_of("weighting", name)))


def _branch(text: str) -> Branch:
    objective: str | None = None
    arguments: dict[str, Choice] = {}
    fields: dict[str, Choice] = {}
    kinds = {field.name: field.type for field in describe()}
    for item in _split(text, ","):
        name, equals, choice = item.partition("=")
        if equals and "(" not in name:
            _add(fields, name.strip(), choice, set(kinds), item)
            continue
        if objective is not None:
            raise SpaceError(f"space: {item!r} follows {objective}; separate alternatives by |")
        objective, inside = _call(item)
        known = _parameters(objective) if field_of(objective) == "weighting" else None
        for position, argument in enumerate(_split(inside, ",") if inside.strip() else []):
            key, equals, choice = argument.partition("=")
            if not equals or "(" in key:
                key, choice = _name_of(objective, known, position, argument), argument
            key = key.strip()
            is_field = known is not None and key in RUN_FIELDS and key not in known
            _add(fields if is_field else arguments, key, choice, None if known is None else {*known, *RUN_FIELDS}, item)
    if both := arguments.keys() & fields.keys():
        raise SpaceError(f"space: {min(both)} is both an argument of {objective} and a field of the run; choose one")
    integers = {name for name, kind in kinds.items() if kind is int or kind == int | None}
    return Branch(objective, arguments, {key: _as_integer(choice, key in integers) for key, choice in fields.items()})


def _call(item: str) -> tuple[str, str]:
    found = _CALL.fullmatch(item)
    if found is None:
        raise SpaceError(f"space: {item!r} is neither NAME(key=choice, ...) nor field=choice")
    return found[1], found[2] or ""


def _name_of(objective: str, known: tuple[str, ...] | None, position: int, argument: str) -> str:
    if known is None or position >= len(known):
        raise SpaceError(f"space: {objective}(...{argument}): write key={argument}")
    return known[position]


def _add(into: dict[str, Choice], key: str, text: str, known: set[str] | None, item: str) -> None:
    if known is not None and key not in known:
        raise SpaceError(f"space: {item!r}: unknown name {key!r}; {nearest(key, sorted(known))}")
    if not key.isidentifier():
        raise SpaceError(f"space: {item!r}: {key!r} is not a name")
    if key in into:
        raise SpaceError(f"space: {key} occurs twice")
    into[key] = _choice(key, text.strip())


def _choice(key: str, text: str) -> Choice:
    if text.startswith("{"):
        if not text.endswith("}"):
            raise SpaceError(f"space: {key}={text}: a list must end with }}")
        if not text[1:-1].strip():
            raise SpaceError(f"space: {key}={text} has no value; write a list as {{0, 0.5, 1}}")
        values = tuple(_scalar(value) for value in _split(text[1:-1], ","))
        if len(set(map(str, values))) < len(values):
            raise SpaceError(f"space: {key}={text} has a value twice")
        return values
    if ".." not in text:
        return _scalar(text)
    found = _RANGE.fullmatch(text)
    if found is None:
        raise SpaceError(f"space: {key}={text} is not a range; write low..high, as in 0.5..24, or low..high:log")
    low, high = float(found[1]), float(found[2])
    marks = [mark.strip() for mark in found[3].split(":")[1:]]
    for mark in marks:
        if mark not in ("log", "int"):
            raise SpaceError(f"space: {key}={text}: a range may be followed by :log or :int, not :{mark}")
    if low > high:
        raise SpaceError(f"space: {key}={text} has its limits swapped; write {found[2]}..{found[1]}")
    if low == high:
        raise SpaceError(f"space: {key}={text} is a single number; write {key}={found[1]}")
    if "log" in marks and low <= 0:
        raise SpaceError(f"space: {key}={text}: a logarithmic scale needs a low end above 0")
    return _as_integer(Range(low, high, "log" in marks, False), "int" in marks)


def _as_integer(choice: Choice, is_integer: bool) -> Choice:
    if not is_integer or not isinstance(choice, Range):
        return choice
    if not (choice.low.is_integer() and choice.high.is_integer()):
        raise SpaceError(f"space: {choice.low:g}..{choice.high:g} must have integers as its ends")
    return Range(choice.low, choice.high, choice.log, True)


def _scalar(text: str) -> Scalar:
    text = text.strip()
    if not text:
        raise SpaceError("space: empty value in a list")
    if re.fullmatch(_NUMBER, text):
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return _WORDS.get(text.lower(), text)


def _values(choice: Choice) -> tuple[Scalar, ...]:
    if isinstance(choice, Range):
        return choice.value(choice.low), choice.value(choice.high)
    return choice if isinstance(choice, tuple) else (choice,)


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            raise SpaceError(f"space: {text.strip()!r} has an unmatched closing bracket")
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth:
        raise SpaceError(f"space: {text.strip()!r} has an unclosed bracket")
    if not all(part.strip() for part in parts):
        raise SpaceError(f"space: {text.strip()!r} has an empty part next to {separator!r}")
    return [part.strip() for part in parts]
