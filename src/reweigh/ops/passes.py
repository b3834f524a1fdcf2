"""The passes over the logits.

    measure   reads the logits, writes N margins and what the second pass needs of each row
    emit      reads the logits, writes the gradient  c_i (softmax over the others - onehot_y) / 2
    fused     both in one, for weightings that a kernel can weigh by itself
    at_once   everything for a batch that is one tile: a single launch
    rescale   multiplies a finished gradient by the incoming one, and leaves at once where that is 1

`book` is float64, N numbers a line: margin, top, rest; share, or log w and s x taper. Row offsets are int64. Every row
of a gradient is written, an ignored one with zeros. Unless they are SHIFTED, rows begin and end at multiples of K:
`// K * K` changes nothing, and tells the compiler so.
"""

from __future__ import annotations

import triton.language as tl

from reweigh.ops.arithmetic import exp
from reweigh.ops.language import (
    NOTHING,
    along,
    columns,
    ends,
    exp_below,
    follow,
    importance,
    jit,
    labels,
    own_max,
    own_sum,
    place,
    read,
    statistics,
    wait,
    wide_end,
    within,
)
from reweigh.ops.weigh import IGNORED, NONE, forces, margin_of, own_logit, reduced, totals, weigh

# What pass two multiplies the incoming gradient by: nothing; a row's share; what is left of its share to settle.
PLAIN, SHARED, UNSETTLED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@jit
def whole_rows(x: tl.tensor, y: tl.tensor, live: tl.tensor, j: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    """`statistics` of rows that are one tile, and exp(z - largest), which stays in registers."""
    x = tl.where(along(live) & (j != along(y)), x, -float("inf"))
    top = tl.maximum(tl.max(own_max(x), 1), NOTHING)
    e = exp_below(x, along(top), HALF)
    return e, top, tl.sum(own_sum(e), 1)


@jit
def measure(
    logits: tl.tensor, target: tl.tensor, book: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, ignore: tl.int64,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, SHIFTED: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """Pass one."""
    follow(EARLY)
    HALF: tl.constexpr = logits.dtype.element_ty != tl.float32
    i = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    begin, shift, first, last = place(i, stride, C, K, SHIFTED)
    at, j = logits + begin, columns(0, U, T, K)
    if WHOLE:  # the logits are on their way while the labels are looked at; and will be needed again
        x = read(at, i < N, j, first, last, SHIFTED, "evict_last")
    y, live = labels(target, i, N, C, ignore)
    own = own_logit(at + shift, y)
    if WHOLE:
        _, top, rest = whole_rows(x, y, live, j, HALF)
    else:
        top, rest = statistics(at, y, live, C, shift, first, last, U, R, T, K, SHIFTED, "")
    tl.store(book + i, margin_of(own, top, rest), mask=i < N)
    tl.store(book + N + i, top.to(tl.float64), mask=i < N)
    tl.store(book + 2 * N + i, rest.to(tl.float64), mask=i < N)


@jit
def write(
    to: tl.tensor, j: tl.tensor, e: tl.tensor, up: tl.tensor, inside: tl.tensor, first: tl.tensor, last: tl.tensor,
    SHIFTED: tl.constexpr, CACHE: tl.constexpr,
) -> None:  # fmt: skip
    """One tile of the gradient, targets apart: e = exp(z - top) times `up`."""
    d = (e * along(up)).to(to.dtype.element_ty)
    tl.store(along(to) + j, d, mask=within(inside, j, first, last, SHIFTED), eviction_policy=CACHE)


@jit
def read_and_write(
    at: tl.tensor, to: tl.tensor, j: tl.tensor, top: tl.tensor, up: tl.tensor, live: tl.tensor, inside: tl.tensor,
    first: tl.tensor, last: tl.tensor, SHIFTED: tl.constexpr, CACHE: tl.constexpr,
) -> None:  # fmt: skip
    """One tile of the gradient from the logits."""
    x = read(at, live, j, first, last, SHIFTED, CACHE)
    e = exp_below(x, along(top), at.dtype.element_ty != tl.float32)
    write(to, j, e, up, inside, first, last, SHIFTED, CACHE)


@jit
def write_ends(
    at: tl.tensor, to: tl.tensor, top: tl.tensor, up: tl.tensor, live: tl.tensor, inside: tl.tensor, shift: tl.tensor,
    C: tl.tensor, first: tl.tensor, last: tl.tensor, K: tl.constexpr,
) -> None:  # fmt: skip
    """The gradient at the ends of a shifted row."""
    j, own = ends(shift, C, first, last, K)
    x = tl.load(along(at) + j, mask=along(live) & own, other=-float("inf")).to(tl.float32)
    d = (exp_below(x, along(top), at.dtype.element_ty != tl.float32) * along(up)).to(to.dtype.element_ty)
    tl.store(along(to) + j, d, mask=along(inside) & own)


@jit
def write_targets(to: tl.tensor, y: tl.tensor, here: tl.tensor, down: tl.tensor) -> None:
    """The targets' entries, after (the barrier) whatever the tiles have put there."""
    tl.debug_barrier()
    tl.store(to + y, down.to(to.dtype.element_ty), mask=here)


@jit
def emit(
    logits: tl.tensor, target: tl.tensor, gradient: tl.tensor, book: tl.tensor, settled: tl.tensor,
    incoming: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64, gradient_stride: tl.int64,
    incoming_stride: tl.int64, ignore: tl.int64, parts: tl.int32, span: tl.int32, FORCE: tl.constexpr,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, SHIFTED: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """Pass two; a row is the work of `parts` programs, `span` columns (a multiple of U T K) each.

    c is `incoming`, times (FORCE) the share in the book, or s x taper x w relative to what is settled.
    From the last row to the first: the caches still hold what pass one read last.
    """
    HALF: tl.constexpr = logits.dtype.element_ty != tl.float32
    pid = tl.num_programs(0) - 1 - tl.program_id(0)
    i = (pid // parts).to(tl.int64) * R + tl.arange(0, R)
    begin, shift, first, last = place(i, stride, C, K, SHIFTED)
    at, to, j = logits + begin, gradient + place(i, gradient_stride, C, K, SHIFTED)[0], columns(0, U, T, K)
    if WHOLE:
        x = read(at, i < N, j, first, last, SHIFTED, "")
    y, live = labels(target, i, N, C, ignore)
    if EARLY:
        wait()  # not for logits and labels: pass one had them
    c = tl.load(incoming + i * incoming_stride, mask=live, other=0.0).to(tl.float64)
    if FORCE == SHARED:
        c *= tl.load(book + 3 * N + i, mask=live, other=0.0)
    elif FORCE == UNSETTLED:
        pull = tl.load(book + 4 * N + i, mask=live, other=0.0)
        w = exp(tl.load(book + 3 * N + i, mask=live, other=0.0) - tl.load(settled))
        c *= tl.where(pull == 0, 0.0, pull * w) * tl.load(settled + 1)
    live &= c != 0
    top = tl.load(book + N + i, mask=live, other=0.0).to(tl.float32)
    up = (0.5 * c).to(tl.float32) / tl.load(book + 2 * N + i, mask=live, other=1.0).to(tl.float32)
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
    sample_weight: tl.tensor, settled: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64,
    gradient_stride: tl.int64, ignore: tl.int64, a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64,
    taper: tl.float64, share: tl.float64, FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr,
    REDUCTION: tl.constexpr,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, SHIFTED: tl.constexpr,
    EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """Both passes, row by row: the second reading is served by registers (WHOLE: a row is one tile) or the caches.

    A row counts for `share`, or under a mean with its weights for s times what is `settled`, 1 / Σ s. `values` are one
    a row; or, where programs have several and the value is reduced, one and how many rows took part for each program.
    """
    HALF: tl.constexpr = logits.dtype.element_ty != tl.float32
    if settled is None:
        follow(EARLY)
    i = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    begin, shift, first, last = place(i, stride, C, K, SHIFTED)
    at, to, j = logits + begin, gradient + place(i, gradient_stride, C, K, SHIFTED)[0], columns(0, U, T, K)
    if WHOLE:
        x = read(at, i < N, j, first, last, SHIFTED, "evict_first")
    y, live = labels(target, i, N, C, ignore)
    own = own_logit(at + shift, y)
    s = importance(y, i, live, class_weight, sample_weight) * share
    if WHOLE:
        e, top, rest = whole_rows(x, y, live, j, HALF)
    else:
        top, rest = statistics(at, y, live, C, shift, first, last, U, R, T, K, SHIFTED, "evict_last")
    if settled is not None:  # by the kernel right before: there was time to count
        follow(EARLY)
        s *= tl.load(settled)
    log_w, _, pull, value = weigh(margin_of(own, top, rest), s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    if REDUCTION == NONE:
        tl.store(values + i, value.to(tl.float32), mask=i < N)
    elif R == 1:
        tl.store(values + i, tl.where(live, value.to(tl.float32), IGNORED), mask=i < N)
    else:
        part = values + tl.program_id(0)
        tl.store(part, tl.sum(value, 0).to(tl.float32))
        tl.store(part + tl.num_programs(0), tl.sum(live.to(tl.float32), 0))
    force = tl.where(pull == 0, 0.0, pull * exp(log_w))
    live &= force != 0
    up = tl.where(live, (0.5 * force).to(tl.float32) / rest, 0.0)
    if WHOLE:
        write(to, j, e, up, i < N, first, last, SHIFTED, "evict_last")
    else:
        # backwards: what was read last is nearest
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
    a: tl.float64, b: tl.float64, c: tl.float64, inner: tl.float64, taper: tl.float64,
    FAMILY: tl.constexpr, INNER: tl.constexpr, TAPER: tl.constexpr, BOUNDED: tl.constexpr, REDUCTION: tl.constexpr,
    BATCH: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """The whole batch in one program, from the logits to the value and the gradient for an incoming one of 1."""
    follow(EARLY)
    i = tl.arange(0, R).to(tl.int64)
    begin, _, first, last = place(i, stride, C, K, False)
    at, to, j = logits + begin, gradient + place(i, gradient_stride, C, K, False)[0], columns(0, 1, T, K)
    x = read(at, i < N, j, first, last, False, "")
    y, live = labels(target, i, N, C, ignore)
    # a thread has whole rows, or few share one: this is faster than to ask the memory again
    own = tl.sum(own_sum(tl.where(j == along(y), x, 0.0)), 1).to(tl.float64)
    own = tl.where(y >= 0, own, float("nan"))
    s = importance(y, i, live, class_weight, sample_weight)
    e, top, rest = whole_rows(x, y, live, j, logits.dtype.element_ty != tl.float32)
    log_w, active, pull, value = weigh(margin_of(own, top, rest), s, a, b, c, inner, taper, FAMILY, INNER, TAPER)
    w, top_w, total, mass, surprise = totals(log_w, active, s, value, BATCH, BOUNDED)
    force = forces(pull, w, top_w, total, mass, BATCH, REDUCTION)
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
    gradient: tl.tensor, incoming: tl.tensor, correction: tl.tensor, N: tl.int32, C: tl.int32, stride: tl.int64,
    incoming_stride: tl.int64, T: tl.constexpr, K: tl.constexpr, EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """gradient *= incoming x correction: nothing is left to do where one number, 1, stands for all rows."""
    follow(EARLY)
    C, stride = C // K * K, stride // K * K
    factor = 1.0
    if correction is not None:
        factor = tl.load(correction)
    same = (tl.load(incoming).to(tl.float32) * factor == 1.0) & (incoming_stride == 0)
    for row in range(tl.program_id(0), tl.where(same, 0, N), tl.num_programs(0)):
        g = tl.load(incoming + row * incoming_stride).to(tl.float32) * factor
        at = gradient + row * stride
        for start in range(0, tl.where(g == 1.0, 0, C), T * K):
            j = columns(start, 1, T, K)
            d = tl.load(at + j, mask=j < C, other=0.0).to(tl.float32) * g
            tl.store(at + j, d.to(gradient.dtype.element_ty), mask=j < C)
