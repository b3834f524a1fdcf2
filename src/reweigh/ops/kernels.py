"""Triton kernels of the criterion; `reweigh.ops` selects tile sizes and launches them.

    measure     reads the logits, writes the margin, maximum and sum of exponentials of each row
    weigh_rows  margins -> shares if one program handles all rows; otherwise log w, s x taper and one partial result
                per program: largest log w, Σ s w relative to it, Σ s, Σ s (-log p)
    merge      partial results -> reference log weight, scale and value
    emit        reads the logits, writes the gradient  c_i (softmax over the others - onehot_y) / 2
    count       1 / Σ s, which a mean needs before a single pass
    fused       both passes in one kernel, without batch normalisation
    at_once     the complete computation in one launch, for a batch that fits in one tile
    rescale     multiplies a gradient in place; returns immediately if the factor is 1

`row_stats` holds row statistics in float64, N numbers each: margin, top, rest; then share, or log w and s x taper. Row
offsets are int64. Every row of a gradient is written; ignored rows are set to zero. All sums have a fixed order.

A tile is [R, T, U, K]: R rows and U x T x K columns. Each of the T threads holds U groups of K adjacent columns, so
maxima and sums over U and K need no communication between threads. The columns are processed in steps of U T K, and
the remainder in one step of T K if that suffices. Rows whose length is not a multiple of 16 bytes are not aligned
(SHIFTED): the 16 bytes at both ends of such a row are read element by element. Its columns are counted from the
128-byte line in which it begins, because partial access to memory lines is slower. Rows that are not SHIFTED begin and
end at multiples of K: `// K * K` leaves their sizes unchanged and tells the compiler about the alignment.

Per-row arithmetic is repeated by every thread of the row. The float64 functions of libdevice take twenty to forty
instructions each, as long as reading a row of a thousand classes, so `exp`, `log` and `log1p` are approximated. The
result of `exp` may be multiplied by β and has ten digits; logarithms are only added to margins and have the seven of
float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import triton
import triton.language as tl


class Kernel(Protocol):
    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]: ...
    def __call__(self, *args: Any) -> Any: ...


# Compiled once per combination of types and constants, independent of values. Tensors with one number per row are not
# specialised on alignment: Triton 3.3 to 3.6 fails to compile some combinations of an aligned `values` with unaligned
# weights.
jit: Callable[[Callable[..., Any]], Kernel] = triton.jit(
    do_not_specialize=["N", "C", "P", "stride", "gradient_stride", "factor_stride", "ignore", "parts", "span"],
    do_not_specialize_on_alignment=["target", "factor", "forces", "class_weight", "sample_weight", "values"],
)

LOG2E = tl.constexpr(1.4426950408889634)
# Initial value of a maximum over logits; still present if a row has no admissible class.
NOTHING = tl.constexpr(-3.4028234663852886e38)
# Size of a memory line in units of 16 bytes.
LINE = tl.constexpr(8)


@jit
def exp_below(x: tl.tensor, top: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    """Return exp(x - top) in float32, subtracting first so that a common offset costs no digits.

    Half-precision logits have fewer digits to lose, so one fused multiply-add suffices; its error is a common factor of
    the row.
    """
    if HALF:
        return tl.exp2(tl.fma(x, tl.full([], LOG2E, tl.float32), -tl.maximum(top * LOG2E, NOTHING)))
    return tl.exp2((x - top) * LOG2E)


@jit
def labels(target: tl.tensor, i: tl.tensor, N: tl.tensor, C: tl.tensor, ignore: tl.tensor) -> tl.tensor:
    """Return the labels of rows i, -1 if ignored or out of range, and whether each row is valid."""
    y = tl.load(target + i, mask=i < N, other=ignore).to(tl.int64)
    live = (i < N) & (y != ignore)
    return tl.where(live & (y >= 0) & (y < C), y, -1).to(tl.int32), live


@jit
def importance(
    y: tl.tensor, i: tl.tensor, live: tl.tensor, class_weight: tl.tensor, sample_weight: tl.tensor
) -> tl.tensor:
    """Return s = class weight x sample weight x valid in float64."""
    s = live.to(tl.float64)
    if class_weight is not None:
        s *= tl.load(class_weight + y, mask=y >= 0, other=0.0).to(tl.float64)
    if sample_weight is not None:
        s *= tl.load(sample_weight + i, mask=live, other=0.0).to(tl.float64)
    return s


@jit
def columns(start: tl.tensor, U: tl.constexpr, T: tl.constexpr, K: tl.constexpr) -> tl.tensor:
    t, u, k = tl.arange(0, T)[:, None, None], tl.arange(0, U)[None, :, None], tl.arange(0, K)[None, None, :]
    return (start + (u * T + t) * K + k)[None]


@jit
def place(i: tl.tensor, stride: tl.tensor, C: tl.tensor, K: tl.constexpr, SHIFTED: tl.constexpr) -> tl.tensor:
    """Return the offset of rows i (or of their memory line), the shift in it, and the range of aligned columns."""
    if SHIFTED:  # one row
        offset = i * stride
        start = offset // (LINE * K) * (LINE * K)
        shift = tl.max((offset - start).to(tl.int32), 0)
        return start, shift, shift // K * K + K, (shift + C) // K * K
    return i * (stride // K * K), 0, 0, C // K * K


@jit
def ends(shift: tl.tensor, C: tl.tensor, first: tl.tensor, last: tl.tensor, K: tl.constexpr) -> tl.tensor:
    """Return the columns in the 16 bytes before and after the aligned range, and which of them belong to the row."""
    k = tl.arange(0, 2 * K)[None, None, None, :]
    j = tl.where(k < K, first + k - K, last + k - K)
    return j, (j >= shift) & (j < shift + C)


@jit
def along(rows: tl.tensor) -> tl.tensor:
    """Reshape one number per row to broadcast over a tile."""
    return rows[:, None, None, None]


@jit
def own_max(x: tl.tensor) -> tl.tensor:
    """Return the maximum of each thread, [R, T]."""
    return tl.max(tl.max(x, 3), 2)


@jit
def own_sum(x: tl.tensor) -> tl.tensor:
    """Return the sum of each thread, [R, T]."""
    return tl.sum(tl.sum(x, 3), 2)


@jit
def within(rows: tl.tensor, j: tl.tensor, first: tl.tensor, last: tl.tensor, SHIFTED: tl.constexpr) -> tl.tensor:
    """Return the mask of the valid entries of a tile."""
    if SHIFTED:
        return along(rows) & (j >= first) & (j < last)
    return along(rows) & (j < last)


@jit
def read(
    at: tl.tensor, live: tl.tensor, j: tl.tensor, first: tl.tensor, last: tl.tensor, SHIFTED: tl.constexpr,
    CACHE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Load a tile of logits as float32, -inf where masked."""
    mask = within(live, j, first, last, SHIFTED)
    return tl.load(along(at) + j, mask=mask, other=-float("inf"), eviction_policy=CACHE).to(tl.float32)


