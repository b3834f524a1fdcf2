"""The kernels as operators of torch: tiles, grids, and what is launched for which batch.

The operators have no autograd of their own. They are known to torch.compile by their fakes, and to `vmap` by loops.
How the work is cut into tiles was measured on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reweigh.ops import kernels
from reweigh.weightings.base import BELL, EMPHASIS

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
# What pass two multiplies the directions by, as in kernels.py.
GIVEN, SHARED, UNNORMALISED = 0, 1, 2
# A label to ignore that no label is.
NO_INDEX = -(2**31)
# Up to so many logits, rows and columns rounded up to powers of two, one program has the batch, in a single launch.
AT_ONCE = 2**15
# Of log w: exp of twice as much is still a number in float64.
BOUND = 300.0
# So many rows are weighed by one program, which needs no second one to merge partial results.
ROWS_AT_ONCE = 1024
# Programs that keep a large GPU busy: with fewer rows than this, several share a row in pass two.
BUSY = 2048
# Programs that rescale a finished gradient: two for each of a large GPU's multiprocessors.
RESCALING = 264
# And how many numbers they take at a time, at most, and at least where rows are cut differently.
WIDEST, EVEN = 8192, 512
# A gradient of up to so many numbers is rescaled by fewer threads.
SMALL_GRADIENT = 2**25
# Rows of up to so many classes are one tile, longer ones are walked.
SHORT = 4096
# Up to so many classes, the single pass keeps a float32 row in registers between its two halves.
KEPT = 16384
# Times 16 bytes, as in kernels.py: what memory is read and written by.
LINE = 8
# Of one step along a row: warps, and how many loads of 16 bytes each thread does for sums of its own and for one sum.
WALK = {
    "measure": (4, 1, 4),
    "emit": (16, 1, 2),
    "fused": (8, 4, 1),
    "fused middle": (8, 1, 8),
    "fused long": (16, 4, 1),
    "fused longest": (32, 4, 1),
}
# The single pass reads a row twice, and the longer it is, the fewer programs may run for it to be in the cache still. A
# row of more bytes than these is walked so:
LONG = {"fused middle": 72 * 1024, "fused long": 112 * 1024, "fused longest": 384 * 1024}


class Layout(NamedTuple):
    """Shape and alignment of logits (N, C) and of the gradient that is written for them.

    `K` neighbours, of as many as go into 16 bytes, begin at a multiple of K in every row; and if these are fewer,
    whether all rows begin at the same place within 16 bytes.
    """

    n: int
    c: int
    stride: int
    out_stride: int
    itemsize: int
    K: int
    same_alignment: bool

    @classmethod
    def of(cls, logits: Tensor, *, in_place: bool = False) -> Layout:
        """Return the layout of logits whose gradient takes their place, or is contiguous and new."""
        (n, c), stride, itemsize = logits.shape, logits.stride(0), logits.element_size()
        most, begin = 16 // itemsize, logits.data_ptr() // itemsize
        out_stride = stride if in_place else c
        bits = c | most | stride | begin
        same = (begin | (out_stride - stride)) % most == 0
        return cls(
            n, c, stride, out_stride, itemsize, bits & -bits, same
        )  # K: the largest power of two that divides all


class Tile(NamedTuple):
    """R rows by U x T x K columns, a number of warps, and whether rows begin anywhere, at no multiple of K."""

    U: int
    R: int
    T: int
    K: int
    warps: int
    shifted: bool = False

    @property
    def step(self) -> int:
        """Columns of a row that are read at a time."""
        return self.U * self.T * self.K

    def constants(self, c: int) -> tuple[int, ...]:
        return self.U, self.R, self.T, self.K, c <= self.step and not self.shifted, self.shifted


def tile(work: str, at: Layout) -> Tile:
    """Return the tile for rows of a layout: as many neighbours to a thread as go into 16 bytes."""
    c, itemsize, K = at.c, at.itemsize, at.K
    width, most = power_of_two(c), 16 // itemsize
    if width <= SHORT:
        R = min(max(1, 1024 // width), 64)
        return Tile(1, R, width // K, K, 2 if R == 1 and width <= 1024 else 4)
    if work == "fused" and itemsize == 4 and width <= KEPT:
        return Tile(1, 1, width // K, K, min(16, width // 1024))
    if work == "fused":
        work = [work, *(name for name, size in LONG.items() if c * itemsize > size)][-1]
    warps, apart, together = WALK[work]
    if at.same_alignment and most > K:
        return Tile(together, 1, 32 * warps * apart, most, warps, shifted=True)
    return Tile(together, 1, 32 * warps * apart * most // K, K, warps)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


@torch.library.custom_op("reweigh::value_and_pull", mutates_args=())
def value_and_pull(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    family: int,
    numbers: list[float],
    batch: bool,
    reduction: str,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """Return the value, and the gradient for an incoming one of 1, times the last of the numbers, the lift."""
    at = Layout.of(logits)
    factors = (
        None if weight is None else weight.contiguous(),
        None if sample_weight is None else sample_weight.contiguous(),
    )
    target, (*weighed, lift) = target.contiguous(), numbers
    _, b, c, inner, taper = weighed
    pull = torch.empty_like(logits, memory_format=torch.contiguous_format)
    value = logits.new_empty((at.n,) if reduction == "none" else (), dtype=torch.float32)
    choices, reduced = (family, inner != 0, taper != 0), REDUCTIONS[reduction]
    # w, between exp(c - |b|) and exp(c + |b|), can be summed in float64 as it is
    bounded = family in (EMPHASIS, BELL) and abs(b) + abs(c) < BOUND and inner == 0
    with _device(logits):
        if power_of_two(at.n) * power_of_two(at.c) <= AT_ONCE:
            R, width = power_of_two(at.n), power_of_two(at.c)
            kernels.at_once[(1,)](
                *(logits, target, pull, value, *factors),
                *(at.n, at.c, at.stride, at.out_stride, ignore_index, *weighed, lift),
                *(*choices, bounded, reduced, batch, R, width // at.K, at.K),
                num_warps=min(8, max(4, R * width // 512)),
            )
        elif batch:
            row_stats = _new_row_stats(logits, 5)
            _measure(at, logits, target, row_stats, ignore_index)
            normaliser = _weigh(
                at, row_stats, target, value, factors, weighed, (*choices, bounded), reduced, ignore_index
            )
            _emit(at, logits, target, pull, row_stats, normaliser, None, ignore_index, lift)
        else:
            _fuse(at, logits, target, pull, value, factors, (*weighed, lift), choices, reduction, ignore_index)
    return value, pull


@torch.library.custom_op("reweigh::measure", mutates_args=())
def measure(logits: Tensor, target: Tensor) -> Tensor:
    """Return margin, top and rest of each row, N numbers a line."""
    row_stats = _new_row_stats(logits, 3)
    with _device(logits):
        _measure(Layout.of(logits, in_place=True), logits, target.contiguous(), row_stats, NO_INDEX)
    return row_stats


@torch.library.custom_op("reweigh::emit", mutates_args=())
def emit(logits: Tensor, target: Tensor, row_stats: Tensor, force: Tensor) -> Tensor:
    """Return force_i (softmax over the others - onehot_y)."""
    pull = torch.empty_like(logits, memory_format=torch.contiguous_format)
    with _device(logits):
        _emit(Layout.of(logits), logits, target.contiguous(), pull, row_stats, None, force.contiguous(), NO_INDEX, 2.0)
    return pull


@torch.library.custom_op("reweigh::emit_", mutates_args={"logits"})
def emit_(logits: Tensor, target: Tensor, row_stats: Tensor, force: Tensor) -> None:
    """Overwrite the logits with force_i (softmax over the others - onehot_y)."""
    at = Layout.of(logits, in_place=True)
    with _device(logits):
        _emit(at, logits, target.contiguous(), logits, row_stats, None, force.contiguous(), NO_INDEX, 2.0)


@torch.library.custom_op("reweigh::rescale_", mutates_args={"rows"})
def rescale_(rows: Tensor, factor: Tensor) -> None:
    """Multiply rows (N, C) by one factor, or one a row; next to nothing is done where it is 1."""
    at = Layout.of(rows, in_place=True)
    n, c, stride, K, factor_stride = at.n, at.c, at.stride, at.K, factor.stride(0) if factor.ndim else 0
    even = n * c & -(n * c)  # the largest power of two that divides it
    if factor_stride == 0 and stride == c and at.same_alignment and even >= EVEN:
        # one number for all, and no gap between rows: cut them differently
        c = stride = min(even, WIDEST)
        n, K = n * at.c // c, 16 // at.itemsize
    width = min(WIDEST, power_of_two(c))
    warps = max(1, min(4 if n * c <= SMALL_GRADIENT else 16, width // 256))
    with _device(rows):
        kernels.rescale[(min(n, RESCALING),)](rows, factor, n, c, stride, factor_stride, width // K, K, num_warps=warps)


@value_and_pull.register_fake
def _(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    family: int,
    numbers: list[float],
    batch: bool,
    reduction: str,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    value = logits.new_empty(logits.shape[:1] if reduction == "none" else (), dtype=torch.float32)
    return value, torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)


@measure.register_fake
def _(logits: Tensor, target: Tensor) -> Tensor:
    return logits.new_empty((3, logits.shape[0]), dtype=torch.float64)


@emit.register_fake
def _(logits: Tensor, target: Tensor, row_stats: Tensor, force: Tensor) -> Tensor:
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)


def _looped(op: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule for `vmap` that calls an operator for one entry of the batch after the other."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        def entry(k: int) -> list[Any]:
            return [x.select(d, k) if isinstance(d, int) else x for x, d in zip(inputs, in_dims, strict=True)]

        found = [op(*entry(k)) for k in range(info.batch_size)]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(torch.stack(each) for each in zip(*found, strict=True)), (0,) * len(found[0])

    return rule


for _op in (value_and_pull, measure, emit):
    _op.register_vmap(_looped(_op))


def _device(x: Tensor) -> AbstractContextManager[Any]:
    return torch.cuda.device(x.device) if x.device.type == "cuda" else nullcontext()


def _new_row_stats(logits: Tensor, lines: int) -> Tensor:
    return logits.new_empty((lines, logits.shape[0]), dtype=torch.float64)


def _measure(at: Layout, logits: Tensor, target: Tensor, row_stats: Tensor, ignore_index: int) -> None:
    chosen = tile("measure", at)
    kernels.measure[(cdiv(at.n, chosen.R),)](
        *(logits, target, row_stats, at.n, at.c, at.stride, ignore_index),
        *chosen.constants(at.c),
        num_warps=chosen.warps,
    )


def _weigh(
    at: Layout,
    row_stats: Tensor,
    target: Tensor,
    value: Tensor,
    factors: tuple[Tensor | None, Tensor | None],
    weighed: list[float],
    choices: tuple[int, ...],
    reduced: int,
    ignore_index: int,
) -> Tensor | None:
    """Weigh all rows over the batch; return top and scale, or None where one program has normalised, too."""
    B = power_of_two(at.n) if at.n <= ROWS_AT_ONCE else 128
    programs = cdiv(at.n, B)
    normaliser = None if programs == 1 else row_stats.new_empty(2 + 4 * programs)
    kernels.weigh_rows[(programs,)](
        *(row_stats, target, value, normaliser, *factors, at.n, at.c, ignore_index, *weighed),
        *(*choices, reduced, programs == 1, B),
        num_warps=max(4, B // 64),
    )
    if normaliser is not None:
        wide = min(256, power_of_two(programs))
        kernels.merge[(1,)](normaliser, value, programs, reduced, wide, num_warps=4)
    return normaliser


def _emit(
    at: Layout,
    logits: Tensor,
    target: Tensor,
    to: Tensor,
    row_stats: Tensor,
    normaliser: Tensor | None,
    force: Tensor | None,
    ignore_index: int,
    lift: float,
) -> None:
    chosen = tile("emit", at)
    reach = at.c + (LINE * chosen.K if chosen.shifted else 0)  # from where columns are counted
    rows, steps = cdiv(at.n, chosen.R), cdiv(reach, chosen.step)
    span = cdiv(steps, min(steps, cdiv(BUSY, rows))) * chosen.step
    parts = cdiv(reach, span)
    kind = GIVEN if force is not None else SHARED if normaliser is None else UNNORMALISED
    kernels.emit[(rows * parts,)](
        *(logits, target, to, row_stats, normaliser, force, at.n, at.c, at.stride, at.out_stride, ignore_index),
        *(parts, span, lift, kind, *chosen.constants(at.c)),
        num_warps=chosen.warps,
    )


def _fuse(
    at: Layout,
    logits: Tensor,
    target: Tensor,
    pull: Tensor,
    value: Tensor,
    factors: tuple[Tensor | None, Tensor | None],
    weighed: tuple[float, ...],
    choices: tuple[int, ...],
    reduction: str,
    ignore_index: int,
) -> None:
    """Read the logits and write the gradient in one pass."""
    normaliser = None
    if reduction == "mean":
        normaliser = logits.new_empty(1, dtype=torch.float64)
        block = min(power_of_two(at.n), 8192)
        kernels.count[(1,)](normaliser, target, *factors, at.n, at.c, ignore_index, block, num_warps=16)
    chosen = tile("fused", at)
    programs = cdiv(at.n, chosen.R)
    values = value if reduction == "none" else logits.new_empty(programs, dtype=torch.float32)
    kernels.fused[(programs,)](
        *(logits, target, pull, values, *factors, normaliser),
        *(at.n, at.c, at.stride, at.out_stride, ignore_index, *weighed),
        *(*choices, REDUCTIONS[reduction], *chosen.constants(at.c)),
        num_warps=chosen.warps,
    )
    if reduction != "none":
        torch.sum(values, 0, out=value)
