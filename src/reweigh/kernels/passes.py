"""The passes over the logits.

    measure   reads the logits, writes N margins and what the second pass needs of each row
    emit      reads the logits, writes the gradient  c_i (softmax over the others - onehot_y) / 2
    fused     both in one, for weightings that a kernel can weigh by itself
    at_once   everything for a batch that is one tile: a single launch
    rescale   multiplies a finished gradient by the incoming one, and leaves at once where that is 1

`book` is float64, N numbers a line: margin, top, rest, log w, s x taper. Row offsets are int64. Every row of a gradient
is written, an ignored one with zeros. Rows begin and end at multiples of K: `// K * K` changes nothing, and tells the
compiler so.
"""

from __future__ import annotations

import triton.language as tl

from reweigh.kernels.language import (
    NOTHING,
    columns,
    exp_below,
    importance,
    jit,
    labels,
    margin_of,
    read,
    statistics,
    without,
)
from reweigh.kernels.weigh import NONE, mean_or_sum, partial, scales, weigh


@jit
def measure(
    logits: tl.tensor, target: tl.tensor, book: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64,
    ignore: tl.int64, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
) -> None:  # fmt: skip
    """Pass one."""
    C, stride = C // K * K, stride // K * K
    i = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    y, live = labels(target, i, N, C, ignore)
    at = logits + i * stride
    top, rest = statistics(at, y, live, C, R, T, K, "")
    tl.store(book + i, margin_of(at, y, top, rest), mask=i < N)
    tl.store(book + N + i, top.to(tl.float64), mask=i < N)
    tl.store(book + 2 * N + i, rest.to(tl.float64), mask=i < N)


@jit
def write(
    to: tl.tensor, j: tl.tensor, e: tl.tensor, up: tl.tensor, inside: tl.tensor, C: tl.tensor, CACHE: tl.constexpr
) -> None:
    """One tile of the gradient, targets apart: e = exp(z - top) times `up`."""
    d = (e * up[:, None, None]).to(to.dtype.element_ty)
    tl.store(to[:, None, None] + j, d, mask=inside[:, None, None] & (j < C), eviction_policy=CACHE)


@jit
def write_targets(to: tl.tensor, y: tl.tensor, here: tl.tensor, down: tl.tensor) -> None:
    """The targets' entries, after (the barrier) whatever the tiles have put there."""
    tl.debug_barrier()
    tl.store(to + y, down.to(to.dtype.element_ty), mask=here)


