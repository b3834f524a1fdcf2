"""What happens to N numbers: from margins to weights, their normaliser, and the value.

Between the passes:

    weigh_rows   margins -> shares of the whole, where one program has all rows; else log w, s x taper and one partial
                 result per program: largest log w, Σ s w relative to it, Σ s, Σ s (-log p)
    settle       partial results -> what weights are relative to, the scale, and the value

Around the single pass:

    count        1 / Σ s before it, where a mean must know it
    tally        the value after it, and what a mean has to be corrected by

All sums are taken in a fixed order.
"""

from __future__ import annotations

import triton.language as tl

from reweigh.ops.arithmetic import exp, log, log1p
from reweigh.ops.language import NOTHING, follow, importance, jit, labels

# Where log p and log q end, so that 0 * log 0 = 0.
FLOOR = tl.constexpr(-1.7976931348623157e308)
LOWEST = tl.constexpr(-1.7976931348623157e300)  # below are powers of 0, as in reweigh.weightings.parameter.is_none
# The families of weightings that a kernel can weigh by itself, as in forms.py.
POWERS, EMPHASIS, BELL, FOCUS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
# And any other: log w comes from plain torch.
GIVEN = tl.constexpr(4)
# How the value is reduced, as in launch.py.
NONE, MEAN = tl.constexpr(0), tl.constexpr(1)
# What the single pass leaves as the value of a row that takes no part. A cross entropy is never that, unless weights of
# examples are negative; where there are any, this is not asked.
IGNORED = tl.constexpr(-3.4028234663852886e38)


@jit
def own_logit(at: tl.tensor, y: tl.tensor) -> tl.tensor:
    """z_y in float64, NaN for an unknown label."""
    return tl.load(at + y, mask=y >= 0, other=float("nan")).to(tl.float64)


@jit
def margin_of(own: tl.tensor, top: tl.tensor, rest: tl.tensor) -> tl.tensor:
    """margin = (z_y - top) - log rest in float64; +inf where there is no class to turn to, NaN for an unknown label."""
    alone = (top == NOTHING) & (rest == rest)  # rest is NaN where a logit is, and that must not pass for nothing
    gap = own - top.to(tl.float64)
    return tl.where(alone, float("inf"), gap - log(tl.where(alone, 1.0, rest)))


