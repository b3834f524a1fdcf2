"""Initial values of one layer, drawn from a given generator."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def fan_in(weight: Tensor) -> int:
    """Return the number of inputs of one output: C_in * k * k for a convolution.

    >>> fan_in(torch.empty(16, 3, 5, 5))
    75
    """
    return weight[0].numel()


@torch.no_grad()
def he_normal(module: nn.Module, generator: torch.Generator) -> None:
    """Fill convolutions with N(0, 2 / fan_in), bias 0; linear layers with U(+-1/sqrt(fan_in)); norms with 1 and 0.

    Other modules are unchanged.
    """
    if isinstance(module, nn.Conv2d):
        module.weight.normal_(0.0, math.sqrt(2 / fan_in(module.weight)), generator=generator)
        _constant_bias(module, 0.0)
    elif isinstance(module, nn.Linear):
        bound = 1 / math.sqrt(fan_in(module.weight))
        module.weight.uniform_(-bound, bound, generator=generator)
        module.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        module.reset_parameters()  # constants: 1, 0 and fresh running statistics


@torch.no_grad()
def caffe_xavier(module: nn.Module, generator: torch.Generator, *, bias: float = 0.0) -> None:
    """Fill as Caffe's xavier filler: U(+-sqrt(3 / fan_in)), variance 1 / fan_in; every bias constant.

    torch's `xavier_uniform_` differs: it uses fan_in + fan_out.
    """
    if isinstance(module, nn.Conv2d | nn.Linear):
        bound = math.sqrt(3 / fan_in(module.weight))
        module.weight.uniform_(-bound, bound, generator=generator)
        _constant_bias(module, bias)


@torch.no_grad()
def truncated_normal(module: nn.Conv2d | nn.Linear, generator: torch.Generator, *, std: float, bias: float) -> None:
    """Fill as TensorFlow's truncated normal: N(0, std^2), redrawn beyond two standard deviations; constant bias."""
    nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
    _constant_bias(module, bias)


def _constant_bias(module: nn.Conv2d | nn.Linear, value: float) -> None:
    if module.bias is not None:
        module.bias.fill_(value)
