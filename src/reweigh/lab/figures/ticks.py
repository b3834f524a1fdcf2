"""Round numbers for an axis."""

from __future__ import annotations

import math


def ticks(top: float, most: int = 6) -> list[float]:
    """0 and up to `most` multiples of 1, 2 or 5 times a power of ten, at most `top`.

    >>> ticks(3.4), ticks(0.07)
    ([0.0, 1.0, 2.0, 3.0], [0.0, 0.02, 0.04, 0.06])
    """
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(int(top / step + 1e-9) + 1)]