@jit
def emit(
    logits: tl.tensor, target: tl.tensor, gradient: tl.tensor, book: tl.tensor, settled: tl.tensor,
    incoming: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, gradient_stride: tl.int64,
    incoming_stride: tl.int64, ignore: tl.int64, parts: tl.int32, span: tl.int32,
    R: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
) -> None:  # fmt: skip
    """Pass two; a row is the work of `parts` programs, `span` columns (a multiple of T K) each.

    c is `incoming`, times scale x s x taper x exp(log w + log scale) where the weights are in the book (`settled`).
    From the last row to the first: the caches still hold what pass one read last.
    """
    C, stride, gradient_stride = C // K * K, stride // K * K, gradient_stride // K * K
    pid = tl.num_programs(0) - 1 - tl.program_id(0)
    i = (pid // parts).to(tl.int64) * R + tl.arange(0, R)
    y, live = labels(target, i, N, C, ignore)
    c = tl.load(incoming + i * incoming_stride, mask=live, other=0.0).to(tl.float64)
    if settled is not None:
        s = tl.load(book + 4 * N + i, mask=live, other=0.0)
        w = tl.exp(tl.load(book + 3 * N + i, mask=live, other=0.0) + tl.load(settled + 1))
        c *= tl.where(s == 0, 0.0, s * w) * tl.load(settled)
    live &= c != 0
    top = tl.load(book + N + i, mask=live, other=0.0).to(tl.float32)
    up = (0.5 * c / tl.load(book + 2 * N + i, mask=live, other=1.0)).to(tl.float32)
    at, to = logits + i * stride, gradient + i * gradient_stride
    first = (pid % parts) * span // K * K
    for start in range(first, min(first + span, C), T * K):
        j = columns(start, T, K)
        write(to, j, exp_below(read(at, live, j, C, ""), top[:, None, None]), up, i < N, C, "")
    write_targets(to, y, (y >= first) & (y < first + span), (-0.5 * c).to(tl.float32))


@jit
def whole_rows(
    at: tl.tensor, y: tl.tensor, live: tl.tensor, j: tl.tensor, C: tl.tensor, T: tl.constexpr, K: tl.constexpr
) -> tl.tensor:
    """`statistics` of rows that are one tile, and exp(z - largest), which stays in registers."""
    x = without(read(at, live, j, C, ""), y, 0, T, K)
    top = tl.maximum(tl.max(tl.max(x, 2), 1), NOTHING)
    e = exp_below(x, top[:, None, None])
    return e, top, tl.sum(tl.sum(e, 2), 1)


@jit
def fused(
    logits: tl.tensor, target: tl.tensor, gradient: tl.tensor, values: tl.tensor, class_weight: tl.tensor,
    sample_weight: tl.tensor, settled: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64,
    gradient_stride: tl.int64, ignore: tl.int64, a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64,
    taper: tl.float64, FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr,
    R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr,
) -> None:  # fmt: skip
    """Both passes, row by row: the second reading is served by registers (WHOLE: a row is one tile) or the caches."""
    C, stride, gradient_stride = C // K * K, stride // K * K, gradient_stride // K * K
    i = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    y, live = labels(target, i, N, C, ignore)
    at, to = logits + i * stride, gradient + i * gradient_stride
    if WHOLE:
        j = columns(0, T, K)
        e, top, rest = whole_rows(at, y, live, j, C, T, K)
    else:
        top, rest = statistics(at, y, live, C, R, T, K, "evict_last")
    s = importance(y, i, live, class_weight, sample_weight)
    if settled is not None:
        s *= tl.load(settled)
    log_w, _, pull, value = weigh(margin_of(at, y, top, rest), s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    tl.store(values + i, value.to(tl.float32), mask=i < N)
    force = tl.where(pull == 0, 0.0, pull * tl.exp(log_w))
    live &= force != 0
    up = tl.where(live, 0.5 * force / rest.to(tl.float64), 0.0).to(tl.float32)
    if WHOLE:
        write(to, j, e, up, i < N, C, "")
    else:
        # backwards: what was read last is nearest
        for done in range(0, C, T * K):
            j = columns((C - 1) // (T * K) * (T * K) - done, T, K)
            e = exp_below(read(at, live, j, C, "evict_first"), top[:, None, None])
            write(to, j, e, up, i < N, C, "evict_first")
    write_targets(to, y, y >= 0, (-0.5 * force).to(tl.float32))


@jit
def at_once(
    logits: tl.tensor, target: tl.tensor, gradient: tl.tensor, values: tl.tensor, class_weight: tl.tensor,
    sample_weight: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, gradient_stride: tl.int64, ignore: tl.int64,
    a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64, taper: tl.float64,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr, BATCH: tl.constexpr, REDUCTION: tl.constexpr,
    R: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
) -> None:  # fmt: skip
    """The whole batch in one program, from the logits to the value and the gradient for an incoming one of 1."""
    C, stride, gradient_stride = C // K * K, stride // K * K, gradient_stride // K * K
    i = tl.arange(0, R).to(tl.int64)
    y, live = labels(target, i, N, C, ignore)
    at, to = logits + i * stride, gradient + i * gradient_stride
    j = columns(0, T, K)
    e, top, rest = whole_rows(at, y, live, j, C, T, K)
    s = importance(y, i, live, class_weight, sample_weight)
    log_w, active, pull, value = weigh(margin_of(at, y, top, rest), s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    highest, total, mass, surprise = partial(log_w, active, s, value)
    scale, log_scale = scales(highest, total, mass, BATCH, REDUCTION)
    if REDUCTION == NONE:
        tl.store(values + i, value.to(tl.float32), mask=i < N)
    else:
        tl.store(values, (surprise * mean_or_sum(mass, REDUCTION)).to(tl.float32))
    force = tl.where(pull == 0, 0.0, pull * tl.exp(log_w + log_scale)) * scale
    live &= force != 0
    up = tl.where(live, 0.5 * force / rest.to(tl.float64), 0.0).to(tl.float32)
    write(to, j, e, up, i < N, C, "")
    write_targets(to, y, y >= 0, (-0.5 * force).to(tl.float32))


@jit
def rescale(
    gradient: tl.tensor, incoming: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, incoming_stride: tl.int64,
    T: tl.constexpr, K: tl.constexpr,
) -> None:  # fmt: skip
    C, stride = C // K * K, stride // K * K
    for row in range(tl.program_id(0), N, tl.num_programs(0)):
        g = tl.load(incoming + row * incoming_stride).to(tl.float32)
        at = gradient + row * stride
        for start in range(0, tl.where(g == 1.0, 0, C), T * K):
            j = columns(start, T, K)
            d = tl.load(at + j, mask=j < C, other=0.0).to(tl.float32) * g
            tl.store(at + j, d.to(gradient.dtype.element_ty), mask=j < C)
