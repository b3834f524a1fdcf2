"""convolution.cu, compiled for the images at hand: rows of an image wait in shared memory for all nine taps.

At 16 channels it takes little more than half the time of the kernels in Triton, at 32 nine tenths, at 64 more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Block(NamedTuple):
    """What a block of threads works on: so many rows of an image, for so many output channels."""

    rows: int
    out: int
    warps: int


# By number of channels, as measured on an H200. The warps of a correlation come in threes, one for each row of taps;
# and the number of blocks, each of which leaves a part of the sum, is limited.
CONVOLVE = {16: Block(16, 16, 8), 32: Block(16, 32, 8)}
CORRELATE = {16: Block(16, 16, 12), 32: Block(16, 16, 6)}
PARTS = {16: 264, 32: 132}
SHARED = 48 * 1024  # bytes that a block may have without being asked about it


class Passes(NamedTuple):
    """The three passes over n images of a certain size."""

    convolve: Callable[[Tensor, Tensor], Tensor]
    turn: Callable[[Tensor, Tensor], Tensor]
    correlate: Callable[[Tensor, Tensor], Tensor]


@lru_cache
def passes(channels: int, height: int, width: int, device: int) -> Passes | None:
    """The passes, or None where this torch can't compile them, or images do not fall into strips without a rest."""
    compiler = getattr(torch.cuda, "_compile_kernel", None)  # from torch 2.9 on
    if compiler is None or torch.version.hip is not None or not fits(channels, height, width):
        return None
    if torch.cuda.get_device_capability(device) < (8, 0):
        return None
    source = files("reweigh.lab.train").joinpath("convolution.cu").read_text(encoding="utf-8")

    def kernel(name: str, block: Block) -> Callable[..., None]:
        size = {"C": channels, "H": height, "W": width, "TH": block.rows, "OUT": block.out}
        defined = size | {"WARPS": block.warps, "GROUPS": max(1, block.warps // 3)}
        result: Callable[..., None] = compiler(source, name, nvcc_options=[f"-D{k}={v}" for k, v in defined.items()])
        return result

    convolution, correlation = CONVOLVE[channels], CORRELATE[channels]
    try:
        with torch.cuda.device(device):
            forward, turned = kernel("convolve", convolution), kernel("turn", convolution)
            parts_of, gather = kernel("correlate", correlation), kernel("gather", correlation)
    except (OSError, RuntimeError):  # no compiler beside this torch
        return None
    strips = height // convolution.rows, height // correlation.rows

    def convolve_by(kernel: Callable[..., None], transposed: bool) -> Callable[[Tensor, Tensor], Tensor]:
        shared = convolution_bytes(channels, width, transposed)

        def convolve(x: Tensor, w: Tensor) -> Tensor:
            y = torch.empty_like(x, memory_format=torch.channels_last)
            grid = (len(x) * strips[0], channels // convolution.out, 1)
            kernel(grid=grid, block=(32 * convolution.warps, 1, 1), args=[x, w, y], shared_mem=shared)
            return y

        return convolve

    def correlate(x: Tensor, g: Tensor) -> Tensor:
        count = min(len(x) * strips[1], PARTS[channels])
        parts = x.new_empty((count, channels, 3, 3, channels), dtype=torch.float32)
        total = x.new_empty((channels, 3, 3, channels), dtype=torch.float32)
        args: list[Any] = [x, g, parts, len(x) * strips[1]]
        grid, block = (count, channels // correlation.out, 1), (32 * correlation.warps, 1, 1)
        parts_of(grid=grid, block=block, args=args, shared_mem=correlation_bytes(channels, width))
        gather(grid=(total.numel() // 32, 1, 1), block=(512, 1, 1), args=[parts, total, count])
        return total.permute(0, 3, 1, 2)

    return Passes(convolve_by(forward, False), convolve_by(turned, True), correlate)


def fits(channels: int, height: int, width: int) -> bool:
    """Do images fall into strips and these into tiles without a rest, and a block's share into its memory?"""
    if channels not in CONVOLVE:
        return False
    whole = all(height % block.rows == 0 for block in (CONVOLVE[channels], CORRELATE[channels]))
    tiles = CONVOLVE[channels].rows * width % (16 * CONVOLVE[channels].warps) == 0
    needed = max(convolution_bytes(channels, width, turned) for turned in (False, True))
    return whole and tiles and max(needed, correlation_bytes(channels, width)) <= SHARED


def convolution_bytes(channels: int, width: int, transposed: bool) -> int:
    """Shared memory of a block: a strip of the image with a pixel around it, and the weights."""
    rows, out, _ = CONVOLVE[channels]
    weights = channels * (out + 8) if transposed else out * (channels + 8)
    return (rows + 2) * (width + 2) * channels * 2 + 9 * weights * 2


def correlation_bytes(channels: int, width: int) -> int:
    """Shared memory of a block: two strips, and later what all groups of warps but one have summed."""
    rows, out, warps = CORRELATE[channels]
    strips = ((rows + 2) * (width + 2) + rows * width) * channels * 2
    sums = (warps // 3 - 1) * 9 * channels * out * 4
    return max(strips, sums)
