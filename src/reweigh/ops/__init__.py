"""The criterion's two passes as Triton kernels; chosen automatically, turned off by REWEIGH_KERNELS=off.

`usable` says whether a call can take them, and `is_intercepted` whether only as operators of torch. `margin` is
`reweigh.margin.margin` for any weighting, `margin_and_push` the same without autograd. `whole` is the entire
criterion, but for the weights that no kernel knows; `Repeat` the same for a batch like one before; `weighed` the passes
alone. Triton is imported on first use. `in_cpp` is the criterion on a CPU, compiled with what `compiler_version` names;
`remember` keeps a call for the next one like it.
"""

from reweigh.ops.choice import is_intercepted, margin, margin_and_push, rescale, usable, weighed, whole
from reweigh.ops.cpu import compiler_version, in_cpp
from reweigh.ops.repeat import Repeat, remember

__all__ = [
    "Repeat",
    "compiler_version",
    "in_cpp",
    "is_intercepted",
    "margin",
    "margin_and_push",
    "remember",
    "rescale",
    "usable",
    "weighed",
    "whole",
]
