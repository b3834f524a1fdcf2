"""Launch a kernel; from the second time on without asking Triton anew what to compile.

Triton looks at every argument of every launch to decide which compiled version fits: tens of microseconds, more than
a small batch takes. The kernels here depend on types and constants alone (see `language.jit`), so that these can be
looked up directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.kernels.language import Kernel

# How to run it, for each kernel, device, types and constants; nothing from the interpreter, which compiles nothing.
_COMPILED: dict[tuple[object, ...], tuple[Any, ...]] = {}


def launch(
    kernel: Kernel,
    programs: int,
    tensors: Sequence[Tensor | None],
    numbers: tuple[float, ...],
    constants: tuple[int, ...],
    warps: int,
) -> None:
    """kernel[(programs,)](*tensors, *numbers, *constants), on the device of the first tensor."""
    device = tensors[0].device  # type: ignore[union-attr]  # the first is never None
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return launch(kernel, programs, tensors, numbers, constants, warps)
    key = (id(kernel), device.index, warps, constants, *[x is not None and x.dtype for x in tensors])
    ready = _COMPILED.get(key)
    if ready:
        run, *handles = ready
        pointers = [None if x is None else x.data_ptr() for x in tensors]
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        try:
            return run(programs, 1, 1, stream, *handles, *pointers, *numbers, *constants)  # type: ignore[no-any-return]
        except TypeError:  # a Triton whose launcher takes other arguments; it has launched nothing
            _COMPILED[key] = ()
    compiled = kernel[(programs,)](*tensors, *numbers, *constants, num_warps=warps)
    if ready is None and compiled is not None:
        _COMPILED[key] = (compiled.run, compiled.function, compiled.packed_metadata, None, None, None)
    return None
