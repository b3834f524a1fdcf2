"""Estimate the memory of a training run before it starts, and choose the batches of its evaluations."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from reweigh.lab.spec import Run
from reweigh.lab.train.step import EXCLUSIVE

EVALUATION = 2**30
"""Bytes of activations that a batch of an evaluation may have."""

OVERHEAD = 1.5
"""Measured on a CPU, a step of a ResNet, CNN-9 or BN-Inception needs 1.1 to 2.1 times its activations."""

_CGROUP = Path("/sys/fs/cgroup")  # a container may have less memory than its machine
_STATES = {"sgd": 0, "adam": 2, "adam-caffe": 2, "adamw": 2}  # numbers per parameter; the others have a velocity


def activations(net: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the bytes that one example of a batch keeps for the backward pass: (all layers, the largest tensor).

    Measured by a forward pass of one example in evaluation mode, which changes nothing.

    >>> activations(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2)), (8,))
    (288, 256)
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    saved: dict[int, Tensor] = {}  # holds the tensors, so that no two have the same address

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            saved[place] = tensor
        return tensor

    was_training = net.training
    inputs = torch.zeros(1, *shape, device=next(net.parameters()).device)
    try:
        with EXCLUSIVE, torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            net.eval()(inputs)
    finally:
        net.train(was_training)
    sizes = [tensor.untyped_storage().nbytes() for tensor in saved.values()]
    return sum(sizes), max(sizes, default=0)


def evaluation_batch(largest: int, most: int) -> int:
    """Return the examples of a batch in evaluations: `most`, or a smaller power of two for large activations.

    >>> evaluation_batch(2**18, 1024), evaluation_batch(2**24, 1024)
    (1024, 16)
    """
    fitting = EVALUATION // max(1, 4 * largest)  # inputs and outputs of a layer, and what a convolution unpacks
    return min(most, 1 << max(0, fitting.bit_length() - 1))


def available(device: torch.device) -> int | None:
    """Return the bytes of memory that are free, or None where that is not known."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type != "cpu":
        return None
    found = [_meminfo(), _container()]
    return min((size for size in found if size is not None), default=None)


def check_memory(run: Run, net: nn.Module, kept: int, device: torch.device, ranks: int = 1) -> None:
    """Raise MemoryError if a training step needs more memory than there is, naming the largest batch that fits.

    Args:
        run: its batch size, precision and optimiser count.
        net: the net.
        kept: bytes of one example's `activations`.
        device: of the net.
        ranks: processes that share a batch.
    """
    free = available(device)
    weights = sum(parameter.nbytes for parameter in net.parameters()) * (2 + _STATES.get(run.optimiser, 1))
    per_example = max(1, int(OVERHEAD * kept / (ranks * (2 if run.precision.startswith("bf16") else 1))))
    need = run.batch_size * per_example + weights
    if free is None or need <= free:
        return
    fitting = max(0, free - weights) // per_example
    smaller = f"--batch-size {1 << (fitting.bit_length() - 1)}, " if fitting else ""
    raise MemoryError(
        f"net {run.net!r} with batches of {run.batch_size} needs about {need / 1e9:.1f} GB, but {free / 1e9:.1f} GB "
        f"are free on {device}; use {smaller}a smaller --image-size, or a smaller net (reweigh nets)"
    )


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def _container() -> int | None:
    """Return what the memory limit of a container (cgroup 2) leaves."""
    try:
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return limit - used + int(stat.get("inactive_file", 0))  # files in memory give way
    except (OSError, ValueError):  # no container, or "max"
        return None
