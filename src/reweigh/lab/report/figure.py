"""Figures as data: what the page draws in the browser and matplotlib draws into files.

All of them have a `key` (a short name, also of the file), a `title`, a `caption` in whole sentences, and the labels of
their axes. A share is a number from 0 to 1; with `percent` its axis reads 0 to 100 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Numbers: TypeAlias = "tuple[float | None, ...]"


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: what the legend calls it.
        x, y: its points; a y of None is a gap.
        spread: standard deviation over seeds at each point, drawn as a band.
        group: which group of runs it tells of; lines of a group share a colour. None: a colour of its own.
        variant: lines of one group differ in it, and are drawn solid (0), dashed (1), dotted (2).
        words: what the variant means.
    """

    name: str
    x: tuple[float, ...]
    y: Numbers
    spread: Numbers | None = None
    group: int | None = None
    variant: int = 0
    words: str = ""


@dataclass(frozen=True)
class Lines:
    """Lines over a common x; `top` is the upper end of the y axis, by default that of the data."""

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    percent: bool = False
    top: float | None = None


@dataclass(frozen=True)
class Stack:
    """Layers that add up to a whole at every x, the first at the bottom."""

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    names: tuple[str, ...]
    layers: tuple[Numbers, ...]


@dataclass(frozen=True)
class Heat:
    """A matrix as colours, `values[row][column]`, rows from the top; colour grows with the square root of the value."""

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[Numbers, ...]
    percent: bool = False


@dataclass(frozen=True)
class Bars:
    """Named values from 0 to 1 side by side, one bar of every set for each name."""

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    names: tuple[str, ...]
    sets: tuple[tuple[str, Numbers], ...]
    percent: bool = True


Figure: TypeAlias = "Lines | Stack | Heat | Bars"


def to_mapping(figure: Figure) -> dict[str, Any]:
    """The figure in what JSON has, numbers to four significant digits, whole ones exactly.

    >>> to_mapping(Bars("a", "", "", "", "", ("x",), (("one", (1 / 3, None)),)))["sets"]
    [['one', [0.3333, None]]]
    """
    return {"kind": type(figure).__name__.lower(), **short(vars(figure))}


def short(value: Any) -> Any:
    """The value with every float at four significant digits; whole ones, which count something, exactly, as integers.

    >>> short([1 / 3, 12345.6, 42297.0])
    [0.3333, 12350, 42297]
    """
    if isinstance(value, float):
        rounded = value if value.is_integer() else float(f"{value:.4g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
    if isinstance(value, dict | Series):  # dataclasses.asdict would copy every number on its own
        return {key: short(item) for key, item in (value if isinstance(value, dict) else vars(value)).items()}
    return [short(item) for item in value] if isinstance(value, list | tuple) else value


def alone(values: Sequence[float | None]) -> list[int]:
    """Indices of the values without a neighbour, which a line would not show.

    >>> alone([0.5]), alone([None, 0.5, None, 0.1, 0.2])
    ([0], [1])
    """
    there = [False, *(value is not None for value in values), False]
    return [i for i in range(len(values)) if there[i : i + 3] == [False, True, False]]


def thin(count: int, most: int) -> list[int]:
    """At most `most` indices of `count`, evenly spread, the first and the last among them.

    >>> thin(10, 4), thin(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)] if most > 1 else [count - 1][:most]
