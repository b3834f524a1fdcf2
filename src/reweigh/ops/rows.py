"""rows.cu, compiled for the rows at hand: the single pass with rows in shared memory, on Hopper and newer.

Of a row that is too long for its registers Triton's kernel reads every logit twice, and the cache does not always have
it still. Here a row waits in registers, and shared memory is there to read ahead. Shorter rows are as fast without it,
and longer ones do not fit in.
"""

from __future__ import annotations

from ctypes import Structure, addressof, byref, c_double, c_int, c_uint, c_void_p
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reweigh.ops.direct import begins_early, driver
from reweigh.ops.tiles import Layout, cdiv

# Bytes of a row that is worth it, and of shared memory beside the slots.
SHORTEST, OVERHEAD = 72 * 1024, 2048
# As in rows.cu: memory comes in lines of so many bytes; so many warps work on a row, each thread on 16 bytes of a slot.
LINE, WARPS = 128, 16
SLOT = 16 * 32 * WARPS
# Slots of a block: what is worth it, and what its registers have room for; and blocks that may work together.
FEWEST, MOST, LARGEST = 8, 13, 8


class Parts(NamedTuple):
    """A row is the work of so many blocks, each of which has so many slots."""

    cluster: int
    steps: int


def parts(c: int, itemsize: int) -> Parts | None:
    """For rows of c logits, wherever they begin; None where they are too short or too long.

    >>> parts(21841, 4), parts(151936, 2), parts(32000, 2), parts(1_000_000, 4)
    (Parts(cluster=1, steps=11), Parts(cluster=3, steps=13), None, None)
    """
    slots = cdiv(c * itemsize + LINE - itemsize, SLOT)
    cut = Parts(cdiv(slots, MOST), cdiv(slots, cdiv(slots, MOST)))
    return cut if c * itemsize > SHORTEST and cut.steps >= FEWEST and cut.cluster <= LARGEST else None


class Arguments(Structure):
    """As in rows.cu."""

    _fields_ = (
        *((name, c_void_p) for name in ("logits", "target", "gradient", "values")),
        *((name, c_int) for name in ("n", "c", "stride", "gradient_stride", "ignore")),
        *((name, c_double) for name in ("a", "b", "exponent", "inner", "taper")),
    )


class Attribute(Structure):
    """CUlaunchAttribute: which of them, a number, and room up to the largest."""

    _fields_ = (("name", c_int), ("gap", c_int), ("value", c_int), ("room", c_int * 15))


class Config(Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("count", c_uint),
    )


# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel begins early, and waits by itself
EARLY = Attribute(6, 0, 1)


class Rows:
    """Launches rows.cu as `direct.Launch` does a kernel of Triton's.

    The tensors are logits, target, gradient and values; weights of classes or examples, which may follow, are None.
    torch can launch the kernel, too, but takes longer to prepare that than a small batch takes for all.
    """

    def __init__(self, kernel: Any, at: Layout, cut: Parts, at_a_time: int, numbers: tuple[float, ...]) -> None:
        self.kernel, self.place, self.run = kernel, at.place, driver().cuLaunchKernelEx
        self.early = (addressof(EARLY), 1) if begins_early(at.place) else (None, 0)
        # as many rows for each, or one less
        self.programs = cdiv(at.n, cdiv(at.n, at_a_time))
        self.shape = shape(cut, self.programs)
        ignore_index, *real = numbers
        self.numbers = (at.n, at.c, at.stride, at.out_stride, ignore_index, *real)

    def __call__(self, *tensors: Tensor | None) -> None:
        place = self.place
        if place != torch._C._cuda_getDevice():
            with torch.cuda.device(place):
                return self(*tensors)
        # all of it is of this call alone: another thread may launch the same
        arguments = Arguments(*[None if x is None else x.data_ptr() for x in tensors[:4]], *self.numbers)
        stream = torch._C._cuda_getCurrentRawStream(place)
        config = Config(*self.shape, stream, *self.early)
        code = self.run(byref(config), self.kernel.func, (c_void_p * 1)(addressof(arguments)), None)
        if code:
            raise RuntimeError(
                f"a kernel for rows of {self.numbers[1]} classes could not be launched: CUDA error {code}"
            )
        return None


def rows(at: Layout, numbers: tuple[float, ...], choices: tuple[int, ...], reduction: int) -> Rows | None:
    """What launches the pass, leaving a value for each row (`reduction` 0) or `programs` of them; None if it can't.

    Logits and gradient are as far apart and begin at 16 bytes, and labels are of 64 bits. `numbers` are the label to
    ignore and those of the weighting, `choices` its constants.
    """
    _, label, *factors = at.kinds
    cut = parts(at.c, at.itemsize)
    small = max(at.n, at.stride, abs(numbers[0])) < 2**31
    alike = at.stride == at.out_stride and at.alike
    if at.place is None or cut is None or label != torch.int64 or factors != [None, None] or not (alike and small):
        return None
    kernel, at_a_time = _compiled(at.place, at.kinds[0], cut, choices, reduction)
    return Rows(kernel, at, cut, at_a_time, numbers) if at_a_time else None


def shape(cut: Parts, programs: int) -> tuple[Any, ...]:
    """Blocks, threads, and bytes of shared memory."""
    return (c_uint * 3)(programs * cut.cluster, 1, 1), (c_uint * 3)(32 * (WARPS + 1), 1, 1), OVERHEAD + SLOT * cut.steps


def source() -> str:
    here = files("reweigh.ops")
    return "".join(here.joinpath(name).read_text(encoding="utf-8") for name in ("weigh.cu", "rows.cu"))


def definitions(dtype: torch.dtype | None, cut: Parts, choices: tuple[int, ...], reduction: int) -> list[str]:
    """What the source leaves open, as options of its compiler."""
    width = 4 if dtype == torch.float32 else 2
    names = ("FAMILY", "INNER", "TAPER", "MEAN", "NONE", "WIDTH", "HALF", "CLUSTER", "STEPS", "WARPS")
    constants = (*choices, reduction == 1, reduction == 0, width, dtype == torch.float16, *cut, WARPS)
    return [f"-D{name}={int(value)}" for name, value in zip(names, constants, strict=True)]


@lru_cache
def _compiled(
    place: int, dtype: torch.dtype | None, cut: Parts, choices: tuple[int, ...], reduction: int
) -> tuple[Any, int]:
    """The kernel, and how many rows are at work at a time; none where it cannot be had."""
    compiler = getattr(torch.cuda, "_compile_kernel", None)  # from torch 2.9 on
    if compiler is None or torch.version.hip is not None or torch.cuda.get_device_capability(place) < (9, 0):
        return None, 0
    try:
        with torch.cuda.device(place):
            kernel = compiler(source(), "rows", nvcc_options=definitions(dtype, cut, choices, reduction))
            kernel.set_shared_memory_config(shape(cut, 1)[-1])
            if cut.cluster == 1:
                return kernel, torch.cuda.get_device_properties(place).multi_processor_count
            clusters = c_int()  # not every multiprocessor has enough neighbours
            driver().cuOccupancyMaxActiveClusters(byref(clusters), kernel.func, byref(Config(*shape(cut, 1))))
            return kernel, clusters.value
    except (AttributeError, OSError, RuntimeError):  # no compiler beside this torch, or none that can do this
        return None, 0
