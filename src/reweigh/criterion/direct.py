"""The criterion on a CPU in one step of autograd, where nobody asks for more than the gradient of the logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from reweigh.criterion.options import Options
from reweigh.margin import at_least_float32, class_dim, exponentials, is_batched, is_transformed, log_probabilities
from reweigh.ops import is_intercepted

Found = tuple[Tensor, Tensor | None, Tensor]
"""The value, a size shaped like the target, and a pull shaped like the logits: the gradient is one times the other.

The pull is any multiple of softmax over the others - onehot_y; without a size it is the gradient.
"""
Find = Callable[[Tensor, Tensor], Found]
Again = Callable[[Tensor, Tensor], Tensor]

# A heaviest weight between these is above 0, as `is_none` has it, and finite.
LEAST_LOG = torch.finfo(torch.float64).min * 1e-8
MOST_LOG = math.log(torch.finfo(torch.float64).max)


def is_direct(*others: Tensor | float | None) -> bool:
    """Whether the gradient of the logits is all there can be: no transform, and none of the others has its own."""
    return (
        not is_intercepted()
        and not is_transformed()
        and not any(isinstance(other, Tensor) and other.requires_grad for other in others)
    )


def is_plain(logits: Tensor, target: Tensor, options: Options) -> bool:
    """Whether rows lie on a CPU, are worth cross entropy, and are weighed by themselves or as a batch.

    Not for tensor subclasses, of which some have no values to look at.
    """
    return (
        logits.device.type == "cpu"
        and type(logits) in (Tensor, nn.Parameter)
        and type(target) is Tensor
        and logits.is_floating_point()
        and target.dtype == torch.int64
        and logits.ndim == 2
        and logits.numel() > 0
        and target.shape == logits.shape[:1]
        and target.device == logits.device
        and (options.value, options.process_group) == ("cross_entropy", None)
        and options.normalise != "class"
        and not isinstance(options.taper, Tensor)
    )


def plainly(logits: Tensor, target: Tensor, options: Options, ignore_index: int) -> Found | None:
    """What `weigh` finds for a mean where every label counts once, in half of its operations; None where one does not.

    With a few rows these take longer than the passes over the logits. What is left out is what can't happen: an ignored
    or unknown label, a row without another class to turn to, a NaN, a batch in which nothing counts. Any of them is
    noticed, and left to the longer way.
    """
    if options.reduction != "mean" or 0 <= ignore_index < logits.shape[1] or options.by_label:
        return None
    z, index = at_least_float32(logits), target.unsqueeze(1)
    try:
        own = z.gather(1, index)  # looks at every label, at no cost
    except (IndexError, RuntimeError):
        return None
    pull, top, total = exponentials(z, index, 1)
    pull.scatter_(1, index, -total)  # a row in units of its total: dividing by that is left to its size
    total = total.double()
    margin = own.double().sub_(top).sub_(total.log()).squeeze(1)
    log_p, log_q = log_probabilities(margin)
    log_w = options.weighting.log_weight(log_p, log_q)
    batch, rows = options.batch, len(target)
    if not (
        log_w.dtype == torch.float64
        and log_w.shape == margin.shape
        and LEAST_LOG < log_w.max().item() < (math.inf if batch else MOST_LOG)
        and margin.max().item() < math.inf
        and top.min().item() > torch.finfo(z.dtype).min
    ):
        return None
    c = torch.softmax(log_w, 0) if batch else log_w.exp()
    if options.taper:
        q = log_q.exp()
        c.mul_(q).div_(q.add_(options.taper))
    value = torch.scalar_tensor(log_p.sum().item() / -rows, dtype=z.dtype)
    # 2.0, not 2: a whole number would be converted, which takes as long as the product
    return value, c.div_(total.squeeze(1).mul_(2.0 if batch else 2.0 * rows)), pull


class Ways(NamedTuple):
    """How to find a value and its gradient, and how the same value with a graph; the rest is what a `Repeat` asks."""

    find: Find
    again: Again
    eager: bool = False
    inplace: bool = False


class Direct(torch.autograd.Function):
    """`find(logits, target)` without a graph. The dozens of operations on N numbers take a third less time so.

    What is found becomes the gradient where it lies: room for another one can take longer than filling it. A second
    backward pass finds it again; a gradient that is to be differentiated again is that of `again(logits,
    target)`, the same value with a graph.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, ways: Ways) -> Tensor:
        value, *ctx.found = ways.find(logits, target)
        ctx.ways = ways
        ctx.save_for_backward(logits, target)
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None]:
        logits, target = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = torch.autograd.grad(ctx.ways.again(logits, target), logits, incoming, create_graph=True)
            return gradient, None, None
        size, pull = ctx.found or ctx.ways.find(logits, target)[1:]
        factor = incoming if size is None else (incoming * size).to(pull.dtype).unsqueeze(class_dim(logits))
        if is_batched(incoming):  # several gradients, for which there is no room
            return (factor * pull).to(logits.dtype), None, None
        ctx.found = None
        if size is not None or factor.item() != 1:
            pull.mul_(factor)
        return pull.to(logits.dtype), None, None


# Direct.apply of C++: the one in Python around it asks what `is_direct` has asked already
direct: Callable[[Tensor, Tensor, Ways], Tensor]
direct = super(torch.autograd.Function, Direct).apply
