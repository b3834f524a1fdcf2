"""Launch a kernel; from the second time on without asking Triton anew what to compile.

Triton looks at every argument of every launch to decide which compiled version fits: tens of microseconds, more than
a small batch takes. The kernels here depend on types and constants alone (see `language.jit`), so that these can be
looked up directly.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from reweigh.kernels.language import Kernel

_COMPILED: dict[tuple[object, ...], Any] = {}


def launch(kernel: Kernel, programs: int, arguments: tuple[Any, ...], constants: tuple[Any, ...], warps: int) -> None:
    """kernel[(programs,)](*arguments, *constants), on the device of the first argument."""
    device = arguments[0].device
    types = tuple([x.dtype if isinstance(x, Tensor) else x is None for x in arguments])
    key = (id(kernel), device.index, types, constants, warps)
    compiled = _COMPILED.get(key)
    with _current(device):
        if compiled is None:
            # None from the interpreter, too, which compiles nothing
            _COMPILED[key] = kernel[(programs,)](*arguments, *constants, num_warps=warps)
        else:
            stream = torch._C._cuda_getCurrentRawStream(device.index)
            plain = [x.data_ptr() if isinstance(x, Tensor) else x for x in arguments]
            more = (compiled.function, compiled.packed_metadata, None, None, None)
            compiled.run(programs, 1, 1, stream, *more, *plain, *constants)


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Launches go to the current device: make it this one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)
