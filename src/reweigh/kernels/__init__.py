"""The criterion's two passes as Triton kernels; chosen automatically, turned off by REWEIGH_KERNELS=off.

`usable` says whether a call can take them, and `is_intercepted` whether only as operators of torch. `margin` is
`reweigh.direction.margin` for any weighting, `margin_and_push` the same without autograd. `whole` is the entire
criterion, but for the weights that no kernel knows; `Repeat` the same for a batch like one before; `weighed` the passes
alone. Triton is imported on first use. `weigh_rows` is the criterion on a CPU, in C++.
"""

from reweigh.kernels.choice import is_intercepted, margin, margin_and_push, rescale, usable, weighed, whole
from reweigh.kernels.cpu import weigh_rows
from reweigh.kernels.repeat import Repeat

__all__ = [
    "Repeat",
    "is_intercepted",
    "margin",
    "margin_and_push",
    "rescale",
    "usable",
    "weigh_rows",
    "weighed",
    "whole",
]
