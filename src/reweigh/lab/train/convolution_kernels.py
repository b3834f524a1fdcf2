"""The Triton kernels of `reweigh.lab.train.convolution`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

jit: Callable[[Callable[..., Any]], Any] = triton.jit


@jit
def convolve(
    x: tl.tensor,
    w: tl.tensor,
    y: tl.tensor,
    M: tl.tensor,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    TRANSPOSED: tl.constexpr,
) -> None:
    """Compute y[m] = Σ over taps of x[m + tap] w[tap] for a block of pixels; transposed, the gradient of x."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = (m % (H * W)) // W
    column = m % W
    c = tl.arange(0, C)
    n = tl.arange(0, C)
    total = tl.zeros((BLOCK, C), tl.float32)
    for tap in tl.static_range(9):
        down = tap // 3 - 1
        right = tap % 3 - 1
        inside = (m < M) & (row + down >= 0) & (row + down < H) & (column + right >= 0) & (column + right < W)
        a = tl.load(x + (m + down * W + right)[:, None] * C + c[None, :], mask=inside[:, None], other=0.0)
        if TRANSPOSED:
            b = tl.load(w + c[:, None] * 9 * C + (8 - tap) * C + n[None, :])
        else:
            b = tl.load(w + n[None, :] * 9 * C + tap * C + c[:, None])
        total = tl.dot(a, b.to(tl.bfloat16), total)
    tl.store(y + m[:, None] * C + n[None, :], total.to(tl.bfloat16), mask=(m < M)[:, None])


@jit
def correlate(
    x: tl.tensor,
    g: tl.tensor,
    parts: tl.tensor,
    M: tl.tensor,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
) -> None:
    """Compute parts[p, n, tap, c] = Σ over the pixels of program p of x[m + tap, c] g[m, n] for a row of three taps."""
    p = tl.program_id(0)
    down = tl.program_id(1) - 1
    c = tl.arange(0, C)
    n = tl.arange(0, C)
    left = tl.zeros((C, C), tl.float32)
    middle = tl.zeros((C, C), tl.float32)
    right = tl.zeros((C, C), tl.float32)
    for i in range(STEPS):
        m = (p * STEPS + i) * BLOCK + tl.arange(0, BLOCK)
        row = (m % (H * W)) // W + down
        column = m % W
        inside = (m < M) & (row >= 0) & (row < H)
        gradient = tl.load(g + m[:, None] * C + n[None, :], mask=(m < M)[:, None], other=0.0)
        at = x + (m + down * W)[None, :] * C + c[:, None]
        a = tl.load(at - C, mask=(inside & (column > 0))[None, :], other=0.0)
        left = tl.dot(a, gradient, left)
        a = tl.load(at, mask=inside[None, :], other=0.0)
        middle = tl.dot(a, gradient, middle)
        a = tl.load(at + C, mask=(inside & (column < W - 1))[None, :], other=0.0)
        right = tl.dot(a, gradient, right)
    to = parts + p * 9 * C * C + n[None, :] * 9 * C + (down + 1) * 3 * C + c[:, None]
    tl.store(to, left)
    tl.store(to + C, middle)
    tl.store(to + 2 * C, right)
