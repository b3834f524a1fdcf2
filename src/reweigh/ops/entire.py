"""The whole criterion in kernels: between the passes, too, and where it can be, in a single pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from reweigh.margin import is_batched
from reweigh.ops import launch
from reweigh.ops.direct import Launch
from reweigh.ops.launch import Fused, Weigh, Weights
from reweigh.ops.repeat import is_captured
from reweigh.ops.tiles import Layout, layout, power_of_two

# Up to so many logits, rows and columns rounded up to powers of two, a batch is the work of one program: one launch
# instead of three counts for more than what the rest of the GPU could do meanwhile. Outside of CUDA graphs a launch
# takes longer still.
AT_ONCE, AT_ONCE_EAGERLY = 2**13, 2**15
Factors = tuple[Tensor | None, Tensor | None]
Again = Callable[[Tensor, Tensor], Tensor]
LogWeight = Callable[[Tensor, Tensor, int], Tensor]


class Plan(NamedTuple):
    """What is launched for logits of a layout, forward (of `at_once` and `fused` one at most) and backward.

    With the weights of classes and examples, and `again`, which gives the value of logits and labels another way.
    `log_weight` is of (margins, target, C), and asked where no kernel can weigh. `eager` is a plan that is not for CUDA
    graphs.
    """

    at: Layout
    weights: Weights
    inplace: bool
    factors: Factors
    again: Again
    log_weight: LogWeight
    eager: bool
    at_once: Launch | None
    fused: Fused | None
    measure: Launch
    weigh: Weigh
    back: Launch


def plan(
    logits: Tensor,
    target: Tensor,
    weights: Weights,
    factors: Factors,
    inplace: bool,
    again: Again,
    log_weight: LogWeight,
) -> Plan:
    """A single pass needs the scale beforehand: not under batch normalisation, unless one program has the batch.

    And it needs weights that a kernel knows.
    """
    at = layout(logits, inplace, target, *factors)
    size = power_of_two(at.n) * power_of_two(at.c)
    eager = not weights.given and AT_ONCE < size <= AT_ONCE_EAGERLY and not is_captured(logits)
    small = not weights.given and (eager or size <= AT_ONCE)
    at_once = launch.at_once(at, weights) if small else None
    fused = None if small or weights.given or weights.batch else launch.fused(at, weights)
    weigh = launch.weigh_book(at, weights)
    if small or fused:
        back = launch.rescale(at, 0, fused is not None and fused.presumed)
    else:
        back = launch.emit(at, weights.ignore_index, 0, _force(weigh))
    measure = launch.measure(at, weights.ignore_index)
    return Plan(at, weights, inplace, factors, again, log_weight, eager, at_once, fused, measure, weigh, back)


class Whole(torch.autograd.Function):
    """The value, and the gradient: written in the forward pass (one read, one write) or in the backward (two reads).

    A gradient of the forward pass is scaled where it is by the incoming one, so that it can be handed out once; a
    second backward pass, and one to be differentiated again, take the value `again` another way.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, plan: Plan) -> Tensor:
        ctx.plan, ctx.gradient, ctx.correction = plan, None, None
        factors, rows = plan.factors, plan.at.n if plan.weights.reduction == "none" else ()
        if not ctx.needs_input_grad[0] or (plan.at_once is None and plan.fused is None):
            book = _book(logits, 5)
            plan.measure(logits, target, book)
            if plan.weights.given:
                book[3] = plan.log_weight(book[0], target, plan.at.c)
            value = logits.new_empty(rows, dtype=torch.float32)
            settled = None
            if plan.weigh.settle is not None:
                settled = logits.new_empty(plan.weigh.room, dtype=torch.float64)
            plan.weigh.rows(book, target, value, settled, *factors)
            if plan.weigh.settle is not None:
                plan.weigh.settle(settled, value)
            ctx.save_for_backward(logits, target, book, settled)
            return value
        ctx.gradient = gradient = _room(logits, plan.inplace)
        if plan.fused is not None:
            value, ctx.correction = _fuse(plan.fused, logits, target, gradient, factors)
        elif plan.at_once is not None:
            value = logits.new_empty(rows, dtype=torch.float32)
            plan.at_once(logits, target, gradient, value, *factors)
        if plan.inplace:
            increment_version(logits)
        ctx.save_for_backward(logits, target)
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None]:
        plan, gradient = ctx.plan, ctx.gradient
        if torch.is_grad_enabled() or is_batched(incoming):
            logits, target = ctx.saved_tensors[:2]
            return _otherwise(plan.again, plan.inplace, logits, target, incoming), None, None
        stride = launch.step(incoming)
        if gradient is not None:
            ctx.gradient = None
            back = plan.back if stride == 0 else launch.rescale(plan.at, stride, ctx.correction is not None)
            back(gradient, incoming, ctx.correction)
        elif plan.at_once or plan.fused:
            logits, target = ctx.saved_tensors
            return _otherwise(plan.again, plan.inplace, logits, target, incoming), None, None
        else:
            logits, target, book, settled = ctx.saved_tensors
            gradient = _room(logits, plan.inplace)
            back = plan.back
            if stride:
                back = launch.emit(plan.at, plan.weights.ignore_index, stride, _force(plan.weigh))
            back(logits, target, gradient, book, settled, incoming)
        if plan.inplace:
            increment_version(ctx.saved_tensors[0])
        return gradient, None, None


