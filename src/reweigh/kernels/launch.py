"""Tensors in, kernels launched, tensors out: the only place that chooses tiles and grids."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from reweigh.kernels import passes, weigh
from reweigh.kernels.direct import launch
from reweigh.kernels.forms import Form

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
# The numbers below were measured on an H200. Rows of up to so many classes are one tile, longer ones are walked.
SHORT = 4096
# Up to so many classes, the single pass keeps a float32 row in registers between its two halves.
KEPT = 16384
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
# So many rows are weighed by one program, and no second one is needed to settle.
ROWS_AT_ONCE = 1024
# Up to so many rows, each program of the single pass counts them all by itself: a launch less.
COUNTED = 1024
# Up to so many logits, torch's multiplication is over before a kernel of ours is launched.
SMALL = 2**16
# Programs that keep a large GPU busy: with fewer rows than this, several share a row in pass two.
BUSY = 2048


class Weights(NamedTuple):
    """What stands between the passes: how rows are weighed, normalised and reduced."""

    form: Form
    taper: float
    batch: bool
    reduction: str
    ignore_index: int
    class_weight: Tensor | None
    sample_weight: Tensor | None

    @property
    def factors(self) -> tuple[Tensor | None, Tensor | None]:
        return self.class_weight, self.sample_weight

    @property
    def numbers(self) -> tuple[float, ...]:
        _, a, b, c, inner = self.form
        return a, b, c, inner, self.taper

    @property
    def choices(self) -> tuple[int, ...]:
        return self.form.family, self.form.inner != 0, self.taper != 0


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
    def step(self) -> int:
        """Columns of a row that are read at once."""
        return self.U * self.T * self.K


def tile(work: str, *tensors: Tensor) -> Tile:
    """The tile for rows of these tensors (logits, gradient): as many neighbours to a thread as go into 16 bytes."""
    first = tensors[0]
    itemsize = first.element_size()
    most = 16 // itemsize
    bits, begin, apart = first.shape[1] | most, 0, 0
    for tensor in tensors:
        begin |= tensor.data_ptr() // itemsize
        bits |= tensor.stride(0)
        apart |= tensor.stride(0) - first.stride(0)
    bits |= begin
    # the largest power of two that divides them all; and whether all rows begin alike in some 16 bytes
    return _tile(work, first.shape[1], itemsize, bits & -bits, (begin | apart) % most == 0)


@lru_cache(maxsize=1024)
def _tile(work: str, c: int, itemsize: int, K: int, alike: bool) -> Tile:
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


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def step(tensor: Tensor) -> int:
    """The stride of a vector, or 0 for a scalar that stands for all rows."""
    return tensor.stride(0) if tensor.ndim else 0


def measure(logits: Tensor, target: Tensor, ignore_index: int, lines: int) -> Tensor:
    """Pass one: a book of `lines` lines, the first three filled (margin, top, rest)."""
    n, c = logits.shape
    book = torch.empty((lines, n), dtype=torch.float64, device=logits.device)
    chosen = tile("measure", logits)
    numbers = (n, c, logits.stride(0), ignore_index)
    launch(passes.measure, cdiv(n, chosen.R), (logits, target, book), numbers, chosen.constants(c), chosen.warps)
    return book


def weigh_book(book: Tensor, target: Tensor, num_classes: int, weights: Weights) -> tuple[Tensor, Tensor]:
    """Fill lines four and five of the book (log w, s x taper); return (scale, log scale, ...) and the value."""
    n, reduction = book.shape[1], REDUCTIONS[weights.reduction]
    B = power_of_two(n) if n <= ROWS_AT_ONCE else 128
    programs = cdiv(n, B)
    values = torch.empty(() if reduction else n, dtype=torch.float32, device=book.device)
    settled = torch.empty(2 + 4 * programs, dtype=torch.float64, device=book.device)
    tensors = (book, target, values, settled, *weights.factors)
    numbers = (n, num_classes, weights.ignore_index, *weights.numbers)
    constants = (*weights.choices, weights.batch, reduction, programs == 1, B)
    launch(weigh.weigh_rows, programs, tensors, numbers, constants, 4 if B <= 256 else 8)
    if programs > 1:
        wide = min(256, power_of_two(programs))  # no wider than needed: half a microsecond
        launch(weigh.settle, 1, (settled, values), (programs,), (weights.batch, reduction, wide), 4)
    return settled, values


def emit(
    logits: Tensor,
    target: Tensor,
    book: Tensor,
    settled: Tensor | None,
    incoming: Tensor,
    ignore_index: int,
    out: Tensor,
) -> None:
    """Pass two into `out`, which may be the logits themselves."""
    n, c = logits.shape
    chosen = tile("emit", logits, out)
    rows, steps = cdiv(n, chosen.R), cdiv(c, chosen.step)
    span = cdiv(steps, min(steps, cdiv(BUSY, rows))) * chosen.step
    parts = cdiv(c, span)
    tensors = (logits, target, out, book, settled, incoming)
    numbers = (n, c, logits.stride(0), out.stride(0), step(incoming), ignore_index, parts, span)
    launch(passes.emit, rows * parts, tensors, numbers, chosen.constants(c), chosen.warps)


def fused(logits: Tensor, target: Tensor, weights: Weights, out: Tensor) -> Tensor:
    """The single pass: the value, and the gradient for an incoming one of 1 into `out`."""
    n, c = logits.shape
    values = torch.empty(n, dtype=torch.float32, device=logits.device)
    settled, counted = None, 0
    if weights.reduction == "mean" and n <= COUNTED:
        counted = max(256, power_of_two(n))
    elif weights.reduction == "mean":
        settled = torch.empty(1, dtype=torch.float64, device=logits.device)
        block = min(power_of_two(n), 8192)
        launch(weigh.count, 1, (settled, target, *weights.factors), (n, c, weights.ignore_index), (block,), 16)
    chosen = tile("fused", logits, out)
    tensors = (logits, target, out, values, *weights.factors, settled)
    numbers = (n, c, logits.stride(0), out.stride(0), weights.ignore_index, *weights.numbers)
    constants = (*weights.choices, counted, *chosen.constants(c))
    launch(passes.fused, cdiv(n, chosen.R), tensors, numbers, constants, chosen.warps)
    return values if weights.reduction == "none" else values.sum()


def at_once(logits: Tensor, target: Tensor, weights: Weights, out: Tensor) -> Tensor:
    """All of a small batch in one launch: the value, and the gradient for an incoming one of 1 into `out`."""
    n, c = logits.shape
    reduction = REDUCTIONS[weights.reduction]
    values = torch.empty(() if reduction else n, dtype=torch.float32, device=logits.device)
    R, T, K, warps = batch_tile(n, c, tile("fused", logits, out))
    tensors = (logits, target, out, values, *weights.factors)
    numbers = (n, c, logits.stride(0), out.stride(0), weights.ignore_index, *weights.numbers)
    launch(passes.at_once, 1, tensors, numbers, (*weights.choices, weights.batch, reduction, R, T, K), warps)
    return values


@lru_cache
def batch_tile(n: int, c: int, usual: Tile) -> tuple[int, int, int, int]:
    """All rows and all columns."""
    R, width, K = power_of_two(n), power_of_two(c), 1 if usual.shifted else usual.K
    return R, width // K, K, min(8, max(4, R * width // 512))


def rescale(gradient: Tensor, incoming: Tensor) -> None:
    """gradient *= incoming, row by row or all at once; next to nothing where that is 1."""
    n, c = gradient.shape
    if n * c <= SMALL:
        gradient.mul_(incoming if incoming.ndim == 0 else incoming[:, None])
        return
    chosen = tile("emit", gradient)
    K = 1 if chosen.shifted else chosen.K
    numbers = (n, c, gradient.stride(0), step(incoming))
    launch(passes.rescale, min(n, 1024), (gradient, incoming), numbers, (2048 // K, K), 8)
