"""cpu.cpp, compiled for this machine: one reading and one writing of a CPU's logits instead of torch's seven.

It works with the threads that torch has, by looking for their library (GNU's OpenMP, on Linux) in torch's process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL, c_double, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from shutil import which
from subprocess import SubprocessError, run
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from reweigh.kernels.choice import ALLOWED, PLAIN, TYPES, is_factor
from reweigh.kernels.forms import OTHER, Form
from reweigh.kernels.repeat import lies_in_memory

# Logits for which it is worth compiling, which takes half a second.
FEWEST = 2**12
FLAGS = ("-std=c++11", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
# As in cpu.cpp.
MEASURE, WEIGH = 1, 2
REDUCTIONS = ("none", "sum", "mean")


def weigh_rows(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    ignore_index: int,
    form: Form,
    log_weight: Callable[[Tensor], Tensor],
    taper: float,
    batch: bool,
    reduction: str,
) -> tuple[Tensor, Tensor | None, Tensor] | None:
    """The value, and the gradient in at least float32; where nothing is reduced, times a size for each row.

    None where cpu.cpp cannot tell: logits (N, C) that are few or in float64, or no compiler; an unknown label, a row
    without another class, a NaN.

    Args:
        logits, target: on a CPU; class indices in 64 bits.
        weight, sample_weight: a factor per class and per row, which nobody wants a derivative of.
        form: of the weighting; `OTHER` for what `log_weight(margins)` gives, +inf being the margin of a row that does
            not count.
        batch: whether rows have shares of the batch's sum of s w.
    """
    n, c = logits.shape
    if not (
        ALLOWED
        and n * c >= FEWEST
        and logits.dtype in TYPES
        and lies_in_memory(logits)
        and lies_in_memory(target)
        and target.is_contiguous()
        and all(
            x is None or (type(x) in PLAIN and is_factor(x, logits, dim) and lies_in_memory(x))
            for dim, x in enumerate((sample_weight, weight))
        )
        and (compiled := program()) is not None
    ):
        return None
    z = logits.float()
    z = z if z.stride(1) == 1 else z.contiguous()
    factors = [None if x is None else x.double() for x in (weight, sample_weight)]
    value, gradient = z.new_empty(n if reduction == "none" else ()), z.new_empty(n, c)
    room = z.new_empty(5, n, dtype=torch.float64)
    places = [None if x is None else x.data_ptr() for x in (z, target, *factors, value, gradient, room)]
    ways = (torch.get_num_threads(), REDUCTIONS.index(reduction), batch)
    given = (*places, n, c, z.stride(0), ignore_index, *ways, *form, taper)
    if form is not OTHER:
        odd = compiled(MEASURE | WEIGH, None, *given)
    else:
        odd = compiled(MEASURE, None, *given)
        log_w = None if odd else log_weight(room[2])
        if log_w is None or log_w.dtype != torch.float64 or log_w.shape != target.shape:
            return None
        log_w = log_w.contiguous()
        odd = compiled(WEIGH, log_w.data_ptr(), *given)
    return None if odd else (value, room[0] if reduction == "none" else None, gradient)


@lru_cache
def program() -> Callable[..., int] | None:
    """cpu.cpp's function, compiled once in a process; None where there is no compiler for it, or no such threads."""
    if sys.platform != "linux":  # other threads, and on Windows a file that cannot go while it is loaded
        return None
    for compiler in filter(None, map(which, (os.environ.get("CXX", ""), "g++"))):
        with suppress(OSError, SubprocessError):
            return _compiled(compiler)
    return None


def _compiled(compiler: str) -> Callable[..., int]:
    """Its file is gone when this returns: nothing is left behind, and nothing is loaded that another process wrote."""
    source = Path(__file__).with_name("cpu.cpp")
    with TemporaryDirectory(prefix="reweigh-") as folder:
        made, library = Path(folder, "cpu.o"), Path(folder, "cpu.so")
        # in two steps: the second must not bring another library of threads than torch's
        for step in ((*FLAGS, "-fopenmp", "-c", source, "-o", made), ("-shared", made, "-o", library)):
            run([compiler, *step], check=True, capture_output=True, timeout=60)
        function = CDLL(str(library)).weigh_rows
    function.argtypes = (c_int, *(c_void_p,) * 8, *(c_int64,) * 4, *(c_int,) * 4, *(c_double,) * 5)
    return function
