"""What a search may choose: "DM(lam=0..2, beta=0.5..24, taper=1e-7..1:log), lr=0.01..0.3:log".

    space  = branch | branch | ...                  one of them, each with its own ranges
    branch = item, item, ...                        at most one item is a call, the others are fields of `Run`
    item   = NAME(key=choice, ...) | field=choice   a weighting (also with taper, normalise), loss or method
    choice = low..high | low..high:log              any number between the two, on a logarithmic scale with :log
           | low..high:int | low..high:log:int      a whole number; fields that are whole numbers need no :int
           | {value, value, ...}                    one of these
           | value                                  this

A space without a range is a grid: all its points, in the order they are written, the last key running fastest.
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
BESIDE = ("taper", "normalise")  # fields of a run that may stand among the arguments of a weighting
LARGEST = 10_000  # points of a grid
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})\s*((?::\s*[a-z]+\s*)*)")
_CALL = re.compile(r"([A-Za-z]\w*)\s*(?:\((.*)\))?", re.DOTALL)
_WORDS: Mapping[str, Scalar] = {"true": True, "false": False, "none": None}


class SpaceError(ValueError):
    """A text that is no space; the message holds the part that is wrong and what is allowed."""


@dataclass(frozen=True)
class Range:
    """Every number from low to high."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def value(self, raw: float) -> float:
        """A drawn number with four significant digits: names stay short, and no search can tell the difference."""
        if self.whole:
            return int(raw)
        return min(max(float(f"{raw:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class Branch:
    """One alternative: what the net is taught by, if the space says so, and what may be chosen.

    Attributes:
        taught: the name of the weighting, loss or method.
        arguments: its parameters: a fixed value, a `Range`, or a tuple of values to choose from.
        fields: the same for fields of `Run`.
    """

    taught: str | None
    arguments: Mapping[str, Choice]
    fields: Mapping[str, Choice]

    @property
    def choices(self) -> dict[str, Choice]:
        """All that is not fixed, in the order written; an argument hides no field, their names differ."""
        every = {**self.arguments, **self.fields}
        return {key: choice for key, choice in every.items() if isinstance(choice, Range | tuple)}

    def settle(self, chosen: Mapping[str, Scalar]) -> dict[str, Any]:
        """The fields of `Run` that a choice makes; what it leaves out must be fixed."""
        fields = {key: chosen.get(key, fixed) for key, fixed in self.fields.items()}
        if self.taught is None:
            return fields
        arguments = ", ".join(f"{key}={chosen.get(key, fixed)}" for key, fixed in self.arguments.items())
        return {kind_of(self.taught): str(parse(f"{self.taught}({arguments})")), **fields}


Choice: TypeAlias = "Scalar | Range | tuple[Scalar, ...]"


@dataclass(frozen=True)
class Space:
    """The alternatives of a space, and the text they come from."""

    text: str
    branches: tuple[Branch, ...]

    @property
    def is_grid(self) -> bool:
        """Whether there are only lists and fixed values, so that all points can be tried."""
        choices = (choice for branch in self.branches for choice in branch.choices.values())
        return not any(isinstance(choice, Range) for choice in choices)

    def points(self) -> Iterator[dict[str, Scalar]]:
        """The points of a grid, as `key` names them."""
        for number, branch in enumerate(self.branches):
            lists = [[(key, value) for value in _values(choice)] for key, choice in branch.choices.items()]
            for point in itertools.product(*lists):
                yield self._branch(number) | {self.key(number, key): value for key, value in point}

    def corners(self) -> Iterator[dict[str, Any]]:
        """Fields of `Run` at the ends of every range and at every value of every list, a few at a time."""
        for branch in self.branches:
            ends = {key: _values(choice) for key, choice in branch.choices.items()}
            for i in range(max(map(len, ends.values()), default=1)):
                yield branch.settle({key: values[min(i, len(values) - 1)] for key, values in ends.items()})

    def settle(self, point: Mapping[str, Scalar]) -> dict[str, Any]:
        """The fields of `Run` at a point."""
        number = int(point.get("branch") or 0)
        branch = self.branches[number]
        return branch.settle({key: point[self.key(number, key)] for key in branch.choices})

    def key(self, branch: int, key: str) -> str:
        """What a choice is called in a point: its own name, with the branch before it where there are several."""
        return key if len(self.branches) == 1 else f"{branch}.{key}"

    def _branch(self, number: int) -> dict[str, Scalar]:
        return {} if len(self.branches) == 1 else {"branch": number}


def parse_space(text: str) -> Space:
    """Read a space.

    >>> space = parse_space("DM(lam={0, 0.5}, beta=8), lr={0.1, 0.2}")
    >>> space.is_grid, [space.settle(point) for point in space.points()][1]
    (True, {'weighting': 'DM(lam=0, beta=8)', 'lr': 0.2})
    >>> parse_space("DM(lam=2..0)")
    Traceback (most recent call last):
        ...
    reweigh.lab.search.space.SpaceError: space: lam=2..0 ends before it begins; write 0..2
    """
    if not isinstance(text, str) or not text.strip():
        raise SpaceError("space is empty; write something like 'DM(lam=0..2, beta=0.5..24)' or 'lr=0.01..0.3:log'")
    space = Space(text.strip(), tuple(_branch(part) for part in _split(text, "|")))
    if not any(branch.choices for branch in space.branches) and len(space.branches) == 1:
        raise SpaceError(f"space: {text.strip()!r} leaves nothing to choose; give a range (0..2) or a list ({{0, 1}})")
    if space.is_grid:
        count = sum(math.prod(map(len, map(_values, branch.choices.values()))) for branch in space.branches)
        if count > LARGEST:
            raise SpaceError(f"space: {count} points are too many for a grid (at most {LARGEST}); use ranges")
    return space


def kind_of(name: str) -> str:
    """The field of `Run` that a name belongs in: weighting, loss or method."""
    from reweigh.lab.objectives import KINDS
    from reweigh.lab.objectives import kind_of as known_kind

    kind = known_kind(name)
    if kind is None:
        near = nearest(name, [each.__name__ for classes in KINDS.values() for each in classes])
        raise SpaceError(f"space: no weighting, loss or method is named {name!r}; {near}")
    return kind


def _parameters(name: str) -> tuple[str, ...]:
    from reweigh.lab.objectives import class_of, parameters_of

    return tuple(parameters_of(class_of("weighting", name)))


def _branch(text: str) -> Branch:
    taught: str | None = None
    arguments: dict[str, Choice] = {}
    fields: dict[str, Choice] = {}
    kinds = {field.name: field.type for field in describe()}
    for item in _split(text, ","):
        name, equals, choice = item.partition("=")
        if equals and "(" not in name:
            _add(fields, name.strip(), choice, set(kinds), item)
            continue
        if taught is not None:
            raise SpaceError(f"space: {item!r} comes after {taught}; alternatives are separated by |")
        taught, inside = _call(item)
        known = _parameters(taught) if kind_of(taught) == "weighting" else None
        for position, argument in enumerate(_split(inside, ",") if inside.strip() else []):
            key, equals, choice = argument.partition("=")
            if not equals or "(" in key:
                key, choice = _name_of(taught, known, position, argument), argument
            key = key.strip()
            beside = known is not None and key in BESIDE and key not in known
            _add(fields if beside else arguments, key, choice, None if known is None else {*known, *BESIDE}, item)
    if both := arguments.keys() & fields.keys():
        raise SpaceError(
            f"space: {min(both)} is an argument of {taught} and a field of the run; only one can be chosen"
        )
    whole = {name for name, kind in kinds.items() if kind is int or kind == int | None}
    return Branch(taught, arguments, {key: _whole(choice, key in whole) for key, choice in fields.items()})


def _call(item: str) -> tuple[str, str]:
    found = _CALL.fullmatch(item)
    if found is None:
        raise SpaceError(f"space: {item!r} is neither NAME(key=choice, ...) nor field=choice")
    return found[1], found[2] or ""


def _name_of(taught: str, known: tuple[str, ...] | None, position: int, argument: str) -> str:
    if known is None or position >= len(known):
        raise SpaceError(f"space: {taught}(...{argument}): write key={argument}")
    return known[position]


def _add(into: dict[str, Choice], key: str, text: str, known: set[str] | None, item: str) -> None:
    if known is not None and key not in known:
        raise SpaceError(f"space: {item!r}: there is nothing called {key!r} here; {nearest(key, sorted(known))}")
    if not key.isidentifier():
        raise SpaceError(f"space: {item!r}: {key!r} is not a name")
    if key in into:
        raise SpaceError(f"space: {key} is there twice")
    into[key] = _choice(key, text.strip())


def _choice(key: str, text: str) -> Choice:
    if text.startswith("{"):
        if not text.endswith("}"):
            raise SpaceError(f"space: {key}={text}: a list ends with }}")
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
        raise SpaceError(f"space: {key}={text} is no range; write low..high, as in 0.5..24, or low..high:log")
    low, high = float(found[1]), float(found[2])
    marks = [mark.strip() for mark in found[3].split(":")[1:]]
    for mark in marks:
        if mark not in ("log", "int"):
            raise SpaceError(f"space: {key}={text}: after a range comes :log or :int, not :{mark}")
    if low > high:
        raise SpaceError(f"space: {key}={text} ends before it begins; write {found[2]}..{found[1]}")
    if low == high:
        raise SpaceError(f"space: {key}={text} is a single number; write {key}={found[1]}")
    if "log" in marks and low <= 0:
        raise SpaceError(f"space: {key}={text}: a logarithmic scale begins above 0")
    return _whole(Range(low, high, "log" in marks, False), "int" in marks)


def _whole(choice: Choice, whole: bool) -> Choice:
    if not whole or not isinstance(choice, Range):
        return choice
    if not (choice.low.is_integer() and choice.high.is_integer()):
        raise SpaceError(f"space: {choice.low:g}..{choice.high:g} must begin and end with whole numbers")
    return Range(choice.low, choice.high, choice.log, True)


def _scalar(text: str) -> Scalar:
    text = text.strip()
    if not text:
        raise SpaceError("space: there is an empty value")
    if re.fullmatch(_NUMBER, text):
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return _WORDS.get(text.lower(), text)


def _values(choice: Choice) -> tuple[Scalar, ...]:
    if isinstance(choice, Range):
        return choice.value(choice.low), choice.value(choice.high)
    return choice if isinstance(choice, tuple) else (choice,)


def _split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that stand in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            raise SpaceError(f"space: {text.strip()!r} has a closing bracket too many")
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth:
        raise SpaceError(f"space: {text.strip()!r} has a bracket that is not closed")
    if not all(part.strip() for part in parts):
        raise SpaceError(f"space: {text.strip()!r} has an empty part beside a {separator!r}")
    return [part.strip() for part in parts]
