"""The device, the precision and torch's process-wide switches of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from reweigh.lab.spec import Run


def device_of(run: Run) -> torch.device:
    """Return the device of a run; "auto" is a GPU if there is one."""
    if run.device != "auto":
        device = torch.device(run.device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device is {run.device!r}, but torch sees no CUDA device here")
        return device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def autocast_of(run: Run, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Return the context of forward passes: autocast to bfloat16, or nothing."""
    if run.precision.startswith("bf16"):
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext


class Switches(NamedTuple):
    """The process-wide switches of a run; runs with the same ones can share a process."""

    tf32: bool
    deterministic: bool


def switches_of(run: Run) -> Switches:
    """Return the switches of a run; bfloat16 and rounded logits concern one net only."""
    return Switches(run.precision == "tf32", run.deterministic)


@contextmanager
def machine(run: Run) -> Iterator[None]:
    """Set torch's process-wide switches for a run, and restore them afterwards."""
    wants_tf32, exact = switches_of(run)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    fill: Any = torch.utils.deterministic
    deterministic, tf32 = torch.are_deterministic_algorithms_enabled(), (matmul.allow_tf32, cudnn.allow_tf32)
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, filling, dtype = cudnn.benchmark, fill.fill_uninitialized_memory, torch.get_default_dtype()
    if exact:  # cuBLAS reads it at its first use, and torch raises without it
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(exact or deterministic, warn_only=warn and not exact)
    matmul.allow_tf32 = cudnn.allow_tf32 = wants_tf32
    cudnn.benchmark = not exact
    torch.set_default_dtype(torch.float32)  # the type of the batches
    fill.fill_uninitialized_memory = False  # a launch per result, only useful for debugging
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn)
        torch.set_default_dtype(dtype)
        matmul.allow_tf32, cudnn.allow_tf32 = tf32
        cudnn.benchmark, fill.fill_uninitialized_memory = benchmark, filling
