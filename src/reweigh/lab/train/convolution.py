"""3x3 convolutions of few channels in bfloat16, for which cuDNN's kernels use little of the GPU.

A ResNet for CIFAR spends two thirds of a step in convolutions of 16, 32 and 64 channels. Here each is an implicit
matrix product over pixels, in Triton, that reads the weights in float32 (without copies in bfloat16) and computes their
gradient in float32. Products are in bfloat16, sums in float32 and in a fixed order: unlike cuDNN's fastest kernels,
these are deterministic.

Layouts are channels-last: images (n, h, w, c), weights (out, 3, 3, in).
"""

from __future__ import annotations

from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# By number of channels, measured on an H200: pixels in a block and warps, and for the gradient of the weights also the
# blocks per program.
CONVOLVE = {16: (256, 2), 32: (256, 8), 64: (128, 8)}
CORRELATE = {16: (128, 2, 16), 32: (64, 2, 8), 64: (64, 4, 8)}


def use_small_convolutions(net: nn.Module) -> int:
    """Make the small convolutions of a net use these kernels under bfloat16 autocast, and return their number.

    Small are those of 3x3 at stride 1 with padding 1, without bias, from 16, 32 or 64 channels to as many. The net must
    be channels-last.
    """
    if find_spec("triton") is None:
        return 0
    chosen = [module for module in net.modules() if isinstance(module, nn.Conv2d) and _fits(module)]
    for module in chosen:
        module.forward = MethodType(_forward, module)  # type: ignore[method-assign]  # state dicts stay the same
    return len(chosen)


def _fits(module: nn.Conv2d) -> bool:
    return (
        module.in_channels == module.out_channels
        and module.in_channels in CONVOLVE
        and (module.kernel_size, module.stride, module.dilation) == ((3, 3), (1, 1), (1, 1))
        and (module.padding, module.padding_mode, module.groups) == ((1, 1), "zeros", 1)
        and module.bias is None
        and module.weight.dtype == torch.float32
        and module.weight.is_contiguous(memory_format=torch.channels_last)
    )


def _forward(self: nn.Conv2d, x: Tensor) -> Tensor:
    if x.is_cuda and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16:
        x = x.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
        result: Tensor = torch.ops.reweigh.small_convolution(x, self.weight)
        return result
    return functional.conv2d(x, self.weight, padding=1)


@torch.library.custom_op("reweigh::small_convolution", mutates_args=(), device_types="cuda")
def _convolution(x: Tensor, w: Tensor) -> Tensor:
    return _convolved(x, w, False)


@torch.library.custom_op("reweigh::small_convolution_input", mutates_args=(), device_types="cuda")
def _input_gradient(g: Tensor, w: Tensor) -> Tensor:
    return _convolved(g, w, True)


def _convolved(x: Tensor, w: Tensor, transposed: bool) -> Tensor:
    from reweigh.lab.train.convolution_kernels import convolve

    n, channels, height, width = x.shape
    block, warps = CONVOLVE[channels]
    pixels = n * height * width
    y = torch.empty_like(x, memory_format=torch.channels_last)
    grid = (-(-pixels // block),)
    convolve[grid](x, w, y, pixels, height, width, channels, block, transposed, num_warps=warps)
    return y


@torch.library.custom_op("reweigh::small_convolution_weight", mutates_args=(), device_types="cuda")
def _weight_gradient(x: Tensor, g: Tensor) -> Tensor:
    from reweigh.lab.train.convolution_kernels import correlate

    n, channels, height, width = x.shape
    block, warps, steps = CORRELATE[channels]
    pixels = n * height * width
    programs = -(-pixels // (block * steps))
    parts = x.new_empty((programs, channels, 3, 3, channels), dtype=torch.float32)
    correlate[programs, 3](x, g, parts, pixels, height, width, channels, block, steps, num_warps=warps)
    return parts.sum(0).permute(0, 3, 1, 2)


@_convolution.register_fake
def _like_convolution(x: Tensor, w: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.channels_last)


@_input_gradient.register_fake
def _like_input(g: Tensor, w: Tensor) -> Tensor:
    return torch.empty_like(g, memory_format=torch.channels_last)


@_weight_gradient.register_fake
def _like_weight(x: Tensor, g: Tensor) -> Tensor:
    channels = x.shape[1]
    return x.new_empty((channels, 3, 3, channels), dtype=torch.float32).permute(0, 3, 1, 2)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    x, w = ctx.saved_tensors
    g = g.contiguous(memory_format=torch.channels_last)
    return torch.ops.reweigh.small_convolution_input(g, w), torch.ops.reweigh.small_convolution_weight(x, g)


_convolution.register_autograd(_backward, setup_context=_save)
