"""cpu.cpp, compiled for this machine: one reading and one writing of a CPU's logits instead of torch's seven.

It works with the threads that torch has, by looking for their library (GNU's OpenMP, on Linux) in torch's process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL, Structure, addressof, c_double, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from shutil import which
from subprocess import SubprocessError, run
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from reweigh.ops.choice import ALLOWED, PLAIN, TYPES, is_factor
from reweigh.ops.forms import OTHER, Form
from reweigh.ops.repeat import lies_in_memory

# Logits for which it is worth compiling, which takes half a second.
FEWEST = 2**12
FLAGS = ("-std=c++11", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
# As in cpu.cpp.
MEASURE, WEIGH = 1, 2
REDUCTIONS = ("none", "sum", "mean")
LogWeight = Callable[[Tensor, Tensor, int], Tensor]


class Settings(Structure):
    """As in cpu.cpp."""

    _fields_ = (
        *((name, c_int64) for name in ("n", "c", "ignore")),
        *((name, c_int) for name in ("reduction", "batch", "form")),
        *((name, c_double) for name in ("a", "b", "constant", "inner", "taper")),
    )


class Rows:
    """The value, and the gradient in at least float32; where nothing is reduced, times a size for each row.

    None where cpu.cpp cannot tell: an unknown label, a row without another class, a NaN. For logits (n, c) and labels
    like those that it was made for by `in_cpp`, which has the arguments.
    """

    __slots__ = ("form", "log_weight", "place", "program", "reduced", "settings")

    def __init__(
        self, program: Callable[..., int], settings: Settings, form: Form, log_weight: LogWeight, reduced: bool
    ) -> None:
        self.program, self.settings, self.place = program, settings, addressof(settings)
        self.form, self.log_weight, self.reduced = form, log_weight, reduced

    def __call__(
        self, logits: Tensor, target: Tensor, weight: Tensor | None = None, sample_weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor] | None:
        n, c = logits.shape
        z = logits.float()
        z = z if z.stride(1) == 1 else z.contiguous()
        by_class, by_row = (None if x is None else x.double() for x in (weight, sample_weight))
        value, gradient = z.new_empty(() if self.reduced else n), z.new_empty(n, c)
        room = z.new_empty(5, n, dtype=torch.float64)
        log_w: Tensor | None = None
        for steps in (MEASURE | WEIGH,) if self.form is not OTHER else (MEASURE, WEIGH):
            if steps == WEIGH:
                log_w = self.log_weight(room[2], target, c)
                if log_w.dtype != torch.float64 or log_w.shape != target.shape:
                    return None
                log_w = log_w.contiguous()
            odd = self.program(
                self.place,
                steps,
                torch.get_num_threads(),
                z.data_ptr(),
                z.stride(0),
                target.data_ptr(),
                None if by_class is None else by_class.data_ptr(),
                None if by_row is None else by_row.data_ptr(),
                None if log_w is None else log_w.data_ptr(),
                value.data_ptr(),
                gradient.data_ptr(),
                room.data_ptr(),
            )
            if odd:
                return None
        return value, None if self.reduced else room[0], gradient


def in_cpp(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    ignore_index: int,
    form: Form,
    log_weight: LogWeight,
    taper: float,
    batch: bool,
    reduction: str,
) -> Rows | None:
    """cpu.cpp for logits (N, C) and labels like these; None for logits that are few or in float64, or no compiler.

    Args:
        logits, target: on a CPU; class indices in 64 bits.
        weight, sample_weight: a factor per class and per row, which nobody wants a derivative of.
        form: of the weighting; `OTHER` for what `log_weight(margins, target, C)` gives, +inf being the margin of a row
            that does not count.
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
    settings = Settings(n, c, ignore_index, REDUCTIONS.index(reduction), batch, *form, taper)
    return Rows(compiled, settings, form, log_weight, reduction != "none")


@lru_cache
def program() -> Callable[..., int] | None:
    """cpu.cpp's function, compiled once in a process; None where there is no compiler for it, or no such threads."""
    for compiler in compilers():
        with suppress(OSError, SubprocessError):
            return _compiled(compiler)
    return None


def compilers() -> list[str]:
    """What to compile with, the first that can."""
    if not ALLOWED or sys.platform != "linux":  # other threads, and on Windows a file that cannot go while it is loaded
        return []
    return [found for name in (os.environ.get("CXX", ""), "g++") if (found := which(name))]


def compiler_version() -> str | None:
    """What the first of them says of itself: last digits may depend on it."""
    for compiler in compilers():
        with suppress(OSError, SubprocessError):
            said = run([compiler, "--version"], check=True, capture_output=True, timeout=10, text=True).stdout
            return said.partition("\n")[0]
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
    function.argtypes = (c_void_p, c_int, c_int, c_void_p, c_int64, *(c_void_p,) * 7)
    return function
