"""The machine as a run needs it: the device, the arithmetic, torch's switches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from reweigh.spec import Run


def device_of(run: Run) -> torch.device:
    """The device a run asks for; "auto" is a GPU where there is one."""
    if run.device != "auto":
        device = torch.device(run.device)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device is {run.device!r}, but torch sees no CUDA device here")
        return device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def autocast_of(run: Run, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """The context of forward passes: bfloat16 where the run says so, else nothing."""
    if run.precision.startswith("bf16"):
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext


@contextmanager
def machine(run: Run) -> Iterator[None]:
    """torch's process-wide switches as the run needs them, put back afterwards."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    fill: Any = torch.utils.deterministic
    deterministic, tf32 = torch.are_deterministic_algorithms_enabled(), (matmul.allow_tf32, cudnn.allow_tf32)
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, filling, dtype = cudnn.benchmark, fill.fill_uninitialized_memory, torch.get_default_dtype()
    if run.deterministic:  # cuBLAS reads it when it is first used, and torch refuses to go on without
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(run.deterministic or deterministic, warn_only=warn and not run.deterministic)
    matmul.allow_tf32 = cudnn.allow_tf32 = run.precision == "tf32"
    cudnn.benchmark = not run.deterministic
    torch.set_default_dtype(torch.float32)  # what the batches have, and so must the net
    fill.fill_uninitialized_memory = False  # it helps to find bugs, at the price of a launch for every result
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn)
        torch.set_default_dtype(dtype)
        matmul.allow_tf32, cudnn.allow_tf32 = tf32
        cudnn.benchmark, fill.fill_uninitialized_memory = benchmark, filling
