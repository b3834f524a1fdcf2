"""Triton's decorator with a type, and the arithmetic that the kernels share.

A tile is [R, T, K]: R rows, and T x K columns of which K neighbours belong to one thread, so that maxima and sums over
K cost no exchange between threads. The columns are walked in steps of T K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import triton
import triton.language as tl


class Kernel(Protocol):
    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]: ...
    def __call__(self, *args: Any) -> Any: ...


# Compiled once for each combination of types and constants, whatever the numbers: launch.py relies on it.
jit: Callable[[Callable[..., Any]], Kernel] = triton.jit(
    do_not_specialize=["N", "C", "P", "stride", "gradient_stride", "incoming_stride", "ignore", "parts", "span"],
    do_not_specialize_on_alignment=["target", "incoming", "class_weight", "sample_weight"],
)

LOG2E = tl.constexpr(1.4426950408889634)
# Below every logit: a maximum that is still here has met no admissible class.
NOTHING = tl.constexpr(-3.4028234663852886e38)


@jit
def exp_below(x: tl.tensor, top: tl.tensor) -> tl.tensor:
    """exp(x - top) in float32; the difference first, so that a common offset costs no digits."""
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
def columns(start: tl.tensor, T: tl.constexpr, K: tl.constexpr) -> tl.tensor:
    return (start + tl.arange(0, T)[:, None] * K + tl.arange(0, K)[None, :])[None]


@jit
def read(at: tl.tensor, live: tl.tensor, j: tl.tensor, C: tl.tensor, CACHE: tl.constexpr) -> tl.tensor:
    """One tile of logits in float32, -inf where there are none."""
    mask = live[:, None, None] & (j < C)
    return tl.load(at[:, None, None] + j, mask=mask, other=-float("inf"), eviction_policy=CACHE).to(tl.float32)


@jit
def without(x: tl.tensor, y: tl.tensor, start: tl.tensor, T: tl.constexpr, K: tl.constexpr) -> tl.tensor:
    """The tile with -inf at the targets; a tile that holds none is spared the comparison."""
    if tl.max(((y >= start) & (y < start + T * K)).to(tl.int32), 0) == 1:
        x = tl.where(columns(start, T, K) == y[:, None, None], -float("inf"), x)
    return x


@jit
def statistics(
    at: tl.tensor, y: tl.tensor, live: tl.tensor, C: tl.tensor,
    R: tl.constexpr, T: tl.constexpr, K: tl.constexpr, CACHE: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Per row, over the classes other than y: the largest logit, and Σ exp(z - largest). One walk over the columns."""
    top = tl.full([R, T], NOTHING, tl.float32)
    rest = tl.zeros([R, T], tl.float32)
    for start in range(0, C, T * K):
        x = without(read(at, live, columns(start, T, K), C, CACHE), y, start, T, K)
        higher = tl.maximum(top, tl.max(x, 2))
        rest = rest * exp_below(top, higher) + tl.sum(exp_below(x, higher[:, :, None]), 2)
        top = higher
    highest = tl.max(top, 1)
    return highest, tl.sum(rest * exp_below(top, highest[:, None]), 1)


@jit
def margin_of(at: tl.tensor, y: tl.tensor, top: tl.tensor, rest: tl.tensor) -> tl.tensor:
    """margin = (z_y - top) - log rest in float64; +inf where there is no class to turn to, NaN for an unknown label."""
    alone = (top == NOTHING) & (rest == rest)  # rest is NaN where a logit is, and that must not pass for nothing
    own = tl.load(at + y, mask=y >= 0, other=float("nan")).to(tl.float64)
    gap = own - top.to(tl.float64)
    return tl.where(alone, float("inf"), gap - tl.log(tl.where(alone, 1.0, rest).to(tl.float64)))
