"""Launch a kernel; from the second time on without asking Triton anew what to compile.

Triton looks at every argument of every launch to decide which compiled version fits: tens of microseconds, more than
a small batch takes. The kernels here depend on types and constants alone (see `language.jit`), so that these can be
looked up directly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from ctypes import CDLL, byref, c_int
from functools import lru_cache
from inspect import isbuiltin
from typing import Any

import torch
import triton
from torch import Tensor

from reweigh.ops.language import Kernel

# How to run it, for each kernel, device, types and constants; nothing from the interpreter, which compiles nothing.
_COMPILED: dict[tuple[object, ...], tuple[Any, ...]] = {}
# A driver's version: 12.3.
GRAPHS_KNOW = 12030


def launches_early() -> bool:
    """Whether this Triton can launch a kernel while the one before is still at work: from 3.4 on."""
    from triton.backends.nvidia.compiler import CUDAOptions  # which a Triton for other makers' devices may lack

    return "launch_pdl" in CUDAOptions.__dataclass_fields__


@lru_cache
def begins_early(place: int | None) -> bool:
    """Whether a kernel may be launched while the one before is still at work, and wait for it by itself.

    The hardware does this from Hopper on, and CUDA graphs know of it from drivers for CUDA 12.3 on; it saves time from
    one kernel to the next.
    """
    if place is None or torch.version.hip is not None or not launches_early():
        return False
    version = c_int()
    driver().cuDriverGetVersion(byref(version))
    return version.value >= GRAPHS_KNOW and torch.cuda.get_device_capability(place) >= (9, 0)


@lru_cache
def driver() -> CDLL:
    """CUDA's driver, which torch has loaded."""
    return CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


class Launch:
    """kernel[(programs,)](*tensors, *numbers, *constants), for tensors of certain kinds on a certain device.

    The last constant of every kernel is whether it begins early.

    Args:
        place: the index of the device; None is a CPU, where there is the interpreter.
        kinds: what tells the types of the tensors.
    """

    __slots__ = ("arguments", "kernel", "key", "options", "place", "programs", "ready")

    def __init__(
        self,
        place: int | None,
        kinds: tuple[object, ...],
        kernel: Kernel,
        programs: int,
        numbers: tuple[float, ...],
        constants: tuple[int, ...],
        warps: int,
    ) -> None:
        early = begins_early(place)
        self.place, self.kernel, self.programs = place, kernel, programs
        self.arguments = (*numbers, *constants, early)
        self.options = {"num_warps": warps, **({"launch_pdl": True} if early else {})}
        self.key = (id(kernel), place, warps, early, constants, kinds)
        self.ready = _COMPILED.get(self.key)

    def __call__(self, *tensors: Tensor | None) -> None:
        place, ready = self.place, self.ready
        if place is not None and place != torch._C._cuda_getDevice():
            with torch.cuda.device(place):
                return self(*tensors)
        if ready:
            pointers = [None if x is None else x.data_ptr() for x in tensors]
            stream = torch._C._cuda_getCurrentRawStream(place or 0)
            run, handles = ready
            try:
                return run(self.programs, 1, 1, stream, *handles, *pointers, *self.arguments)  # type: ignore[no-any-return]
            except TypeError:  # a Triton whose launcher takes other arguments; it has launched nothing
                self.ready = _COMPILED[self.key] = ()
        compiled = self.kernel[(self.programs,)](*tensors, *self.arguments, **self.options)
        if ready is None and compiled is not None:
            self.ready = _COMPILED[self.key] = _runner(compiled)
        return None


def _runner(compiled: Any) -> tuple[Callable[..., None], tuple[object, ...]]:
    """What runs a compiled kernel, and what it is told between the stream and the kernel's arguments.

    Triton's launcher is written in C, with a function in Python around it that asks for room that is not needed here.
    Their arguments are others in every version; this is the one that was tried.
    """
    run: Any = compiled.run
    inner: Any = getattr(run, "launch", None)
    tried = triton.__version__.startswith("3.6.") and isbuiltin(inner)
    if tried and run.global_scratch_size == run.profile_scratch_size == 0:
        how = (run.launch_cooperative_grid, run.launch_pdl, None, None)
        return inner, (compiled.function, *how, compiled.packed_metadata, None, None, None)
    return run, (compiled.function, compiled.packed_metadata, None, None, None)
