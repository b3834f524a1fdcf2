"""cpu.cpp, compiled for this machine: one reading and one writing of a CPU's logits instead of torch's seven.

It works with the threads that torch has, by looking for their library (GNU's OpenMP, on Linux) in torch's process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import CDLL, c_double, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from shutil import which
from subprocess import SubprocessError, run
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from reweigh.kernels.choice import ALLOWED, TYPES
from reweigh.kernels.forms import Form

# Logits for which it is worth compiling, which takes half a second.
FEWEST = 2**15
FLAGS = ("-std=c++11", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC")


def weigh_rows(logits: Tensor, target: Tensor, form: Form, taper: float, batch: bool) -> tuple[Tensor, Tensor] | None:
    """The mean of -log p, and the gradient in at least float32.

    None where cpu.cpp cannot tell: logits (N, C) that are few, in float64 or not in one piece, or no compiler; a label
    that is ignored or unknown, a row without another class, a NaN.

    Args:
        logits, target: on a CPU; class indices in 64 bits.
        batch: whether rows have shares of the batch's sum of w, else of their number.
    """
    n, c = logits.shape
    if not (
        ALLOWED
        and n * c >= FEWEST
        and logits.dtype in TYPES
        and logits.is_contiguous()
        and target.is_contiguous()
        and not logits.is_neg()
        and logits.data_ptr()  # nothing is stored of torch's zero tensors
        and (compiled := program()) is not None
    ):
        return None
    z = logits.float()
    gradient, numbers = torch.empty_like(z), torch.empty(3 * n + 1, dtype=torch.float64)
    room = numbers.data_ptr()
    places = (z.data_ptr(), target.data_ptr(), gradient.data_ptr(), room, room + 24 * n)
    if compiled(*places, n, c, torch.get_num_threads(), form.family, batch, *form[1:], taper):
        return None
    return numbers[3 * n].float(), gradient


@lru_cache
def program() -> Callable[..., int] | None:
    """cpu.cpp's function, compiled once in a process; None where there is no compiler for it, or no such threads.

    Its file is gone when this returns: nothing is left behind, and nothing is loaded that another process wrote.
    """
    compiler = which(os.environ.get("CXX", "")) or which("g++")
    if compiler is None:
        return None
    source = Path(__file__).with_name("cpu.cpp")
    try:
        with TemporaryDirectory(prefix="reweigh-") as folder:
            made, library = Path(folder, "cpu.o"), Path(folder, "cpu.so")
            # in two steps: the second must not bring another library of threads than torch's
            for step in ((*FLAGS, "-fopenmp", "-c", source, "-o", made), ("-shared", made, "-o", library)):
                run([compiler, *step], check=True, capture_output=True, timeout=60)
            function = CDLL(str(library)).weigh_rows
    except (OSError, SubprocessError):
        return None
    function.argtypes = (*(c_void_p,) * 5, c_int64, c_int64, *(c_int,) * 3, *(c_double,) * 5)
    return function
