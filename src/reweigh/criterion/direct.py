"""The criterion on a CPU in one step of autograd, where nobody asks for more than the gradient of the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reweigh.direction import class_dim

Found = tuple[Tensor, Tensor, Tensor]
"""The value, c shaped like the target, and softmax over the others - onehot_y: the gradient is c / 2 times that."""


def is_direct(*others: Tensor | float | None) -> bool:
    """Whether the gradient of the logits is all there can be: no transform, and none of the others has its own."""
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not any(isinstance(other, Tensor) and other.requires_grad for other in others)
    )


class Direct(torch.autograd.Function):
    """`find(logits)` without a graph. The dozens of operations on N numbers take a third less time so.

    A gradient that is to be differentiated again is that of `again(logits)`, the same value with a graph.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, find: Callable[[Tensor], Found], again: Callable[[Tensor], Tensor]) -> Tensor:
        value, coefficient, pull = find(logits)
        ctx.again = again
        ctx.save_for_backward(logits, coefficient, pull)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (logits, coefficient, pull), (incoming,) = ctx.saved_tensors, gradients
        if torch.is_grad_enabled():
            (gradient,) = torch.autograd.grad(ctx.again(logits), logits, incoming, create_graph=True)
            return gradient, None, None
        size = (incoming.to(coefficient.dtype) * coefficient / 2).to(pull.dtype).unsqueeze(class_dim(logits))
        return (size * pull).to(logits.dtype), None, None
