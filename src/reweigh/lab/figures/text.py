"""Curves drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:#"


def bars(values: Sequence[float], height: int, top: float, ramp: str = BLOCKS) -> list[str]:
    """Return the area below a curve as `height` lines of text from the top down, one character per value.

    Args:
        values: not negative; infinity is drawn full, NaN empty.
        height: lines.
        top: the value at the upper edge.
        ramp: characters from empty to full; more of them give a finer resolution.

    >>> print("\\n".join(bars([0, 1, 2, 3, 4], height=2, top=4, ramp=ASCII)))
       .#
     :###
    """
    steps = len(ramp) - 1
    levels = [_level(value, height * steps, top) for value in values]
    return [
        "".join(ramp[min(max(level - line * steps, 0), steps)] for level in levels) for line in reversed(range(height))
    ]


def sparkline(values: Sequence[float | None], ramp: str = BLOCKS) -> str:
    """Return a line of characters scaled from the least to the greatest value, with a blank for a missing one.

    >>> sparkline([0.1, 0.5, None, 0.9])
    '▁▅ █'
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return " " * len(values)
    low, span = min(finite), max(finite) - min(finite)
    steps = len(ramp) - 2  # the least value stays visible

    def character(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return " "
        return ramp[1 + round(steps * (value - low) / span)] if span else ramp[1 + steps // 2]

    return "".join(map(character, values))


def _level(value: float, full: int, top: float) -> int:
    if math.isnan(value) or top <= 0:
        return 0
    return full if value >= top else max(0, round(full * value / top))
