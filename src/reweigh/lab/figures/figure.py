"""Figures as data, which pages draw in the browser and `figures.draw` draws into files.

All have a `key` (a short name, also of the file), a `title`, a `caption` in sentences, and labels of their axes. Shares
are numbers from 0 to 1; with `percent` their axis shows 0 to 100 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# Okabe and Ito's colours, distinguishable with colour blindness, in an order that suits a white page
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")

Numbers: TypeAlias = "tuple[float | None, ...]"


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: in the legend.
        x, y: its points; a y of None is a gap.
        spread: standard deviation over seeds at each point, drawn as a band.
        group: index of its group of runs; lines of a group share a colour. None: a colour of its own.
        variant: distinguishes lines of one group: solid (0), dashed (1), dotted (2).
        words: meaning of the variant, for the legend.
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
    """Lines over a common x axis.

    `top` is the upper end of the y axis, by default that of the data. `counts` are pairs (x, number of examples), drawn
    as bars at the bottom.
    """

    key: str
    title: str
    caption: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    percent: bool = False
    top: float | None = None
    counts: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True)
class Stack:
    """Layers that sum to 1 at every x, the first at the bottom."""

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
    """A heat map of `values[row][column]`, rows from the top; colours scale with the square root of the value."""

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
    """Bars of values from 0 to 1: for each name one bar of every set."""

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
    """Return the figure as JSON values, with floats at four significant digits and integers exact.

    >>> to_mapping(Bars("a", "", "", "", "", ("x",), (("one", (1 / 3, None)),)))["sets"]
    [['one', [0.3333, None]]]
    """
    return {"kind": type(figure).__name__.lower(), **short(vars(figure))}


def short(value: Any) -> Any:
    """Round every float in a value to four significant digits; integral floats become exact integers.

    >>> short([1 / 3, 12345.6, 42297.0])
    [0.3333, 12350, 42297]
    """
    if isinstance(value, float):
        rounded = value if value.is_integer() else float(f"{value:.4g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
    if isinstance(value, dict | Series):  # dataclasses.asdict is slow: it copies every number
        return {key: short(item) for key, item in (value if isinstance(value, dict) else vars(value)).items()}
    return [short(item) for item in value] if isinstance(value, list | tuple) else value


def isolated(values: Sequence[float | None]) -> list[int]:
    """Return the indices of values without a neighbour, which a line does not show.

    >>> isolated([0.5]), isolated([None, 0.5, None, 0.1, 0.2])
    ([0], [1])
    """
    present = [False, *(value is not None for value in values), False]
    return [i for i in range(len(values)) if present[i : i + 3] == [False, True, False]]


def thin(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` indices, evenly spaced, with the first and the last.

    >>> thin(10, 4), thin(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)] if most > 1 else [count - 1][:most]
