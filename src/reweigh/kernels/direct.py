"""Launch a kernel; from the second time on without asking Triton anew what to compile.

Triton looks at every argument of every launch to decide which compiled version fits: tens of microseconds, more than
a small batch takes. The kernels here depend on types and constants alone (see `language.jit`), so that these can be
looked up directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.kernels.language import Kernel

# How to run it, for each kernel, device, types and constants; nothing from the interpreter, which compiles nothing.
_COMPILED: dict[tuple[object, ...], tuple[Any, ...]] = {}


class Launch:
    """kernel[(programs,)](*tensors, *numbers, *constants), for tensors of certain kinds on a certain device.

    Args:
        place: the index of the device; None is a CPU, where there is the interpreter.
        kinds: what tells the types of the tensors.
    """

    __slots__ = ("constants", "kernel", "key", "numbers", "place", "programs", "warps")

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
        self.place, self.kernel, self.programs = place, kernel, programs
        self.numbers, self.constants, self.warps = numbers, constants, warps
        self.key = (id(kernel), place, warps, constants, kinds)

    def __call__(self, *tensors: Tensor | None) -> None:
        place = self.place
        if place is not None and place != torch._C._cuda_getDevice():
            with torch.cuda.device(place):
                return self(*tensors)
        ready = _COMPILED.get(self.key)
        if ready:
            pointers = [None if x is None else x.data_ptr() for x in tensors]
            stream = torch._C._cuda_getCurrentRawStream(place or 0)
            run, *handles = ready
            try:
                return run(  # type: ignore[no-any-return]
                    self.programs, 1, 1, stream, *handles, *pointers, *self.numbers, *self.constants
                )
            except TypeError:  # a Triton whose launcher takes other arguments; it has launched nothing
                _COMPILED[self.key] = ()
        compiled = self.kernel[(self.programs,)](*tensors, *self.numbers, *self.constants, num_warps=self.warps)
        if ready is None and compiled is not None:
            _COMPILED[self.key] = (compiled.run, compiled.function, compiled.packed_metadata, None, None, None)
        return None
