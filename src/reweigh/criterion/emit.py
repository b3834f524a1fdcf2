"""The last step: weights, normalisation and taper become the gradient of the margins.

Reductions (s = class weight x sample weight x valid):

    |      | None or "unit"  | "batch"                         | "class", c being that of the label |
    |------|-----------------|---------------------------------|------------------------------------|
    | none | s w per example | its share s w / Σ s w           | s w / Σ_c s w · Σ_c s / Σ s        |
    | sum  | sum of s w      | refused: DN is its own divisor  | refused                            |
    | mean | divided by Σ s  | shares; DN replaces the divisor | shares                             |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from reweigh.criterion.options import Options
from reweigh.emphasis import potential
from reweigh.margin import is_forward_mode, log_probabilities
from reweigh.weightings import Weighting
from reweigh.weightings.compose import log_taper
from reweigh.weightings.parameter import is_none

CEILING = {torch.float64: 700, torch.float32: 80}  # of log w relative to the largest that counts


class Emit(torch.autograd.Function):
    """Return `value`, and hand `margin` the derivative -coefficient / 2 whatever the value is.

    The coefficient stays in the graph of the backward pass: a second differentiation sees how w, the normaliser and
    the sample weights move, so that Criterion(CCE()) has the Hessian of cross entropy, not that of a frozen weight.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, margin: Tensor, coefficient: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (coefficient,), (gradient,) = ctx.saved_tensors, gradients
        return gradient, gradient * coefficient / -2, None


class EmitForward(Emit):
    """`Emit` with the same derivative in forward mode, which a compiler would refuse to read."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def jvp(ctx: Any, value: Tensor, margin: Tensor, _: Tensor) -> Tensor:
        (coefficient,) = ctx.saved_tensors
        slope: Tensor = margin * coefficient / -2
        return value + slope


def emit(value: Tensor, margin: Tensor, coefficient: Tensor) -> Tensor:
    """One term per label: its value, and through autograd its derivative; sum them or not, as the reduction says."""
    function = EmitForward if not torch.compiler.is_compiling() and is_forward_mode() else Emit
    return function.apply(value, margin, coefficient)  # type: ignore[no-any-return, no-untyped-call]


def weigh(
    margin: Tensor,
    s: Tensor,
    active: Tensor,
    divisor: Tensor,
    weighting: Weighting,
    options: Options,
    log_normaliser: Tensor | float | None,
    total: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """The value of every label, and the coefficient of its direction.

    Args:
        margin: m, any shape.
        s: class weight x sample weight x valid, shaped like m.
        active: where there is a derivative to give: a valid target, and some other class to turn to.
        divisor: what a mean divides by (by 1 where it is 0 in the whole process group).
        weighting: w, its parameters already chosen by label.
        options: the resolved settings.
        log_normaliser: log Σ s w of all micro-batches, in place of this call's own.
        total: log w -> this call's own, one number or one for each label.
    """
    log_p, log_q = log_probabilities(margin)
    log_w = weighting.log_weight(log_p, log_q)
    size = group_size(options.process_group)
    if options.reduction == "mean":
        divisor = over_group(divisor, options.process_group)
        mean = size / torch.where(divisor == 0, 1.0, divisor)
    else:
        mean = torch.ones_like(divisor)
    if options.shares:
        if log_normaliser is None:
            log_normaliser = total(log_w)
        log_z = torch.as_tensor(log_normaliser, dtype=log_w.dtype, device=log_w.device)
        log_scale = torch.where(log_z == -math.inf, 0.0, -log_z)  # all weights zero: leave them so
        scale = torch.full_like(divisor, size)
    else:
        log_scale, scale = torch.zeros_like(divisor), mean
    w = counted((log_w + log_scale + log_taper(log_q, options.taper)).exp(), s)
    coefficient = torch.where(active, scale * s * w, 0.0)
    if options.value == "objective":
        factor = (log_scale.exp() * scale).detach()  # a frozen normaliser: only the coefficient makes a gradient
        value = potential(weighting, margin.detach(), options.taper).to(log_w.dtype) * factor
    else:
        value = -log_p.detach() * mean
    return s * counted(value, s), coefficient


def counted(x: Tensor, s: Tensor) -> Tensor:
    """x, about to be multiplied by s: a label that counts for nothing adds nothing, even an infinite or NaN one.

    A finite x stays, so that the product has its derivative at s = 0.
    """
    return torch.where(s == 0, x.nan_to_num(0.0, 0.0, 0.0), x)


def log_total(log_w: Tensor, s: Tensor, active: Tensor, group: Any) -> Tensor:
    """log Σ s w over the batch and the process group; -inf where nothing counts, NaN where something NaN does.

    Taken relative to the largest weight that counts, so that no β overflows, and with s outside the logarithm, so
    that it can be differentiated at s = 0.
    """
    top = torch.where(active & (s != 0), log_w.detach(), -math.inf)
    top = top.amax() if top.numel() else top.new_full((), -math.inf)
    if group is not None:
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
    top = torch.where(is_none(top), 0.0, top)
    # the ceiling only meets labels with s = 0, whose infinite weight must not become 0 * inf
    w = (log_w - top).clamp_max(CEILING[log_w.dtype]).exp()
    total = over_group(torch.where(active, s * counted(w, s), 0.0).sum(), group)
    nothing = total == 0
    return torch.where(nothing, -math.inf, top + torch.where(nothing, 1.0, total).log())


def group_size(group: Any) -> float:
    return 1.0 if group is None else float(dist.get_world_size(group))


def over_group(local: Tensor, group: Any) -> Tensor:
    """The sum over the process group; what other ranks add is a constant to autograd."""
    if group is None:
        return local
    everywhere = local.detach().clone()
    dist.all_reduce(everywhere, dist.ReduceOp.SUM, group)
    return local + (everywhere - local.detach())
