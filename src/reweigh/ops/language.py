"""Triton's decorator with a type, and the arithmetic that the kernels share.

A tile is [R, T, U, K]: R rows, and U x T x K columns of which U times K neighbours belong to one of T threads, so that
maxima and sums over U and K cost no exchange between threads. The columns are walked in steps of U T K, and what is
left in one of T K where that is enough.

Rows whose length is no multiple of 16 bytes begin anywhere in them. Of such a row (SHIFTED) the 16 bytes at either end
are read apart, number by number, and what is between them like any other row. Its columns are counted from the 128
bytes that it begins in: memory comes in lines of so many, and a warp that reads or writes parts of lines waits for more
of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import triton
import triton.language as tl


class Kernel(Protocol):
    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]: ...
    def __call__(self, *args: Any) -> Any: ...


# Compiled once for each combination of types and constants, whatever the numbers: launch.py relies on it. Tensors that
# hold one number a row are read and written number by number, all alike: Triton 3.3 to 3.6 cannot always compile
# `values` that begin at 16 bytes beside weights that need not.
jit: Callable[[Callable[..., Any]], Kernel] = triton.jit(
    do_not_specialize=["N", "C", "P", "stride", "gradient_stride", "incoming_stride", "ignore", "parts", "span"],
    do_not_specialize_on_alignment=["target", "incoming", "class_weight", "sample_weight", "values"],
)

LOG2E = tl.constexpr(1.4426950408889634)
# Below every logit: a maximum that is still here has met no admissible class.
NOTHING = tl.constexpr(-3.4028234663852886e38)
# Times 16 bytes: what memory is read and written by.
LINE = tl.constexpr(8)


@jit
def wait() -> None:
    """Wait until the kernel before is over. Triton has this, too, but not so that its version 3.4 could compile it."""
    tl.inline_asm_elementwise("griddepcontrol.wait; // dummy $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@jit
def follow(EARLY: tl.constexpr) -> None:
    """Wait for the kernel before, if this one was launched EARLY; then let the next one get ready.

    In this order: whoever is launched early knows that all is over but the kernel right before, and can read what came
    earlier without waiting.
    """
    if EARLY:
        wait()
        tl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; // dummy $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@jit
def exp_below(x: tl.tensor, top: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    """exp(x - top) in float32; the difference first, so that a common offset costs no digits.

    For numbers of half precision a product and a sum in one instruction: their offsets have no such digits. Whatever
    is off, is off by the same factor for a whole row.
    """
    if HALF:
        return tl.exp2(tl.fma(x, tl.full([], LOG2E, tl.float32), -tl.maximum(top * LOG2E, NOTHING)))
    return tl.exp2((x - top) * LOG2E)


@jit
def labels(target: tl.tensor, i: tl.tensor, N: tl.tensor, C: tl.tensor, ignore: tl.tensor) -> tl.tensor:
    """The labels of rows i, -1 for one that is ignored or unknown, and whether a row takes part."""
    y = tl.load(target + i, mask=i < N, other=ignore).to(tl.int64)
    live = (i < N) & (y != ignore)
    return tl.where(live & (y >= 0) & (y < C), y, -1).to(tl.int32), live


@jit
def importance(
    y: tl.tensor, i: tl.tensor, live: tl.tensor, class_weight: tl.tensor, sample_weight: tl.tensor
) -> tl.tensor:
    """s = class weight x sample weight x valid, in float64."""
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
    """Where rows i begin, or the line they begin in; how much later they do; first and end of the columns to walk."""
    if SHIFTED:  # one row
        offset = i * stride
        start = offset // (LINE * K) * (LINE * K)
        shift = tl.max((offset - start).to(tl.int32), 0)
        return start, shift, shift // K * K + K, (shift + C) // K * K
    return i * (stride // K * K), 0, 0, C // K * K


@jit
def ends(shift: tl.tensor, C: tl.tensor, first: tl.tensor, last: tl.tensor, K: tl.constexpr) -> tl.tensor:
    """The columns of a shifted row in the 16 bytes before and after those to walk, and which of them are its own."""
    k = tl.arange(0, 2 * K)[None, None, None, :]
    j = tl.where(k < K, first + k - K, last + k - K)
    return j, (j >= shift) & (j < shift + C)


@jit
def along(rows: tl.tensor) -> tl.tensor:
    """Numbers of rows, beside a tile."""
    return rows[:, None, None, None]


@jit
def own_max(x: tl.tensor) -> tl.tensor:
    """[R, T]: the largest number of each thread."""
    return tl.max(tl.max(x, 3), 2)


@jit
def own_sum(x: tl.tensor) -> tl.tensor:
    """[R, T]: each thread's sum."""
    return tl.sum(tl.sum(x, 3), 2)


@jit
def within(rows: tl.tensor, j: tl.tensor, first: tl.tensor, last: tl.tensor, SHIFTED: tl.constexpr) -> tl.tensor:
    """Which entries of a tile are there."""
    if SHIFTED:
        return along(rows) & (j >= first) & (j < last)
    return along(rows) & (j < last)


@jit
def read(
    at: tl.tensor, live: tl.tensor, j: tl.tensor, first: tl.tensor, last: tl.tensor, SHIFTED: tl.constexpr,
    CACHE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """One tile of logits in float32, -inf where there are none."""
    mask = within(live, j, first, last, SHIFTED)
    return tl.load(along(at) + j, mask=mask, other=-float("inf"), eviction_policy=CACHE).to(tl.float32)


@jit
def without(
    x: tl.tensor, y: tl.tensor, start: tl.tensor, U: tl.constexpr, T: tl.constexpr, K: tl.constexpr
) -> tl.tensor:
    """The tile with -inf at the targets; a tile that holds none is spared the comparison."""
    if tl.max(((y >= start) & (y < start + U * T * K)).to(tl.int32), 0) == 1:
        x = tl.where(columns(start, U, T, K) == along(y), -float("inf"), x)
    return x


@jit
def add(top: tl.tensor, rest: tl.tensor, x: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    """The largest logit and the sum of each thread, with a tile more."""
    higher = tl.maximum(top, own_max(x))
    return higher, rest * exp_below(top, higher, HALF) + own_sum(exp_below(x, higher[:, :, None, None], HALF))


@jit
def wide_end(first: tl.tensor, last: tl.tensor, U: tl.constexpr, T: tl.constexpr, K: tl.constexpr) -> tl.tensor:
    """Where the wide steps of a walk end: before `last` if one narrow step does the rest."""
    return first + (last - first + (U - 1) * T * K - 1) // (U * T * K) * (U * T * K)


@jit
def statistics(
    at: tl.tensor, y: tl.tensor, live: tl.tensor, C: tl.tensor, shift: tl.tensor, first: tl.tensor, last: tl.tensor,
    U: tl.constexpr, R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, SHIFTED: tl.constexpr, CACHE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Per row, over the classes other than y: the largest logit, and Σ exp(z - largest). One walk over the columns."""
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
