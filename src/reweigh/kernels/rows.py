"""rows.cu, compiled for the rows at hand: the single pass with rows in shared memory, on Hopper and newer.

Of a row that is too long for registers Triton's kernel reads every logit twice, and the cache does not always have it
still. Shared memory has two rows of up to 100 KB, and what is left is room to read ahead. Shorter rows are as fast
without it, and longer ones do not fit in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import torch
from torch import Tensor

from reweigh.kernels.tiles import Layout, cdiv

# Bytes of a row that is worth it, and of shared memory: all that a block may have on a Hopper, and what is no slot.
SHORTEST = 72 * 1024
SHARED, OVERHEAD = 226 * 1024, 2048
# As in rows.cu: memory comes in lines of so many bytes; so many rows are at work at a time.
LINE, GROUPS = 128, 2
# Rows that go into shared memory at least: two at work and a tenth of the next.
ROWS_IN_ROOM = 2.1
# By the bytes of a logit, as measured on an H200: warps of a group, and chunks of a row.
WARPS = {2: 10, 4: 8}
CHUNKS = {2: 5, 4: 4}


class Ring(NamedTuple):
    """So many slots of so many bytes."""

    chunk: int
    slots: int

    @property
    def size(self) -> int:
        return OVERHEAD + self.chunk * self.slots


def ring(c: int, itemsize: int) -> Ring | None:
    """For rows of c logits; None where they are too short or too long.

    >>> ring(21841, 4), ring(50304, 2), ring(32000, 2), ring(128256, 2)
    (Ring(chunk=21888, slots=10), Ring(chunk=20224, slots=11), None, None)
    """
    row = c * itemsize
    if row <= SHORTEST:
        return None
    chunk = cdiv(row + LINE - itemsize, CHUNKS[itemsize] * LINE) * LINE
    slots = (SHARED - OVERHEAD) // chunk
    return Ring(chunk, slots) if slots * chunk >= ROWS_IN_ROOM * row else None


class Rows:
    """Launches rows.cu as `direct.Launch` does a kernel of Triton's.

    The tensors are logits, target, gradient and values; weights of classes or examples, which may follow, are None.
    """

    def __init__(self, kernel: Callable[..., None], at: Layout, room: Ring, numbers: tuple[float, ...]) -> None:
        self.kernel, self.place, self.shared = kernel, at.place, room.size
        self.grid, self.block = (blocks(at), 1, 1), (32 * (GROUPS * WARPS[at.itemsize] + 1), 1, 1)
        ignore_index, *real = numbers
        self.numbers = [at.n, at.c, at.stride, at.out_stride, ignore_index, *room, *map(float, real)]

    def __call__(self, *tensors: Tensor | None) -> None:
        if self.place != torch._C._cuda_getDevice():
            with torch.cuda.device(self.place):
                return self(*tensors)
        arguments = [*tensors[:4], *self.numbers]
        return self.kernel(grid=self.grid, block=self.block, args=arguments, shared_mem=self.shared)


def rows(at: Layout, numbers: tuple[float, ...], choices: tuple[int, ...], reduction: int) -> Rows | None:
    """What launches the pass, leaving a value for each row (`reduction` 0) or each group of warps; None if it can't.

    Logits and gradient are as far apart and begin at 16 bytes, and labels are of 64 bits. `numbers` are the label to
    ignore and those of the weighting, `choices` its constants.
    """
    _, label, *factors = at.kinds
    room = ring(at.c, at.itemsize)
    small = max(at.n, at.stride, abs(numbers[0])) < 2**31
    alike = at.stride == at.out_stride and at.alike
    if at.place is None or room is None or label != torch.int64 or factors != [None, None] or not (alike and small):
        return None
    kernel = _compiled(at.place, at.kinds[0], choices, reduction)
    return None if kernel is None else Rows(kernel, at, room, numbers)


def blocks(at: Layout) -> int:
    """One for each multiprocessor."""
    return min(at.n, torch.cuda.get_device_properties(at.place).multi_processor_count)


@lru_cache
def _compiled(
    place: int, dtype: torch.dtype | None, choices: tuple[int, ...], reduction: int
) -> Callable[..., None] | None:
    compiler = getattr(torch.cuda, "_compile_kernel", None)  # from torch 2.9 on
    if compiler is None or torch.version.hip is not None or torch.cuda.get_device_capability(place) < (9, 0):
        return None
    source = files("reweigh.kernels").joinpath("rows.cu").read_text(encoding="utf-8")
    width = 4 if dtype == torch.float32 else 2
    names = ("FAMILY", "INNER", "TAPER", "MEAN", "NONE", "WIDTH", "HALF", "WARPS", "GROUPS")
    constants = (*choices, reduction == 1, reduction == 0, width, dtype == torch.float16, WARPS[width], GROUPS)
    options = [f"-D{name}={int(value)}" for name, value in zip(names, constants, strict=True)]
    try:
        with torch.cuda.device(place):
            kernel = compiler(source, "rows", nvcc_options=options)
            kernel.set_shared_memory_config(SHARED)
    except (AttributeError, OSError, RuntimeError):  # no compiler beside this torch, or none that can do this
        return None
    return kernel  # type: ignore[no-any-return]
