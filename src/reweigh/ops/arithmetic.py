"""Logarithms and exponentials of single rows' numbers, as exact as they need to be and no more.

What is done once a row is done by every thread that works on it, and in float64 a GPU computes libdevice's functions in
twenty to forty instructions each: for rows of a thousand classes that was as long as reading them. Exponents of weights
are multiplied by β, so that `exp` has ten digits; logarithms are only added to margins, and have float32's seven.
"""

from __future__ import annotations

import triton.language as tl

from reweigh.ops.language import jit

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
# Added to a number below 2^51, it leaves no room for digits behind the point.
ROUNDING = tl.constexpr(6755399441055744.0)  # 1.5 * 2^52
HALF_OF_2 = tl.constexpr(0x3F3504F3)  # the square root of 1/2, as the bits of a float32


@jit
def exp(x: tl.tensor) -> tl.tensor:
    """exp(x) in float64 to 1e-10; 0 below the smallest normal number, inf above the largest, NaN for NaN."""
    t = x * LOG2E
    t = tl.where(t > 1024, 1024.0, t)
    rounded = t + ROUNDING
    r = t - (rounded - ROUNDING)  # in [-1/2, 1/2]
    # 2^r, pairs first: half as long a chain of instructions as one after the other
    r2 = r * r
    low = (0.99999999995956175074 + 0.69314718055683241353 * r) + (
        0.24022651213498092661 + 0.055504109063258666119 * r
    ) * r2
    high = (0.0096180256133180342494 + 0.0013333478473685415281 * r) + (
        0.00015469729214118297093 + 0.000015303700711365693939 * r
    ) * r2
    # and 2^n by its bits, n being the last ones of `rounded`
    power = ((rounded.to(tl.int64, bitcast=True) + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(t < -1022, 0.0, (low + high * (r2 * r2)) * power)


@jit
def log1p(x: tl.tensor) -> tl.tensor:
    """log(1 + x) = 2 atanh(x / (2 + x)) in float32 for -0.3 <= x <= 1, without losing a small x."""
    t = x / (2.0 + x)
    s = t * t
    series = 0.285923579954 + s * (0.217065757882 + s * 0.232243292747)
    return t * (2.0 + s * (0.666666673205 + s * (0.399997063319 + s * series)))


@jit
def log(x: tl.tensor) -> tl.tensor:
    """log(x) in float64 to 1e-7 for x > 0 in float32, NaN for NaN."""
    bits = x.to(tl.int32, bitcast=True)
    n = (bits - HALF_OF_2) >> 23
    mantissa = (bits - (n << 23)).to(tl.float32, bitcast=True)  # in [0.707, 1.414]
    found = n.to(tl.float64) * LN2 + log1p(mantissa - 1.0).to(tl.float64)
    return tl.where(x == x, found, x.to(tl.float64))
