"""The machine as a run needs it: the device, the arithmetic, torch's switches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from reweigh.lab.spec import Run


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


class Switches(NamedTuple):
    """What a run asks of the whole process: runs that ask the same can go side by side in one."""

    tf32: bool
    deterministic: bool


def switches_of(run: Run) -> Switches:
    """The switches of a run; bfloat16 and rounded logits are no switches, they concern one net."""
    return Switches(run.precision == "tf32", run.deterministic)


@contextmanager
def machine(run: Run) -> Iterator[None]:
    """torch's process-wide switches as the run needs them, put back afterwards."""
    wants_tf32, exact = switches_of(run)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    fill: Any = torch.utils.deterministic
    deterministic, tf32 = torch.are_deterministic_algorithms_enabled(), (matmul.allow_tf32, cudnn.allow_tf32)
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, filling, dtype = cudnn.benchmark, fill.fill_uninitialized_memory, torch.get_default_dtype()
    if exact:  # cuBLAS reads it when it is first used, and torch refuses to go on without
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(exact or deterministic, warn_only=warn and not exact)
    matmul.allow_tf32 = cudnn.allow_tf32 = wants_tf32
    cudnn.benchmark = not exact
    torch.set_default_dtype(torch.float32)  # what the batches have, and so must the net
    fill.fill_uninitialized_memory = False  # it helps to find bugs, at the price of a launch for every result
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn)
        torch.set_default_dtype(dtype)
        matmul.allow_tf32, cudnn.allow_tf32 = tf32
        cudnn.benchmark, fill.fill_uninitialized_memory = benchmark, filling
