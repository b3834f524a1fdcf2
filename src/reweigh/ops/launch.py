"""What is launched for a layout of the logits, worked out once: the only place that chooses grids and constants."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from reweigh.ops import passes, weigh
from reweigh.ops.direct import Launch
from reweigh.ops.forms import BELL, EMPHASIS, GIVEN, Form
from reweigh.ops.rows import Rows, rows
from reweigh.ops.tiles import Layout, batch_tile, cdiv, power_of_two, tile

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
# What pass two multiplies the incoming gradient by, as in passes.py.
PLAIN, SHARED, UNSETTLED = 0, 1, 2
# Of log w: exp of twice as much is still a number in float64.
BOUND = 300.0
# So many rows are weighed by one program, and no second one is needed to settle.
ROWS_AT_ONCE = 1024
# Up to so many logits it is presumed that every row takes part in a mean, and corrected afterwards where one does not:
# a launch less, against a multiplication of the gradient.
PRESUMED = 2**25
# Programs that keep a large GPU busy: with fewer rows than this, several share a row in pass two.
BUSY = 2048
# Programs that multiply a finished gradient: two for each of a large GPU's multiprocessors, to be over soon if there is
# nothing to do.
MULTIPLYING = 264
# And what they take at a time, at most, and at least where rows are cut anew.
WIDEST, EVEN = 8192, 512
# Up to so many numbers by fewer threads: sooner over if there is nothing to do, and slower only on more.
SOON_OVER = 2**25


class Weights(NamedTuple):
    """What stands between the passes: how rows are weighed, normalised and reduced."""

    form: Form
    taper: float
    batch: bool
    reduction: str
    ignore_index: int

    @property
    def numbers(self) -> tuple[float, ...]:
        _, a, b, c, inner = self.form
        return a, b, c, inner, self.taper

    @property
    def choices(self) -> tuple[int, ...]:
        return self.form.family, self.form.inner != 0, self.taper != 0

    @property
    def given(self) -> bool:
        """Whether log w comes from plain torch."""
        return self.form.family == GIVEN

    @property
    def bounded(self) -> bool:
        """Whether w, between exp(c - |b|) and exp(c + |b|), can be summed in float64 as it is."""
        family, _, b, c, inner = self.form
        return family in (EMPHASIS, BELL) and abs(b) + abs(c) < BOUND and inner == 0


def step(incoming: Tensor) -> int:
    """The stride of a vector, or 0 for a scalar that stands for all rows."""
    return incoming.stride(0) if incoming.ndim else 0


@lru_cache(maxsize=256)
def measure(at: Layout, ignore_index: int) -> Launch:
    """Pass one: (logits, target, book), three lines of the book."""
    chosen = tile("measure", at.c, at.itemsize, at.K, at.alike)
    numbers = (at.n, at.c, at.stride, ignore_index)
    programs = cdiv(at.n, chosen.R)
    return Launch(at.place, at.kinds, passes.measure, programs, numbers, chosen.constants(at.c), chosen.warps)


@lru_cache(maxsize=256)
def emit(at: Layout, ignore_index: int, incoming_stride: int, force: int) -> Launch:
    """Pass two: (logits, target, gradient, book, settled, incoming)."""
    chosen = tile("emit", at.c, at.itemsize, at.K, at.alike)
    reach = at.c + chosen.late  # from where columns are counted
    rows, steps = cdiv(at.n, chosen.R), cdiv(reach, chosen.step)
    span = cdiv(steps, min(steps, cdiv(BUSY, rows))) * chosen.step
    parts = cdiv(reach, span)
    numbers = (at.n, at.c, at.stride, at.out_stride, incoming_stride, ignore_index, parts, span)
    constants = (force, *chosen.constants(at.c))
    return Launch(at.place, at.kinds, passes.emit, rows * parts, numbers, constants, chosen.warps)


@lru_cache(maxsize=256)
def rescale(at: Layout, incoming_stride: int, corrected: bool) -> Launch:
    """(gradient, incoming, correction): next to nothing where these are 1."""
    n, c, stride, K = at.n, at.c, at.out_stride, at.K
    even = n * c & -(n * c)  # the largest power of two that divides it
    if incoming_stride == 0 and stride == c and at.alike and even >= EVEN:
        # one number for all, and no gap between rows: cut them anew
        c = stride = min(even, WIDEST)
        n, K = n * at.c // c, 16 // at.itemsize
    width = min(WIDEST, power_of_two(c))
    numbers, constants = (n, c, stride, incoming_stride), (width // K, K)
    kinds, warps = (*at.kinds, corrected), max(1, min(4 if n * c <= SOON_OVER else 16, width // 256))
    return Launch(at.place, kinds, passes.rescale, min(n, MULTIPLYING), numbers, constants, warps)


@lru_cache(maxsize=256)
def at_once(at: Layout, weights: Weights) -> Launch:
    """All of a small batch: (logits, target, gradient, value, class weight, sample weight)."""
    *constants, warps = batch_tile(at)
    numbers = (at.n, at.c, at.stride, at.out_stride, weights.ignore_index, *weights.numbers)
    settings = (*weights.choices, weights.bounded, REDUCTIONS[weights.reduction], weights.batch)
    return Launch(at.place, at.kinds, passes.at_once, 1, numbers, (*settings, *constants), warps)


class Fused(NamedTuple):
    """The single pass, what is counted before and added up after it, and the room for what is added up.

    counted: (settled, target, class weight, sample weight); one: (logits, target, gradient, partial, class weight,
    sample weight, settled); tally: (partial, value). If it was presumed that no label is ignored, the last number of
    `partial` corrects the gradient.
    """

    counted: Launch | None
    one: Launch | Rows
    tally: Launch | None
    room: int
    presumed: bool


@lru_cache(maxsize=256)
def fused(at: Layout, weights: Weights) -> Fused:
    n, c, place, (_, *others) = at.n, at.c, at.place, at.kinds
    reduction, mean = REDUCTIONS[weights.reduction], weights.reduction == "mean"
    one: Launch | Rows | None = rows(at, (weights.ignore_index, *weights.numbers), weights.choices, reduction)
    presumed, counted, tally = False, None, None
    if one is not None:  # which counts for itself
        programs, single = one.programs, True
    else:
        presumed = mean and others[1:] == [None, None] and n * c <= PRESUMED
        if mean and not presumed:
            block = min(power_of_two(n), 8192)
            counted = Launch(place, (*others,), weigh.count, 1, (n, c, weights.ignore_index), (block,), 16)
        chosen = tile("fused", c, at.itemsize, at.K, at.alike)
        programs, single = cdiv(n, chosen.R), chosen.R == 1
        share = 1 / n if presumed else 1.0
        numbers = (n, c, at.stride, at.out_stride, weights.ignore_index, *weights.numbers, share)
        constants = (*weights.choices, reduction, *chosen.constants(c))
        kinds = (*at.kinds, counted is not None)
        one = Launch(place, kinds, passes.fused, programs, numbers, constants, chosen.warps)
    if reduction:
        wide = min(8192, power_of_two(programs))  # all at once, if there is room: each turn waits for the memory
        tally = Launch(place, (), weigh.tally, 1, (n, programs), (presumed, single, wide), max(1, min(16, wide // 64)))
    room = 1 + programs * (1 if single else 2)
    return Fused(counted, one, tally, room if reduction else n, presumed)


class Weigh(NamedTuple):
    """Between the passes: (book, target, values, settled, class weight, sample weight); then (settled, values).

    Where one program weighs all rows, nothing is left to settle.
    """

    rows: Launch
    settle: Launch | None
    room: int


@lru_cache(maxsize=256)
def weigh_book(at: Layout, weights: Weights) -> Weigh:
    n, place, (_, *others) = at.n, at.place, at.kinds
    B = power_of_two(n) if n <= ROWS_AT_ONCE else 128
    programs, reduction = cdiv(n, B), REDUCTIONS[weights.reduction]
    alone = programs == 1
    numbers = (n, at.c, weights.ignore_index, *weights.numbers)
    constants = (*weights.choices, weights.bounded, reduction, weights.batch, alone, B)
    rows = Launch(place, (*others,), weigh.weigh_rows, programs, numbers, constants, max(4, B // 64))
    settle = None
    if not alone:
        wide = min(256, power_of_two(programs))  # no wider than needed: half a microsecond
        settle = Launch(place, (), weigh.settle, 1, (programs,), (reduction, weights.batch, wide), 4)
    return Weigh(rows, settle, 2 + 4 * programs)