@jit
def weigh(
    m: tl.tensor, s: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, inner: tl.tensor, taper: tl.tensor,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """log w; s where there is a derivative to give, before and after taper; and the cross entropy s (-log p).

    In float64, but for log(1 + exp(-|m|)), which lies in [0, log 2], and what the taper divides by. Where log w is
    GIVEN, it is `a`.
    """
    small = exp(-tl.abs(m))
    bend = log1p(small.to(tl.float32)).to(tl.float64)
    log_p = tl.where(m < 0, m, 0.0) - bend
    log_q = tl.where(m > 0, -m, 0.0) - bend
    # not tl.maximum, which would swallow a NaN
    log_p, log_q = tl.where(log_p < FLOOR, FLOOR, log_p), tl.where(log_q < FLOOR, FLOOR, log_q)
    if FAMILY == POWERS:
        log_w = a * log_p + b * log_q + c
    elif FAMILY == EMPHASIS:
        log_w = b * exp(a * log_p + log_q) + c
    elif FAMILY == FOCUS:
        # -p log p / q; p / q is exp(m), and far out -log p ends before q does
        near = tl.where(small < 1e-4, 1.0 - 0.5 * small, -log_p / small)
        ratio = tl.where(m > 0, near, -log_p * small)
        log_w = (a + 1.0) * log_q + log((1.0 + a * ratio).to(tl.float32)) + c
    elif FAMILY == GIVEN:
        log_w = a
    else:
        log_w = b * exp(log_p) * (a + exp(log_q)) + c
    # q = odds / (1 + small), so that q / (q + taper) = odds / (odds + taper (1 + small))
    odds = tl.where(m > 0, small, 1.0)
    if INNER:
        log_w += tl.log(odds / (odds + inner * (1.0 + small)))
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
    """w relative to exp(top), top, Σ s w relative to it, Σ s and Σ value; without batch normalisation w itself.

    A row whose s is 0 does not count, however large its w. Weights that are BOUNDED neither overflow nor vanish in
    float64, and need no look at the largest. Sums that are taken together wait for each other's threads once.
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
    """1 / mass; a mean over nothing divides by 1."""
    return 1.0 / tl.where(mass == 0, 1.0, mass)


@jit
def reduced(surprise: tl.tensor, mass: tl.tensor, REDUCTION: tl.constexpr) -> tl.tensor:
    """The value: a mean or a sum."""
    if REDUCTION == MEAN:
        return surprise * over(mass)
    return surprise


@jit
def over_batch(top: tl.tensor, total: tl.tensor) -> tl.tensor:
    """1 / total; a batch with nothing in it stays at zero, and a NaN shows."""
    nothing = (total == 0) | ((top < LOWEST) & (total == total))
    return tl.where(nothing, 0.0, 1.0 / tl.where(nothing, 1.0, total))


@jit
def forces(
    pull: tl.tensor, w: tl.tensor, top: tl.tensor, total: tl.tensor, mass: tl.tensor, BATCH: tl.constexpr,
    REDUCTION: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """What the directions of all rows are multiplied by."""
    return tl.where(pull == 0, 0.0, pull * w) * scale(top, total, mass, BATCH, REDUCTION)


@jit
def scale(top: tl.tensor, total: tl.tensor, mass: tl.tensor, BATCH: tl.constexpr, REDUCTION: tl.constexpr) -> tl.tensor:
    """What s w is divided by, turned over: the batch's, for a mean Σ s, or nothing."""
    factor = tl.full([], 1.0, tl.float64)
    if BATCH:
        factor = over_batch(top, total)
    elif REDUCTION == MEAN:
        factor = over(mass)
    return factor


@jit
def weigh_rows(
    book: tl.tensor, target: tl.tensor, values: tl.tensor, settled: tl.tensor, class_weight: tl.tensor,
    sample_weight: tl.tensor, N: tl.int32, C: tl.int32, ignore: tl.int64,
    a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64, taper: tl.float64,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr, BOUNDED: tl.constexpr, REDUCTION: tl.constexpr,
    BATCH: tl.constexpr, ALONE: tl.constexpr, B: tl.constexpr, EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """Weigh B rows; a program that is ALONE settles, too. `settled` are two numbers of `settle`, and partial results.

    A log w that is GIVEN stands in the book where it will be.
    """
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    y, live = labels(target, i, N, C, ignore)
    s = importance(y, i, live, class_weight, sample_weight)
    follow(EARLY)
    m = tl.load(book + i, mask=i < N, other=0.0)
    if FAMILY == GIVEN:
        a = tl.load(book + 3 * N + i, mask=i < N, other=0.0)
    log_w, active, pull, value = weigh(m, s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    if REDUCTION == NONE:
        tl.store(values + i, value.to(tl.float32), mask=i < N)
    w, top, total, mass, surprise = totals(log_w, active, s, value, BATCH, BOUNDED)
    if ALONE:
        tl.store(book + 3 * N + i, forces(pull, w, top, total, mass, BATCH, REDUCTION), mask=i < N)
        if REDUCTION != NONE:
            tl.store(values, reduced(surprise, mass, REDUCTION).to(tl.float32))
    else:
        tl.store(book + 3 * N + i, log_w, mask=i < N)
        tl.store(book + 4 * N + i, pull, mask=i < N)
        at = settled + 2 + tl.program_id(0) * 4
        tl.store(at, top)
        tl.store(at + 1, total)
        tl.store(at + 2, mass)
        tl.store(at + 3, surprise)


@jit
def settle(
    settled: tl.tensor, values: tl.tensor, P: tl.int32, REDUCTION: tl.constexpr, BATCH: tl.constexpr, B: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """One program: merge the partial results of P others into `settled`, top and scale: w exp(-top) scale is a share.

    Without batch normalisation top is 0.
    """
    follow(EARLY)
    top = tl.full([B], -float("inf"), tl.float64)
    total, mass, surprise = tl.zeros([B], tl.float64), tl.zeros([B], tl.float64), tl.zeros([B], tl.float64)
    for start in range(0, P, B):
        k = start + tl.arange(0, B)
        at, inside = settled + 2 + k * 4, k < P
        new = tl.load(at, mask=inside, other=-float("inf"))
        higher = tl.maximum(top, new)
        finite = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * exp(top - finite) + tl.load(at + 1, mask=inside, other=0.0) * exp(new - finite)
        top = higher
        mass += tl.load(at + 2, mask=inside, other=0.0)
        surprise += tl.load(at + 3, mask=inside, other=0.0)
    highest = tl.max(top, 0)
    shares = tl.where(total == 0, 0.0, total * exp(top - highest))
    whole, mass, surprise = tl.reduce((shares, mass, surprise), 0, add_three)
    factor = scale(highest, whole, mass, BATCH, REDUCTION)
    tl.store(settled, tl.where(highest == -float("inf"), 0.0, highest))
    tl.store(settled + 1, factor)
    if REDUCTION != NONE:
        tl.store(values, reduced(surprise, mass, REDUCTION).to(tl.float32))


@jit
def count(
    settled: tl.tensor, target: tl.tensor, class_weight: tl.tensor, sample_weight: tl.tensor,
    N: tl.int32, C: tl.int32, ignore: tl.int64, B: tl.constexpr, EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """One program: 1 / Σ s; without weights the sum of s is a number of rows, and counted in 32 bits."""
    follow(EARLY)
    plain: tl.constexpr = class_weight is None and sample_weight is None
    mass = tl.zeros([B], tl.int32 if plain else tl.float64)
    for start in range(0, N, B):
        i = start + tl.arange(0, B)
        y, live = labels(target, i, N, C, ignore)
        mass += live.to(tl.int32) if plain else importance(y, i, live, class_weight, sample_weight)
    tl.store(settled, over(tl.sum(mass, 0).to(tl.float64)))


@jit
def tally(
    partial: tl.tensor, value: tl.tensor, N: tl.int32, P: tl.int32, PRESUMED: tl.constexpr, SINGLE: tl.constexpr,
    B: tl.constexpr, EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """One program: the sum of P values in `partial`, each that of a SINGLE row, or with P numbers of rows behind them.

    If it was PRESUMED that all N rows take part in a mean, the number after them is N over how many did.
    """
    follow(EARLY)
    total, rows = tl.zeros([B], tl.float32), tl.zeros([B], tl.float32)
    for start in range(0, P, B):
        k = start + tl.arange(0, B)
        one = tl.load(partial + k, mask=k < P, other=IGNORED if SINGLE else 0.0)
        if SINGLE:
            total += tl.where(one == IGNORED, 0.0, one)
            rows += tl.where(one == IGNORED, 0.0, 1.0)
        else:
            total += one
            rows += tl.load(partial + P + k, mask=k < P, other=0.0)
    found, valid = tl.reduce((total, rows), 0, add_two)
    if PRESUMED:
        correction = tl.where(valid == 0, 1.0, N / valid)
        tl.store(partial + (P if SINGLE else 2 * P), correction)
        found *= correction
    tl.store(value, found)
