"""The criterion of a linear layer, a chunk of examples at a time.

The gradients are computed in the forward pass, and unnormalised: each chunk's weights relative to 2^level, the largest
weight met so far, rounded up. When a chunk raises the level, what has been gathered is divided by the power of two in
between, which costs no digits. Normaliser, mean and incoming gradient are one factor at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import linear

from reweigh import kernels
from reweigh.criterion.emit import over_group
from reweigh.criterion.options import Options
from reweigh.direction import log_probabilities, margin_and_pull
from reweigh.weighting.compose import has_classes, log_taper, select

LOG2 = math.log(2)


class Labels(NamedTuple):
    """Class indices (0 where ignored), s = class weight x sample weight x valid, valid, and how many at a time."""

    target: Tensor
    s: Tensor
    valid: Tensor
    chunk: int


class Sums(NamedTuple):
    """What the chunks add up to: Σ s (-log p); log2 of the unit that weights are in; Σ s w in it; and gradients."""

    surprise: Tensor
    level: Tensor
    total: Tensor
    gradients: list[Tensor | None]


def accumulate(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Labels, options: Options, wanted: tuple[bool, ...]
) -> Sums:
    """One pass over the chunks; of the gradients of hidden, weight and bias those that are wanted."""
    surprise, total = labels.s.new_zeros(()), labels.s.new_zeros(())
    level = labels.s.new_full((), -math.inf)
    units = torch.zeros_like(labels.s)
    of_hidden, of_weight, of_bias = (
        torch.zeros_like(x) if x is not None and want else None
        for x, want in zip((hidden, weight, bias), wanted, strict=True)
    )
    for start in range(0, len(hidden), labels.chunk):
        part = slice(start, start + labels.chunk)
        x, y, s = hidden[part], labels.target[part], labels.s[part]
        m, push = _measure(linear(x, weight, bias), y)
        log_p, log_q = log_probabilities(m)
        weighting = select(options.weighting, y) if has_classes(options.weighting) else options.weighting
        log_w = weighting.log_weight(log_p, log_q)
        s_active = torch.where(labels.valid[part] & (m != math.inf), s, 0.0)
        surprise = surprise + torch.where(s == 0, 0.0, -s * log_p).sum()

        before = level
        level = torch.maximum(level, (torch.where(s_active == 0, -math.inf, log_w).amax() / LOG2).ceil())
        unit = torch.where(level == -math.inf, 0.0, level)
        shrink = (before - unit).exp2()
        w = torch.where(s_active == 0, 0.0, (log_w - unit * LOG2).exp())
        total = total * shrink + (s_active * w).sum()
        if not any(wanted):
            del push
            continue
        units[part] = level
        d = push(s_active * w * log_taper(log_q, options.taper).exp())
        if of_hidden is not None:
            torch.mm(d, weight, out=of_hidden[part])
        if of_weight is not None:
            if start > 0:
                _rescale(of_weight, shrink)
            of_weight.addmm_(d.T, x)
        if of_bias is not None:
            of_bias.mul_(shrink).add_(d.sum(0))
        del d, push  # the logits, before there are the next chunk's
    if of_hidden is not None:
        of_hidden *= (units - torch.where(level == -math.inf, 0.0, level)).exp2().to(hidden.dtype)[:, None]
    return Sums(surprise, level, total, [of_hidden, of_weight, of_bias])


def _measure(z: Tensor, y: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The margins of a chunk, and what turns their forces into the gradient of z, which may be overwritten."""
    if kernels.usable(z, y):
        return kernels.margin_and_push(z, y)
    m, pull = margin_and_pull(z, y)
    return m, lambda force: (pull * (force.to(pull.dtype) / 2)[:, None]).to(z.dtype)


def _rescale(sums: Tensor, factor: Tensor) -> None:
    """sums *= factor, which is mostly 1: a kernel sees that, and on a CPU so do we."""
    if kernels.usable(sums):
        kernels.rescale(sums, factor)
    elif torch.compiler.is_compiling() or sums.device.type != "cpu" or factor != 1:
        sums *= factor


def log_normaliser_of(sums: Sums, options: Options) -> Tensor:
    """log Σ s w over all chunks, and over the process group."""
    positive = sums.total > 0
    log_z = torch.where(positive, sums.level * LOG2 + torch.where(positive, sums.total, 1.0).log(), -math.inf)
    if options.process_group is None:
        return log_z
    top = log_z.clone()
    dist.all_reduce(top, dist.ReduceOp.MAX, options.process_group)
    top = torch.where(top == -math.inf, 0.0, top)
    return top + over_group((log_z - top).exp(), options.process_group).log()
