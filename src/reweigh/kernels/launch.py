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
# (warps, 16-byte loads per thread) of one step along a row; the single pass reads a row twice, and beyond 112 KB it is
# still in the cache the second time only where fewer programs are at work.
WALK = {"measure": (4, 2), "emit": (16, 4), "fused": (8, 4), "fused long": (16, 4)}
LONG = 112 * 1024
# So many rows are weighed by one program, and no second one is needed to settle.
ROWS_AT_ONCE = 1024
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
    """R rows by T x K columns, for so many warps."""

    R: int
    T: int
    K: int
    warps: int


def tile(work: str, *tensors: Tensor) -> Tile:
    """The tile for rows of these tensors (logits, gradient): as many neighbours to a thread as go into 16 bytes."""
    first = tensors[0]
    itemsize = first.element_size()
    bits = first.shape[1] | 16 // itemsize
    for tensor in tensors:
        bits |= tensor.stride(0) | tensor.data_ptr() // itemsize
    # the largest power of two that divides them all
    return _tile(work, first.shape[1], itemsize, bits & -bits)


@lru_cache
def _tile(work: str, c: int, itemsize: int, K: int) -> Tile:
    width = power_of_two(c)
    if width <= SHORT:
        R = min(max(1, 1024 // width), 64)
        return Tile(R, width // K, K, 2 if R == 1 and width <= 1024 else 4)
    if work == "fused" and itemsize == 4 and width <= KEPT:
        return Tile(1, width // K, K, min(16, width // 1024))
    warps, loads = WALK["fused long" if work == "fused" and c * itemsize > LONG else work]
    return Tile(1, 32 * warps * loads * (16 // itemsize) // K, K, warps)


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
    R, T, K, warps = tile("measure", logits)
    numbers = (n, c, logits.stride(0), ignore_index)
    launch(passes.measure, cdiv(n, R), (logits, target, book), numbers, (R, T, K), warps)
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
        launch(weigh.settle, 1, (settled, values), (programs,), (weights.batch, reduction, 256), 4)
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
    R, T, K, warps = tile("emit", logits, out)
    steps = cdiv(c, T * K)
    span = cdiv(steps, min(steps, cdiv(BUSY, cdiv(n, R)))) * T * K
    parts = cdiv(c, span)
    tensors = (logits, target, out, book, settled, incoming)
    numbers = (n, c, logits.stride(0), out.stride(0), step(incoming), ignore_index, parts, span)
    launch(passes.emit, cdiv(n, R) * parts, tensors, numbers, (R, T, K), warps)


def fused(logits: Tensor, target: Tensor, weights: Weights, out: Tensor) -> Tensor:
    """The single pass: the value, and the gradient for an incoming one of 1 into `out`."""
    n, c = logits.shape
    values = torch.empty(n, dtype=torch.float32, device=logits.device)
    settled = None
    if weights.reduction == "mean":
        settled = torch.empty(1, dtype=torch.float64, device=logits.device)
        launch(weigh.count, 1, (settled, target, *weights.factors), (n, c, weights.ignore_index), (1024,), 8)
    R, T, K, warps = tile("fused", logits, out)
    tensors = (logits, target, out, values, *weights.factors, settled)
    numbers = (n, c, logits.stride(0), out.stride(0), weights.ignore_index, *weights.numbers)
    constants = (*weights.choices, R, T, K, c <= T * K)
    launch(passes.fused, cdiv(n, R), tensors, numbers, constants, warps)
    return values if weights.reduction == "none" else values.sum()


def at_once(logits: Tensor, target: Tensor, weights: Weights, out: Tensor) -> Tensor:
    """All of a small batch in one launch: the value, and the gradient for an incoming one of 1 into `out`."""
    n, c = logits.shape
    reduction = REDUCTIONS[weights.reduction]
    values = torch.empty(() if reduction else n, dtype=torch.float32, device=logits.device)
    R, T, K, warps = batch_tile(n, c, tile("fused", logits, out).K)
    tensors = (logits, target, out, values, *weights.factors)
    numbers = (n, c, logits.stride(0), out.stride(0), weights.ignore_index, *weights.numbers)
    launch(passes.at_once, 1, tensors, numbers, (*weights.choices, weights.batch, reduction, R, T, K), warps)
    return values


@lru_cache
def batch_tile(n: int, c: int, K: int) -> Tile:
    """All rows and all columns."""
    R, width = power_of_two(n), power_of_two(c)
    return Tile(R, width // K, K, min(8, max(4, R * width // 512)))


def rescale(gradient: Tensor, incoming: Tensor) -> None:
    """gradient *= incoming, row by row or all at once; next to nothing where that is 1."""
    n, c = gradient.shape
    if n * c <= SMALL:
        gradient.mul_(incoming if incoming.ndim == 0 else incoming[:, None])
        return
    K = tile("emit", gradient).K
    numbers = (n, c, gradient.stride(0), step(incoming))
    launch(passes.rescale, min(n, 1024), (gradient, incoming), numbers, (2048 // K, K), 8)
