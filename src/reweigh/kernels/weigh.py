"""What happens to N numbers between the passes: from margins to weights, their normaliser, and the value.

    weigh_rows   margins -> log w and s x taper, and one partial result per program
    settle       partial results -> scale, log scale and the value
    count        1 / Σ s alone, for the single pass under a mean

A partial result is (largest log w, Σ s w relative to it, Σ s, Σ s (-log p)). All sums are taken in a fixed order.
"""

from __future__ import annotations

import triton.language as tl

from reweigh.kernels.language import importance, jit, labels

# Where log p and log q end, so that 0 * log 0 = 0.
FLOOR = tl.constexpr(-1.7976931348623157e308)
LOWEST = tl.constexpr(-1.7976931348623157e300)  # below are powers of 0, as in reweigh.weighting.parameter.is_none
# The families of weightings that a kernel can weigh by itself, as in forms.py.
POWERS, EMPHASIS, BELL = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
# How the value is reduced, as in launch.py.
NONE, MEAN, SUM = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@jit
def log1p(x: tl.tensor) -> tl.tensor:
    """log(1 + x) for 0 <= x <= 1 without losing a small x."""
    y = 1.0 + x
    return tl.where(y == 1.0, x, tl.log(y) * (x / (y - 1.0)))


@jit
def weigh(
    m: tl.tensor, s: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, inner: tl.tensor, taper: tl.tensor,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """log w; s where there is a derivative to give, before and after taper; and the cross entropy s (-log p).

    In float64, but for log(1 + exp(-|m|)), which lies in [0, log 2].
    """
    small = tl.exp(-tl.abs(m))
    bend = log1p(small.to(tl.float32)).to(tl.float64)
    log_p = tl.where(m < 0, m, 0.0) - bend
    log_q = tl.where(m > 0, -m, 0.0) - bend
    # not tl.maximum, which would swallow a NaN
    log_p, log_q = tl.where(log_p < FLOOR, FLOOR, log_p), tl.where(log_q < FLOOR, FLOOR, log_q)
    if FAMILY == POWERS:
        log_w = a * log_p + b * log_q + c
    elif FAMILY == EMPHASIS:
        log_w = b * tl.exp(a * log_p + log_q) + c
    else:
        log_w = b * tl.exp(log_p) * (a + tl.exp(log_q)) + c
    # q = odds / (1 + small), so that q / (q + taper) = odds / (odds + taper (1 + small))
    odds = tl.where(m > 0, small, 1.0)
    if INNER:
        log_w += tl.log(odds / (odds + inner * (1.0 + small)))
    active = tl.where(m == float("inf"), 0.0, s)
    pull = active
    if TAPER:
        pull = active * (odds / (odds + taper * (1.0 + small)))
    return log_w, active, pull, tl.where(s == 0, 0.0, -s * log_p)


@jit
def partial(log_w: tl.tensor, active: tl.tensor, s: tl.tensor, value: tl.tensor) -> tl.tensor:
    """The partial result of some rows; one whose s is 0 does not count, however large its w."""
    counted = tl.where(active == 0, -float("inf"), log_w)
    top = tl.max(counted, 0)
    total = tl.sum(tl.where(counted == -float("inf"), 0.0, active * tl.exp(counted - top)), 0)
    return top, total, tl.sum(s, 0), tl.sum(value, 0)


@jit
def mean_or_sum(mass: tl.tensor, REDUCTION: tl.constexpr) -> tl.tensor:
    """What the sum of the values is multiplied by."""
    return tl.where(REDUCTION == MEAN, 1.0 / tl.where(mass == 0, 1.0, mass), 1.0)


@jit
def scales(
    top: tl.tensor, total: tl.tensor, mass: tl.tensor, BATCH: tl.constexpr, REDUCTION: tl.constexpr
) -> tl.tensor:
    """What the weights are multiplied by, and the logarithm of what else; a batch with nothing in it stays at zero."""
    if BATCH:
        nothing = (total == 0) | ((top < LOWEST) & (total == total))  # a NaN must show
        scale, log_scale = mass * 0.0 + 1.0, tl.where(nothing, 0.0, -(top + tl.log(total)))
    else:
        scale, log_scale = mean_or_sum(mass, REDUCTION), mass * 0.0
    return scale, log_scale


@jit
def conclude(
    settled: tl.tensor, values: tl.tensor, top: tl.tensor, total: tl.tensor, mass: tl.tensor, surprise: tl.tensor,
    BATCH: tl.constexpr, REDUCTION: tl.constexpr,
) -> None:  # fmt: skip
    """scale, log scale and the value from the whole batch's result."""
    scale, log_scale = scales(top, total, mass, BATCH, REDUCTION)
    if REDUCTION != NONE:
        tl.store(values, (surprise * mean_or_sum(mass, REDUCTION)).to(tl.float32))
    tl.store(settled, scale)
    tl.store(settled + 1, log_scale)


@jit
def weigh_rows(
    book: tl.tensor, target: tl.tensor, values: tl.tensor, settled: tl.tensor, class_weight: tl.tensor,
    sample_weight: tl.tensor, N: tl.int32, C: tl.int32, ignore: tl.int64,
    a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64, taper: tl.float64,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr, BATCH: tl.constexpr, REDUCTION: tl.constexpr,
    ALONE: tl.constexpr, B: tl.constexpr,
) -> None:  # fmt: skip
    """Weigh B rows; a program that is ALONE settles, too. `settled` is scale, log scale, and the partial results."""
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    y, live = labels(target, i, N, C, ignore)
    s = importance(y, i, live, class_weight, sample_weight)
    m = tl.load(book + i, mask=i < N, other=0.0)
    log_w, active, pull, value = weigh(m, s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    tl.store(book + 3 * N + i, log_w, mask=i < N)
    tl.store(book + 4 * N + i, pull, mask=i < N)
    if REDUCTION == NONE:
        tl.store(values + i, value.to(tl.float32), mask=i < N)
    top, total, mass, surprise = partial(log_w, active, s, value)
    if ALONE:
        conclude(settled, values, top, total, mass, surprise, BATCH, REDUCTION)
    else:
        at = settled + 2 + tl.program_id(0) * 4
        tl.store(at, top)
        tl.store(at + 1, total)
        tl.store(at + 2, mass)
        tl.store(at + 3, surprise)


@jit
def settle(
    settled: tl.tensor, values: tl.tensor, P: tl.int32,
    BATCH: tl.constexpr, REDUCTION: tl.constexpr, B: tl.constexpr,
) -> None:  # fmt: skip
    """One program: merge the partial results of P others."""
    top = tl.full([B], -float("inf"), tl.float64)
    total, mass, surprise = tl.zeros([B], tl.float64), tl.zeros([B], tl.float64), tl.zeros([B], tl.float64)
    for start in range(0, P, B):
        k = start + tl.arange(0, B)
        at, inside = settled + 2 + k * 4, k < P
        new = tl.load(at, mask=inside, other=-float("inf"))
        higher = tl.maximum(top, new)
        finite = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - finite) + tl.load(at + 1, mask=inside, other=0.0) * tl.exp(new - finite)
        top = higher
        mass += tl.load(at + 2, mask=inside, other=0.0)
        surprise += tl.load(at + 3, mask=inside, other=0.0)
    highest = tl.max(top, 0)
    total = tl.sum(tl.where(total == 0, 0.0, total * tl.exp(top - highest)), 0)
    conclude(settled, values, highest, total, tl.sum(mass, 0), tl.sum(surprise, 0), BATCH, REDUCTION)


@jit
def total_importance(
    target: tl.tensor, class_weight: tl.tensor, sample_weight: tl.tensor,
    N: tl.tensor, C: tl.tensor, ignore: tl.tensor, B: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Σ s, B rows at a time."""
    mass = tl.zeros([B], tl.float64)
    for start in range(0, N, B):
        i = start + tl.arange(0, B)
        y, live = labels(target, i, N, C, ignore)
        mass += importance(y, i, live, class_weight, sample_weight)
    return tl.sum(mass, 0)


@jit
def count(
    settled: tl.tensor, target: tl.tensor, class_weight: tl.tensor, sample_weight: tl.tensor,
    N: tl.int32, C: tl.int32, ignore: tl.int64, B: tl.constexpr,
) -> None:  # fmt: skip
    """One program: 1 / Σ s."""
    total = total_importance(target, class_weight, sample_weight, N, C, ignore, B)
    tl.store(settled, 1.0 / tl.where(total == 0, 1.0, total))
