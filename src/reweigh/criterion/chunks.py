"""The criterion of a linear layer, a chunk of examples at a time.

The gradients are computed in the forward pass, and unnormalised: each chunk's s w relative to 2^level, the largest size
of s w met so far, rounded up. When a chunk raises the level, what has been gathered is divided by the power of two in
between, which costs no digits. Normaliser, mean and incoming gradient are one factor at the end.

float16 ends at 65504, which the sum over many examples may exceed where their mean does not: there the gradient of the
weight is in units of 2^(level + room), with as much room as a bound on the sum asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import linear

from reweigh import ops as kernels
from reweigh.criterion.emit import over_group
from reweigh.criterion.options import Options
from reweigh.margin import at_least_float32, log_probabilities, margin_and_pull
from reweigh.weightings.compose import has_classes, log_taper, select
from reweigh.weightings.parameter import is_none

LOG2 = math.log(2)
# Sums of float16 stay below 2^SAFE, half of where it ends: the bound knows nothing of rounding.
SAFE = 15


class Labels(NamedTuple):
    """Class indices (0 where ignored), s = class weight x sample weight x valid, valid, and how many at a time."""

    target: Tensor
    s: Tensor
    valid: Tensor
    chunk: int


class Sums(NamedTuple):
    """What the chunks add up to: Σ s (-log p); log2 of the unit that s w is in; Σ s w in it; and gradients.

    That of the bias has at least 32 bits, that of the weight its type, and it alone is in units of 2^(level + room).
    """

    surprise: Tensor
    level: Tensor
    total: Tensor
    room: Tensor
    gradients: list[Tensor | None]


def accumulate(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Labels, options: Options, wanted: tuple[bool, ...]
) -> Sums:
    """One pass over the chunks; of the gradients of hidden, weight and bias those that are wanted."""
    surprise, total, bound, room = (labels.s.new_zeros(()) for _ in range(4))
    level = labels.s.new_full((), -math.inf)
    units = torch.zeros_like(labels.s)
    of_hidden = torch.zeros_like(hidden) if wanted[0] else None
    of_weight = torch.zeros_like(weight) if wanted[1] else None
    of_bias = at_least_float32(torch.zeros_like(bias)) if wanted[2] and bias is not None else None
    for start in range(0, len(hidden), labels.chunk):
        part = slice(start, start + labels.chunk)
        x, y, s = hidden[part], labels.target[part], labels.s[part]
        m, push = _measure(linear(x, weight, bias), y)
        log_p, log_q = log_probabilities(m)
        weighting = options.weighting
        if has_classes(weighting):
            weighting = select(weighting, y, weight.shape[0])
        log_w = weighting.log_weight(log_p, log_q)
        s_active = torch.where(labels.valid[part] & (m != math.inf), s, 0.0)
        surprise = surprise + torch.where(s == 0, 0.0, -s * log_p).sum()

        before = level
        log_sw = torch.where(s_active == 0, -math.inf, log_w + s_active.abs().log())
        level = torch.maximum(level, (log_sw.amax() / LOG2).ceil())
        unit = torch.where(level == -math.inf, 0.0, level)
        shrink = (before - unit).exp2()
        sw = s_active.sign() * (log_sw - unit * LOG2).exp()
        total = total * shrink + sw.sum()
        if not any(wanted):
            del push
            continue
        units[part] = level
        d = push(sw * log_taper(log_q, options.taper).exp())
        if of_hidden is not None:
            torch.mm(d, weight, out=of_hidden[part])
        if of_bias is not None:
            of_bias.mul_(shrink).add_(d.sum(0, dtype=of_bias.dtype))
        if of_weight is not None:
            rescale = shrink
            if of_weight.dtype == torch.float16:
                bound = bound * shrink + (sw.abs() * torch.linalg.vector_norm(x, math.inf, 1)).sum() / 2
                before, room = room, (bound.log2().ceil() - SAFE).clamp_min(0)
                rescale, x = shrink * (before - room).exp2(), x * (-room).exp2()
            if start > 0:
                _rescale(of_weight, rescale)
            of_weight.addmm_(d.T, x)
        del d, push  # the logits, before there are the next chunk's
    if of_hidden is not None:
        of_hidden *= (units - torch.where(level == -math.inf, 0.0, level)).exp2().to(hidden.dtype)[:, None]
    return Sums(surprise, level, total, room, [of_hidden, of_weight, of_bias])


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
    """log Σ s w over all chunks, and over the process group; -inf where nothing counts, NaN where a NaN does."""
    nothing = (sums.total == 0) | (is_none(sums.level * LOG2) & ~sums.total.isnan())
    log_z = torch.where(nothing, -math.inf, sums.level * LOG2 + sums.total.log())
    if options.process_group is None:
        return log_z
    top = log_z.clone()
    dist.all_reduce(top, dist.ReduceOp.MAX, options.process_group)
    top = torch.where(top == -math.inf, 0.0, top)
    return top + over_group((log_z - top).exp(), options.process_group).log()
