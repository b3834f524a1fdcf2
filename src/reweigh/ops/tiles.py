"""How the work is cut into tiles: R rows by U x T x K columns for a program. The numbers were measured on an H200."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

# Rows of up to so many classes are one tile, longer ones are walked.
SHORT = 4096
# Up to so many classes, the single pass keeps a float32 row in registers between its two halves.
KEPT = 16384
# Times 16 bytes, as in language.py: what memory is read and written by.
LINE = 8
# Of one step along a row: warps, and how many loads of 16 bytes each thread does for sums of their own and for one sum.
WALK = {
    "measure": (4, 1, 4),
    "emit": (16, 1, 2),
    "fused": (8, 4, 1),
    "fused middle": (8, 1, 8),
    "fused long": (16, 4, 1),
    "fused longest": (32, 4, 1),
}
# The single pass reads a row twice, and the longer it is, the fewer programs may be at work for it to be in the cache
# still. A row of more bytes than these is walked so:
LONG = {"fused middle": 72 * 1024, "fused long": 112 * 1024, "fused longest": 384 * 1024}


class Layout(NamedTuple):
    """What of the logits (N, C), of their gradient and of the tensors beside them decides how kernels are launched.

    `K` neighbours, of as many as go into 16 bytes, begin at a multiple of as many in every row; and whether, if these
    are fewer, all rows begin alike somewhere in 16 bytes. `kinds` are the types of all tensors.
    """

    place: int | None
    kinds: tuple[torch.dtype | None, ...]
    n: int
    c: int
    stride: int
    out_stride: int
    itemsize: int
    K: int
    alike: bool


def layout(logits: Tensor, inplace: bool, *others: Tensor | None) -> Layout:
    """That of logits, whose gradient takes their place or is contiguous and new."""
    (n, c), stride, itemsize = logits.shape, logits.stride(0), logits.element_size()
    most, begin = 16 // itemsize, logits.data_ptr() // itemsize
    out_stride = stride if inplace else c
    bits = c | most | stride | begin
    alike = (begin | (out_stride - stride)) % most == 0
    kinds = (logits.dtype, *[None if x is None else x.dtype for x in others])
    # the largest power of two that divides them all
    return Layout(logits.device.index, kinds, n, c, stride, out_stride, itemsize, bits & -bits, alike)


class Tile(NamedTuple):
    """R rows by U x T x K columns, for so many warps; and whether rows begin anywhere, at no multiple of K."""

    U: int
    R: int
    T: int
    K: int
    warps: int
    shifted: bool = False

    def constants(self, c: int) -> tuple[int, ...]:
        """What a kernel is compiled for."""
        return self.U, self.R, self.T, self.K, c <= self.step and not self.shifted, self.shifted

    @property
    def late(self) -> int:
        """How many columns after the line that it begins in a shifted row may begin."""
        return LINE * self.K if self.shifted else 0

    @property
    def step(self) -> int:
        """Columns of a row that are read at once."""
        return self.U * self.T * self.K


@lru_cache(maxsize=1024)
def tile(work: str, c: int, itemsize: int, K: int, alike: bool) -> Tile:
    """The tile for rows of a layout: as many neighbours to a thread as go into 16 bytes."""
    width, most = power_of_two(c), 16 // itemsize
    if width <= SHORT:
        R = min(max(1, 1024 // width), 64)
        return Tile(1, R, width // K, K, 2 if R == 1 and width <= 1024 else 4)
    if work == "fused" and itemsize == 4 and width <= KEPT:
        return Tile(1, 1, width // K, K, min(16, width // 1024))
    if work == "fused":
        work = [work, *(name for name, size in LONG.items() if c * itemsize > size)][-1]
    warps, apart, together = WALK[work]
    if alike and most > K:
        return Tile(together, 1, 32 * warps * apart, most, warps, shifted=True)
    return Tile(together, 1, 32 * warps * apart * most // K, K, warps)


def batch_tile(at: Layout) -> tuple[int, int, int, int]:
    """All rows and all columns; and warps."""
    R, width = power_of_two(at.n), power_of_two(at.c)
    return R, width // at.K, at.K, min(8, max(4, R * width // 512))


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def cdiv(a: int, b: int) -> int:
    return -(-a // b)