class Weighed(torch.autograd.Function):
    """Pass one, `weigh(logits, target, margins)` -> (value, c) in plain torch without a graph, and pass two."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        ignore_index: int,
        inplace: bool,
        weigh: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
        again: Again,
    ) -> Tensor:
        book = measure(logits, target, ignore_index)
        value, coefficient = weigh(logits, target, book[0])
        ctx.ignore_index, ctx.inplace, ctx.again = ignore_index, inplace, again
        ctx.save_for_backward(logits, target, book, coefficient)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (logits, target, book, coefficient), (incoming,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled() or is_batched(incoming):
            gradient = _otherwise(ctx.again, ctx.inplace, logits, target, incoming)
        else:
            force = incoming.to(coefficient.dtype) * coefficient
            gradient = emit(logits, target, book, force, ctx.ignore_index, ctx.inplace)
            if ctx.inplace:
                increment_version(logits)
        return gradient, None, None, None, None, None


def measure(logits: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Pass one: margin, top and rest, N numbers a line."""
    book = _book(logits, 3)
    launch.measure(layout(logits, True, target), ignore_index)(logits, target, book)
    return book


def emit(logits: Tensor, target: Tensor, book: Tensor, force: Tensor, ignore_index: int, inplace: bool) -> Tensor:
    """Pass two: force_i (softmax over the others - onehot_y) / 2, which may take the place of the logits."""
    gradient = _room(logits, inplace)
    at = layout(logits, inplace, target, force)
    pass_two = launch.emit(at, ignore_index, launch.step(force), launch.PLAIN)
    pass_two(logits, target, gradient, book, None, force)
    return gradient


def rescale(sums: Tensor, factor: Tensor) -> None:
    """sums *= factor, row by row or all at once."""
    launch.rescale(layout(sums, True, factor), launch.step(factor), False)(sums, factor, None)


def _fuse(
    fused: Fused, logits: Tensor, target: Tensor, gradient: Tensor, factors: Factors
) -> tuple[Tensor, Tensor | None]:
    settled = None
    if fused.counted is not None:
        settled = logits.new_empty(1, dtype=torch.float64)
        fused.counted(settled, target, *factors)
    partial = logits.new_empty(fused.room, dtype=torch.float32)
    fused.one(logits, target, gradient, partial, *factors, settled)
    if fused.tally is None:
        return partial, None
    value = logits.new_empty((), dtype=torch.float32)
    fused.tally(partial, value)
    return value, partial[-1] if fused.presumed else None


def _force(weigh: Weigh) -> int:
    return launch.SHARED if weigh.settle is None else launch.UNSETTLED


def _book(logits: Tensor, lines: int) -> Tensor:
    return logits.new_empty((lines, logits.shape[0]), dtype=torch.float64)


def _room(logits: Tensor, inplace: bool) -> Tensor:
    return logits.detach() if inplace else torch.empty_like(logits, memory_format=torch.contiguous_format)


def _otherwise(again: Again, inplace: bool, logits: Tensor, target: Tensor, incoming: Tensor) -> Tensor:
    if inplace:
        raise RuntimeError("inplace=True overwrites the logits: there is nothing left to differentiate a second time")
    create = torch.is_grad_enabled()
    if not create and torch._C._are_functorch_transforms_active():  # vmap: nothing may begin to require a gradient
        gradients: tuple[Tensor, ...] = torch.func.vjp(lambda z: again(z, target), logits.detach())[1](incoming)
        return gradients[0]
    with torch.enable_grad():
        z = logits if create else logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(again(z, target), z, incoming, create_graph=create)
    return gradient
