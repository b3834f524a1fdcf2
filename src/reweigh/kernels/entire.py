"""The whole criterion in kernels: between the passes, too, and where it can be, in a single pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from reweigh.direction import is_batched
from reweigh.kernels import launch
from reweigh.kernels.launch import Weights

# Up to so many logits, rows and columns rounded up to powers of two, a batch is the work of one program: one launch
# instead of three counts for more than what the rest of the GPU could do meanwhile.
AT_ONCE = 2**13
# From so many logits on, writing the gradient in the forward pass beats reading the logits twice; and always where it
# needs no launch to count the rows.
SINGLE_PASS_FROM = 2**19


class Whole(torch.autograd.Function):
    """The value, and the gradient: written in the forward pass (one read, one write) or in the backward (two reads).

    A single pass needs the scale beforehand: not under batch normalisation, unless one program has the whole batch. Its
    gradient is scaled where it is by the incoming one, so that it can be handed out once; a second backward pass, and
    one to be differentiated again, take the value `again` another way.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, weights: Weights, inplace: bool, again: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.weights, ctx.inplace, ctx.again = weights, inplace, again
        n, c = logits.shape
        small = launch.power_of_two(n) * launch.power_of_two(c) <= AT_ONCE
        fused = not weights.batch and (n * c >= SINGLE_PASS_FROM or n <= launch.COUNTED)
        ctx.single = ctx.needs_input_grad[0] and (small or fused)
        if ctx.single:
            ctx.gradient = _room(logits, inplace)
            value = (launch.at_once if small else launch.fused)(logits, target, weights, ctx.gradient)
            if inplace:
                increment_version(logits)
            ctx.save_for_backward(logits)
            return value
        book = launch.measure(logits, target, weights.ignore_index, lines=5)
        settled, value = launch.weigh_book(book, target, logits.shape[1], weights)
        ctx.save_for_backward(logits, target, book, settled)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, (incoming,) = ctx.saved_tensors[0], gradients
        if torch.is_grad_enabled() or is_batched(incoming) or (ctx.single and ctx.gradient is None):
            gradient = _otherwise(ctx, logits, incoming)
        elif ctx.single:
            gradient, ctx.gradient = ctx.gradient, None
            launch.rescale(gradient, incoming)
            if ctx.inplace:
                increment_version(logits)
        else:
            _, target, book, settled = ctx.saved_tensors
            gradient = _room(logits, ctx.inplace)
            launch.emit(logits, target, book, settled, incoming, ctx.weights.ignore_index, gradient)
            if ctx.inplace:
                increment_version(logits)
        return gradient, None, None, None, None


class Weighed(torch.autograd.Function):
    """Pass one, `weigh(logits, margins)` -> (value, c) in plain torch without a graph, and pass two: any weighting."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        ignore_index: int,
        inplace: bool,
        weigh: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        again: Callable[[Tensor], Tensor],
    ) -> Tensor:
        book = launch.measure(logits, target, ignore_index, lines=3)
        value, coefficient = weigh(logits, book[0])
        ctx.ignore_index, ctx.inplace, ctx.again = ignore_index, inplace, again
        ctx.save_for_backward(logits, target, book, coefficient)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (logits, target, book, coefficient), (incoming,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled() or is_batched(incoming):
            gradient = _otherwise(ctx, logits, incoming)
        else:
            gradient = _room(logits, ctx.inplace)
            force = incoming.to(coefficient.dtype) * coefficient
            launch.emit(logits, target, book, None, force, ctx.ignore_index, gradient)
            if ctx.inplace:
                increment_version(logits)
        return gradient, None, None, None, None, None


def _room(logits: Tensor, inplace: bool) -> Tensor:
    if inplace:
        return logits.detach()
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)


def _otherwise(ctx: Any, logits: Tensor, incoming: Tensor) -> Tensor:
    if ctx.inplace:
        raise RuntimeError("inplace=True overwrites the logits: there is nothing left to differentiate a second time")
    create = torch.is_grad_enabled()
    if not create and torch._C._are_functorch_transforms_active():  # vmap: nothing may begin to require a gradient
        gradients: tuple[Tensor] = torch.func.vjp(ctx.again, logits.detach())[1](incoming)
        return gradients[0]
    with torch.enable_grad():
        z = logits if create else logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(ctx.again(z), z, incoming, create_graph=create)
    return gradient