@jit
def without(
    x: tl.tensor, y: tl.tensor, start: tl.tensor, U: tl.constexpr, T: tl.constexpr, K: tl.constexpr
) -> tl.tensor:
    """Set the targets in a tile to -inf; skips the comparison if the tile contains none."""
    if tl.max(((y >= start) & (y < start + U * T * K)).to(tl.int32), 0) == 1:
        x = tl.where(columns(start, U, T, K) == along(y), -float("inf"), x)
    return x


@jit
def add(top: tl.tensor, rest: tl.tensor, x: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    """Update the maximum and the sum of exponentials of each thread with a tile."""
    higher = tl.maximum(top, own_max(x))
    return higher, rest * exp_below(top, higher, HALF) + own_sum(exp_below(x, higher[:, :, None, None], HALF))


@jit
def wide_end(first: tl.tensor, last: tl.tensor, U: tl.constexpr, T: tl.constexpr, K: tl.constexpr) -> tl.tensor:
    """Return the end of the wide steps, which is before `last` if one narrow step covers the remainder."""
    return first + (last - first + (U - 1) * T * K - 1) // (U * T * K) * (U * T * K)


@jit
def statistics(
    at: tl.tensor, y: tl.tensor, live: tl.tensor, C: tl.tensor, shift: tl.tensor, first: tl.tensor, last: tl.tensor,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, SHIFTED: tl.constexpr, CACHE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return the largest logit and Σ exp(z - largest) of each row over the classes other than y, in one pass."""
    HALF: tl.constexpr = at.dtype.element_ty != tl.float32
    top = tl.full([R, T], NOTHING, tl.float32)
    rest = tl.zeros([R, T], tl.float32)
    narrow = wide_end(0, last, U, T, K)
    for start in range(0, narrow, U * T * K):
        x = read(at, live, columns(start, U, T, K), first, last, SHIFTED, CACHE)
        top, rest = add(top, rest, without(x, y + shift, start, U, T, K), HALF)
    for start in range(narrow, last, T * K):
        x = read(at, live, columns(start, 1, T, K), first, last, SHIFTED, CACHE)
        top, rest = add(top, rest, without(x, y + shift, start, 1, T, K), HALF)
    highest = tl.max(top, 1)
    rest = tl.sum(rest * exp_below(top, highest[:, None], HALF), 1)
    if SHIFTED:
        j, own = ends(shift, C, first, last, K)
        own &= j != along(y + shift)
        x = tl.load(along(at) + j, mask=along(live) & own, other=-float("inf")).to(tl.float32)
        lower, highest = highest, tl.maximum(highest, tl.max(own_max(x), 1))
        rest = rest * exp_below(lower, highest, HALF) + tl.sum(own_sum(exp_below(x, along(highest), HALF)), 1)
    return highest, rest


LN2 = tl.constexpr(0.6931471805599453)
# Adding this to a number below 2^51 rounds it to an integer.
ROUNDING = tl.constexpr(6755399441055744.0)  # 1.5 * 2^52
HALF_OF_2 = tl.constexpr(0x3F3504F3)  # the square root of 1/2, as the bits of a float32


@jit
def exp(x: tl.tensor) -> tl.tensor:
    """Return exp(x) in float64 with relative error 1e-10; 0 below the smallest normal number, inf on overflow."""
    t = x * LOG2E
    t = tl.where(t > 1024, 1024.0, t)
    rounded = t + ROUNDING
    r = t - (rounded - ROUNDING)  # in [-1/2, 1/2]
    # 2^r by a polynomial evaluated in pairs, which halves the dependency chain
    r2 = r * r
    low = (0.99999999995956175074 + 0.69314718055683241353 * r) + (
        0.24022651213498092661 + 0.055504109063258666119 * r
    ) * r2
    high = (0.0096180256133180342494 + 0.0013333478473685415281 * r) + (
        0.00015469729214118297093 + 0.000015303700711365693939 * r
    ) * r2
    # 2^n from its bits; n is in the low bits of `rounded`
    power = ((rounded.to(tl.int64, bitcast=True) + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(t < -1022, 0.0, (low + high * (r2 * r2)) * power)


@jit
def log1p(x: tl.tensor) -> tl.tensor:
    """Return log(1 + x) = 2 atanh(x / (2 + x)) in float32 for -0.3 <= x <= 1, accurate for small x."""
    t = x / (2.0 + x)
    s = t * t
    series = 0.285923579954 + s * (0.217065757882 + s * 0.232243292747)
    return t * (2.0 + s * (0.666666673205 + s * (0.399997063319 + s * series)))


@jit
def log(x: tl.tensor) -> tl.tensor:
    """Return log(x) in float64 with error 1e-7 for a float32 x > 0; NaN for NaN."""
    bits = x.to(tl.int32, bitcast=True)
    n = (bits - HALF_OF_2) >> 23
    mantissa = (bits - (n << 23)).to(tl.float32, bitcast=True)  # in [0.707, 1.414]
    found = n.to(tl.float64) * LN2 + log1p(mantissa - 1.0).to(tl.float64)
    return tl.where(x == x, found, x.to(tl.float64))


# Lower bound of log p and log q, so that 0 * log 0 = 0.
FLOOR = tl.constexpr(-1.7976931348623157e308)
# Lower values are powers of 0, as in reweigh.weightings.parameter.is_log_zero.
LOWEST = tl.constexpr(-1.7976931348623157e300)
# The families of reweigh.weightings.base.Form.
POWERS, EMPHASIS, BELL, FOCUS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
# Reductions of the value, as in reweigh.ops.REDUCTIONS.
NONE, MEAN = tl.constexpr(0), tl.constexpr(1)


@jit
def own_logit(at: tl.tensor, y: tl.tensor) -> tl.tensor:
    """Return z_y in float64; NaN for a label out of range, and for +inf, as in torch."""
    own = tl.load(at + y, mask=y >= 0, other=float("nan")).to(tl.float64)
    return tl.where(own == float("inf"), float("nan"), own)


@jit
def margin_of(own: tl.tensor, top: tl.tensor, rest: tl.tensor) -> tl.tensor:
    """Return (z_y - top) - log rest in float64; inf without an admissible other class, NaN for a label out of range."""
    alone = (top == NOTHING) & (rest == rest)  # a NaN logit makes rest NaN and is not an empty row
    gap = own - top.to(tl.float64)
    return tl.where(alone, float("inf"), gap - log(tl.where(alone, 1.0, rest)))


@jit
def weigh(
    m: tl.tensor, s: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, inner: tl.tensor, taper: tl.tensor,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return log w, s (0 for an infinite margin) before and after taper, and the cross entropy s (-log p).

    Uses float64, except for log(1 + exp(-|m|)), which is in [0, log 2], and the divisor of the taper.
    """
    small = exp(-tl.abs(m))
    bend = log1p(small.to(tl.float32)).to(tl.float64)
    log_p = tl.where(m < 0, m, 0.0) - bend
    log_q = tl.where(m > 0, -m, 0.0) - bend
    # not tl.maximum, which does not propagate NaN
    log_p, log_q = tl.where(log_p < FLOOR, FLOOR, log_p), tl.where(log_q < FLOOR, FLOOR, log_q)
    if FAMILY == POWERS:
        log_w = a * log_p + b * log_q + c
    elif FAMILY == EMPHASIS:
        log_w = b * exp(a * log_p + log_q) + c
    elif FAMILY == FOCUS:
        # -p log p / q with p / q = exp(m); for large m by its series, as -log p underflows before q
        near = tl.where(small < 1e-4, 1.0 - 0.5 * small, -log_p / small)
        ratio = tl.where(m > 0, near, -log_p * small)
        log_w = (a + 1.0) * log_q + log((1.0 + a * ratio).to(tl.float32)) + c
    else:
        log_w = b * exp(log_p) * (a + exp(log_q)) + c
    # q = odds / (1 + small), so that q / (q + taper) = odds / (odds + taper (1 + small))
    odds = tl.where(m > 0, small, 1.0)
    if INNER:
        log_w += tl.where(m > 0, -m, 0.0) - tl.log(odds + inner * (1.0 + small))  # odds underflow from 746 on
    active = tl.where(m == float("inf"), 0.0, s)
    pull = active
    if TAPER:
        pull = active * (odds * (1.0 / (odds + taper * (1.0 + small)).to(tl.float32)).to(tl.float64))
    return log_w, active, pull, tl.where(s == 0, 0.0, -s * log_p)


@jit
def add_two(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tensor:
    return a + c, b + d


@jit
def add_three(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, e: tl.tensor, f: tl.tensor) -> tl.tensor:
    return a + d, b + e, c + f


@jit
def totals(
    log_w: tl.tensor, active: tl.tensor, s: tl.tensor, value: tl.tensor, BATCH: tl.constexpr, BOUNDED: tl.constexpr
) -> tl.tensor:
    """Return w / exp(top), top, Σ s w / exp(top), Σ s and Σ value; top is 0 without batch normalisation.

    Rows with s = 0 are excluded, however large their w. BOUNDED weights neither overflow nor underflow in float64 and
    need no maximum. The sums share one reduction, which synchronises threads only once.
    """
    if BATCH and not BOUNDED:
        counted = tl.where(active == 0, -float("inf"), log_w)
        top = tl.max(counted, 0)
        w = tl.where(counted == -float("inf"), 0.0, exp(counted - top))
    else:
        w = exp(log_w)
        top = tl.full([], 0.0, tl.float64)
    if BATCH:
        shares = tl.where(active == 0, 0.0, active * w)
        total, mass, surprise = tl.reduce((shares, s, value), 0, add_three)
    else:
        mass, surprise = tl.reduce((s, value), 0, add_two)
        total = mass
    return w, top, total, mass, surprise


@jit
def over(mass: tl.tensor) -> tl.tensor:
    """Return 1 / mass, or 1 for an empty mean."""
    return 1.0 / tl.where(mass == 0, 1.0, mass)


@jit
def reduced(surprise: tl.tensor, mass: tl.tensor, REDUCTION: tl.constexpr) -> tl.tensor:
    """Return the reduced value, a mean or a sum."""
    if REDUCTION == MEAN:
        return surprise * over(mass)
    return surprise


@jit
def over_batch(top: tl.tensor, total: tl.tensor) -> tl.tensor:
    """Return 1 / total, or 0 if all weights are 0; NaN propagates."""
    nothing = (total == 0) | ((top < LOWEST) & (total == total))
    return tl.where(nothing, 0.0, 1.0 / tl.where(nothing, 1.0, total))


@jit
def forces(
    pull: tl.tensor, w: tl.tensor, top: tl.tensor, total: tl.tensor, mass: tl.tensor, BATCH: tl.constexpr,
    REDUCTION: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return the factors of the directions of all rows."""
    return tl.where(pull == 0, 0.0, pull * w) * scale(top, total, mass, BATCH, REDUCTION)


@jit
def scale(top: tl.tensor, total: tl.tensor, mass: tl.tensor, BATCH: tl.constexpr, REDUCTION: tl.constexpr) -> tl.tensor:
    """Return the factor of s w: 1 / Σ s w under batch normalisation, 1 / Σ s for a mean, otherwise 1."""
    factor = tl.full([], 1.0, tl.float64)
    if BATCH:
        factor = over_batch(top, total)
    elif REDUCTION == MEAN:
        factor = over(mass)
    return factor


@jit
def weigh_rows(
    row_stats: tl.tensor, target: tl.tensor, values: tl.tensor, normaliser: tl.tensor, class_weight: tl.tensor,
    sample_weight: tl.tensor, N: tl.int32, C: tl.int32, ignore: tl.int64,
    a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64, taper: tl.float64,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr, BOUNDED: tl.constexpr, REDUCTION: tl.constexpr,
    ALONE: tl.constexpr, B: tl.constexpr
) -> None:  # fmt: skip
    """Weigh B rows over the batch; one program ALONE also normalises, several write partial results to `normaliser`."""
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    y, live = labels(target, i, N, C, ignore)
    s = importance(y, i, live, class_weight, sample_weight)
    m = tl.load(row_stats + i, mask=i < N, other=0.0)
    log_w, active, pull, value = weigh(m, s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    if REDUCTION == NONE:
        tl.store(values + i, value.to(tl.float32), mask=i < N)
    w, top, total, mass, surprise = totals(log_w, active, s, value, True, BOUNDED)
    if ALONE:
        tl.store(row_stats + 3 * N + i, forces(pull, w, top, total, mass, True, REDUCTION), mask=i < N)
        if REDUCTION != NONE:
            tl.store(values, reduced(surprise, mass, REDUCTION).to(tl.float32))
    else:
        tl.store(row_stats + 3 * N + i, log_w, mask=i < N)
        tl.store(row_stats + 4 * N + i, pull, mask=i < N)
        at = normaliser + 2 + tl.program_id(0) * 4
        tl.store(at, top)
        tl.store(at + 1, total)
        tl.store(at + 2, mass)
        tl.store(at + 3, surprise)


@jit
def merge(
    normaliser: tl.tensor, values: tl.tensor, P: tl.int32, REDUCTION: tl.constexpr, B: tl.constexpr
) -> None:  # fmt: skip
    """Merge the partial results of P programs, in one: top and scale, where w exp(-top) scale is a share."""
    top = tl.full([B], -float("inf"), tl.float64)
    total, mass, surprise = tl.zeros([B], tl.float64), tl.zeros([B], tl.float64), tl.zeros([B], tl.float64)
    for start in range(0, P, B):
        k = start + tl.arange(0, B)
        at, inside = normaliser + 2 + k * 4, k < P
        new = tl.load(at, mask=inside, other=-float("inf"))
        higher = tl.maximum(top, new)
        finite = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * exp(top - finite) + tl.load(at + 1, mask=inside, other=0.0) * exp(new - finite)
        top = higher
        mass += tl.load(at + 2, mask=inside, other=0.0)
        surprise += tl.load(at + 3, mask=inside, other=0.0)
    highest = tl.max(top, 0)
    shares = tl.where(total == 0, 0.0, total * exp(top - highest))
    total, mass, surprise = tl.reduce((shares, mass, surprise), 0, add_three)
    factor = over_batch(highest, total)
    tl.store(normaliser, tl.where(highest == -float("inf"), 0.0, highest))
    tl.store(normaliser + 1, factor)
    if REDUCTION != NONE:
        tl.store(values, reduced(surprise, mass, REDUCTION).to(tl.float32))


@jit
def count(
    normaliser: tl.tensor, target: tl.tensor, class_weight: tl.tensor, sample_weight: tl.tensor,
    N: tl.int32, C: tl.int32, ignore: tl.int64, B: tl.constexpr
) -> None:  # fmt: skip
    """Compute 1 / Σ s in one program; without weights, count rows in 32 bits."""
    plain: tl.constexpr = class_weight is None and sample_weight is None
    mass = tl.zeros([B], tl.int32 if plain else tl.float64)
    for start in range(0, N, B):
        i = start + tl.arange(0, B)
        y, live = labels(target, i, N, C, ignore)
        mass += live.to(tl.int32) if plain else importance(y, i, live, class_weight, sample_weight)
    tl.store(normaliser, over(tl.sum(mass, 0).to(tl.float64)))


# Factors of the directions in pass two: the given forces, the shares in `row_stats`, or log w still to be normalised.
GIVEN, SHARED, UNNORMALISED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@jit
def whole_rows(x: tl.tensor, y: tl.tensor, live: tl.tensor, j: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    """Return `statistics` of rows that fit in one tile, and exp(z - largest), kept in registers."""
    x = tl.where(along(live) & (j != along(y)), x, -float("inf"))
    top = tl.maximum(tl.max(own_max(x), 1), NOTHING)
    e = exp_below(x, along(top), HALF)
    return e, top, tl.sum(own_sum(e), 1)


@jit
def measure(
    logits: tl.tensor, target: tl.tensor, row_stats: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64,
    ignore: tl.int64,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, SHIFTED: tl.constexpr
) -> None:  # fmt: skip
    """Compute the row statistics (pass one)."""
    HALF: tl.constexpr = logits.dtype.element_ty != tl.float32
    i = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    begin, shift, first, last = place(i, stride, C, K, SHIFTED)
    at, j = logits + begin, columns(0, U, T, K)
    if WHOLE:  # load before the labels to overlap both; pass two reads the logits again
        x = read(at, i < N, j, first, last, SHIFTED, "evict_last")
    y, live = labels(target, i, N, C, ignore)
    own = own_logit(at + shift, y)
    if WHOLE:
        _, top, rest = whole_rows(x, y, live, j, HALF)
    else:
        top, rest = statistics(at, y, live, C, shift, first, last, U, R, T, K, SHIFTED, "")
    tl.store(row_stats + i, margin_of(own, top, rest), mask=i < N)
    tl.store(row_stats + N + i, top.to(tl.float64), mask=i < N)
    tl.store(row_stats + 2 * N + i, rest.to(tl.float64), mask=i < N)


@jit
def write(
    to: tl.tensor, j: tl.tensor, e: tl.tensor, up: tl.tensor, inside: tl.tensor, first: tl.tensor, last: tl.tensor,
    SHIFTED: tl.constexpr, CACHE: tl.constexpr,
) -> None:  # fmt: skip
    """Write a tile of the gradient without the targets: `up` times e = exp(z - top)."""
    d = (e * along(up)).to(to.dtype.element_ty)
    tl.store(along(to) + j, d, mask=within(inside, j, first, last, SHIFTED), eviction_policy=CACHE)


@jit
def read_and_write(
    at: tl.tensor, to: tl.tensor, j: tl.tensor, top: tl.tensor, up: tl.tensor, live: tl.tensor, inside: tl.tensor,
    first: tl.tensor, last: tl.tensor, SHIFTED: tl.constexpr, CACHE: tl.constexpr,
) -> None:  # fmt: skip
    """Load a tile of logits and write that tile of the gradient."""
    x = read(at, live, j, first, last, SHIFTED, CACHE)
    e = exp_below(x, along(top), at.dtype.element_ty != tl.float32)
    write(to, j, e, up, inside, first, last, SHIFTED, CACHE)


@jit
def write_ends(
    at: tl.tensor, to: tl.tensor, top: tl.tensor, up: tl.tensor, live: tl.tensor, inside: tl.tensor, shift: tl.tensor,
    C: tl.tensor, first: tl.tensor, last: tl.tensor, K: tl.constexpr,
) -> None:  # fmt: skip
    """Write the gradient at both ends of a shifted row."""
    j, own = ends(shift, C, first, last, K)
    x = tl.load(along(at) + j, mask=along(live) & own, other=-float("inf")).to(tl.float32)
    d = (exp_below(x, along(top), at.dtype.element_ty != tl.float32) * along(up)).to(to.dtype.element_ty)
    tl.store(along(to) + j, d, mask=along(inside) & own)


@jit
def write_targets(to: tl.tensor, y: tl.tensor, here: tl.tensor, down: tl.tensor) -> None:
    """Write the entries of the targets, after a barrier because the tiles have written there."""
    tl.debug_barrier()
    tl.store(to + y, down.to(to.dtype.element_ty), mask=here)


@jit
def emit(
    logits: tl.tensor, target: tl.tensor, gradient: tl.tensor, row_stats: tl.tensor, normaliser: tl.tensor,
    forces: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, gradient_stride: tl.int64, ignore: tl.int64,
    parts: tl.int32, span: tl.int32, lift: tl.float64, FORCE: tl.constexpr,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, SHIFTED: tl.constexpr
) -> None:  # fmt: skip
    """Write the gradient (pass two); `parts` programs share a row, `span` columns (a multiple of U T K) each.

    Depending on FORCE, c is `lift` times the given force, the share in `row_stats`, or s x taper x w, normalised.
    Rows are processed from last to first, because the caches hold those that pass one read last.
    """
    HALF: tl.constexpr = logits.dtype.element_ty != tl.float32
    pid = tl.num_programs(0) - 1 - tl.program_id(0)
    i = (pid // parts).to(tl.int64) * R + tl.arange(0, R)
    begin, shift, first, last = place(i, stride, C, K, SHIFTED)
    at, to, j = logits + begin, gradient + place(i, gradient_stride, C, K, SHIFTED)[0], columns(0, U, T, K)
    if WHOLE:
        x = read(at, i < N, j, first, last, SHIFTED, "")
    y, live = labels(target, i, N, C, ignore)
    c = tl.where(live, lift, 0.0)
    if FORCE == GIVEN:
        c *= tl.load(forces + i, mask=live, other=0.0).to(tl.float64)
    elif FORCE == SHARED:
        c *= tl.load(row_stats + 3 * N + i, mask=live, other=0.0)
    elif FORCE == UNNORMALISED:
        pull = tl.load(row_stats + 4 * N + i, mask=live, other=0.0)
        w = exp(tl.load(row_stats + 3 * N + i, mask=live, other=0.0) - tl.load(normaliser))
        c *= tl.where(pull == 0, 0.0, pull * w) * tl.load(normaliser + 1)
    live &= c != 0
    top = tl.load(row_stats + N + i, mask=live, other=0.0).to(tl.float32)
    up = (0.5 * c).to(tl.float32) / tl.load(row_stats + 2 * N + i, mask=live, other=1.0).to(tl.float32)
    if WHOLE:
        e = exp_below(tl.where(along(live), x, -float("inf")), along(top), HALF)
        write(to, j, e, up, i < N, first, last, SHIFTED, "")
        write_targets(to, y, y >= 0, (-0.5 * c).to(tl.float32))
    else:
        part = pid % parts
        begin = part * (span // K * K)
        end = tl.minimum(begin + span, last)
        narrow = wide_end(begin, end, U, T, K)
        for start in range(begin, narrow, U * T * K):
            read_and_write(at, to, columns(start, U, T, K), top, up, live, i < N, first, last, SHIFTED, "")
        for start in range(narrow, end, T * K):
            read_and_write(at, to, columns(start, 1, T, K), top, up, live, i < N, first, last, SHIFTED, "")
        mine = y + shift
        here = (mine >= begin) & (mine < begin + span)
        if SHIFTED:
            here &= (mine >= first) & (mine < last)
            if part == 0:
                write_ends(at, to, top, up, live, i < N, shift, C, first, last, K)
                here |= (mine < first) | (mine >= last)
        write_targets(to + shift, y, here & (y >= 0), (-0.5 * c).to(tl.float32))


@jit
def fused(
    logits: tl.tensor, target: tl.tensor, gradient: tl.tensor, values: tl.tensor, class_weight: tl.tensor,
    sample_weight: tl.tensor, normaliser: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64,
    gradient_stride: tl.int64, ignore: tl.int64, a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64,
    taper: tl.float64, lift: tl.float64, FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr,
    REDUCTION: tl.constexpr,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, SHIFTED: tl.constexpr
) -> None:  # fmt: skip
    """Run both passes row by row; the second reads from registers (WHOLE: a row is one tile) or from the caches.

    The gradient is multiplied by `lift`, and under a mean s by `normaliser`, 1 / Σ s. `values` has one entry per row,
    or one per program if the value is reduced.
    """
    HALF: tl.constexpr = logits.dtype.element_ty != tl.float32
    i = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    begin, shift, first, last = place(i, stride, C, K, SHIFTED)
    at, to, j = logits + begin, gradient + place(i, gradient_stride, C, K, SHIFTED)[0], columns(0, U, T, K)
    if WHOLE:
        x = read(at, i < N, j, first, last, SHIFTED, "evict_first")
    y, live = labels(target, i, N, C, ignore)
    own = own_logit(at + shift, y)
    s = importance(y, i, live, class_weight, sample_weight)
    if WHOLE:
        e, top, rest = whole_rows(x, y, live, j, HALF)
    else:
        top, rest = statistics(at, y, live, C, shift, first, last, U, R, T, K, SHIFTED, "evict_last")
    if normaliser is not None:
        s *= tl.load(normaliser)
    log_w, _, pull, value = weigh(margin_of(own, top, rest), s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    if REDUCTION == NONE:
        tl.store(values + i, value.to(tl.float32), mask=i < N)
    else:
        tl.store(values + tl.program_id(0), tl.sum(value, 0).to(tl.float32))
    force = tl.where(pull == 0, 0.0, pull * exp(log_w)) * lift
    live &= force != 0
    up = tl.where(live, (0.5 * force).to(tl.float32) / rest, 0.0)
    if WHOLE:
        write(to, j, e, up, i < N, first, last, SHIFTED, "evict_last")
    else:
        # backwards, because the caches hold the columns read last
        narrow = wide_end(0, last, U, T, K)
        for start in range(narrow, last, T * K):
            narrower = columns(start, 1, T, K)
            read_and_write(at, to, narrower, top, up, live, i < N, first, last, SHIFTED, "evict_first")
        for done in range(U * T * K, narrow + 1, U * T * K):
            wider = columns(narrow - done, U, T, K)
            read_and_write(at, to, wider, top, up, live, i < N, first, last, SHIFTED, "evict_first")
        if SHIFTED:
            write_ends(at, to, top, up, live, i < N, shift, C, first, last, K)
    write_targets(to + shift, y, y >= 0, (-0.5 * force).to(tl.float32))


@jit
def at_once(
    logits: tl.tensor, target: tl.tensor, gradient: tl.tensor, values: tl.tensor, class_weight: tl.tensor,
    sample_weight: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, gradient_stride: tl.int64, ignore: tl.int64,
    a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64, taper: tl.float64, lift: tl.float64,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr, BOUNDED: tl.constexpr, REDUCTION: tl.constexpr,
    BATCH: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr
) -> None:  # fmt: skip
    """Compute value and gradient of a batch in one program, for an incoming gradient of 1."""
    i = tl.arange(0, R).to(tl.int64)
    begin, _, first, last = place(i, stride, C, K, False)
    at, to, j = logits + begin, gradient + place(i, gradient_stride, C, K, False)[0], columns(0, 1, T, K)
    x = read(at, i < N, j, first, last, False, "")
    y, live = labels(target, i, N, C, ignore)
    # a row belongs to one or a few threads: a masked sum is faster than a second load
    own = tl.sum(own_sum(tl.where(j == along(y), x, 0.0)), 1).to(tl.float64)
    own = tl.where((y >= 0) & (own != float("inf")), own, float("nan"))
    s = importance(y, i, live, class_weight, sample_weight)
    e, top, rest = whole_rows(x, y, live, j, logits.dtype.element_ty != tl.float32)
    log_w, active, pull, value = weigh(margin_of(own, top, rest), s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    w, top_w, total, mass, surprise = totals(log_w, active, s, value, BATCH, BOUNDED)
    force = forces(pull, w, top_w, total, mass, BATCH, REDUCTION) * lift
    if REDUCTION == NONE:
        tl.store(values + i, value.to(tl.float32), mask=i < N)
    else:
        tl.store(values, reduced(surprise, mass, REDUCTION).to(tl.float32))
    live &= force != 0
    up = tl.where(live, (0.5 * force).to(tl.float32) / rest, 0.0)
    d = tl.where(j == along(y), along((-0.5 * force).to(tl.float32)), e * along(up))
    tl.store(along(to) + j, d.to(gradient.dtype.element_ty), mask=along(i < N) & (j < last))


@jit
def rescale(
    gradient: tl.tensor, factor: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, factor_stride: tl.int64,
    T: tl.constexpr, K: tl.constexpr,
) -> None:  # fmt: skip
    """Multiply the gradient by `factor` in place; does nothing if one factor of 1 applies to all rows."""
    C, stride = C // K * K, stride // K * K
    is_one = (tl.load(factor).to(tl.float32) == 1.0) & (factor_stride == 0)
    for row in range(tl.program_id(0), tl.where(is_one, 0, N), tl.num_programs(0)):
        g = tl.load(factor + row * factor_stride).to(tl.float32)
        at = gradient + row * stride
        for start in range(0, tl.where(g == 1.0, 0, C), T * K):
            j = columns(start, 1, T, K)
            d = tl.load(at + j, mask=j < C, other=0.0).to(tl.float32) * g
            tl.store(at + j, d.to(gradient.dtype.element_ty), mask=j < C)
