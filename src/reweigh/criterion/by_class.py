"""Normalisation within every class, so that no class can take the weight of another."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from reweigh.criterion.emit import CEILING, counted, over_group
from reweigh.weightings.parameter import entries, is_none


def log_class_totals(
    log_w: Tensor, s: Tensor, active: Tensor, index: Tensor, num_classes: int, group: Any = None
) -> Tensor:
    """What the s w of every label is divided by: L_c = log Σ_c s w - log (Σ_c s / Σ s), its class being c.

    So a class has that share of the whole pull which it has of s, and w decides who gets how much of it within. A label
    whose class weighs nothing has -inf.

    Args:
        log_w: of every label, any shape.
        s: class weight x sample weight x valid.
        active: where there is a derivative to give.
        index: the class of every label; it and the two before broadcast to log_w.
        num_classes: C.
        group: of processes whose labels count together.

    >>> log_w, y = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0, 0, 1])
    >>> (log_w - log_class_totals(log_w, torch.ones(3), torch.ones(3) > 0, y, 2)).exp()
    tensor([0.1793, 0.4874, 0.3333])
    """
    where = index.expand(log_w.shape).reshape(-1)

    def per_class(x: Tensor) -> Tensor:
        own = x.new_zeros(num_classes).index_add(0, where, x.expand(log_w.shape).reshape(-1))
        return over_group(own, group)

    top = torch.where(active & (s != 0), log_w.detach(), -math.inf).expand(log_w.shape).reshape(-1)
    top = top.new_full((num_classes,), -math.inf).scatter_reduce(0, where, top, "amax")
    if group is not None:
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
    top = torch.where(is_none(top), 0.0, top)
    w = (log_w - entries(top, index)).clamp_max(CEILING[log_w.dtype]).exp()
    total, mass = per_class(torch.where(active, s * counted(w, s), 0.0)), per_class(torch.where(active, s, 0.0))
    nothing, everything = total == 0, mass.sum()
    share = torch.where(nothing, 1.0, mass / torch.where(everything == 0, 1.0, everything))
    log_total = torch.where(nothing, -math.inf, top + torch.where(nothing, 1.0, total).log() - share.log())
    return entries(log_total, index)
