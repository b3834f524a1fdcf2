"""What does my loss emphasise? Any criterion(logits, target), probed by autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Emphasis(NamedTuple):
    """A probed criterion: at each p the L1 norm w of its derivative, and its cosine with CCE's direction.

    A cosine of 1 everywhere is a weighting in disguise; anything less turns the direction.
    """

    p: Tensor
    w: Tensor
    cosine: Tensor


def emphasis_of(
    criterion: Callable[[Tensor, Tensor], Tensor],
    num_classes: int,
    *,
    points: int = 101,
    generator: torch.Generator | None = None,
    reduction: str = "mean",
) -> Emphasis:
    """The weight curve of any `criterion(logits, target)` over a grid of p, and where it leaves CCE's direction.

    All points go through the criterion as one batch, so a criterion that normalises over the batch shows its weights
    relative to their mean.

    Args:
        criterion: called once with float64 logits (points, C) and targets; a scalar or one value per row. Of a module
            with tensors in another type or place, such as class weights, a copy is called.
        num_classes: C.
        points: how many p, evenly spaced inside (0, 1).
        generator: None makes all off-target logits equal; a generator draws them from a standard normal, which shows
            directions that only unequal logits reveal.
        reduction: how the criterion reduces a batch; "mean" multiplies its gradient by the number of points.

    >>> emphasis = emphasis_of(torch.nn.CrossEntropyLoss(), num_classes=10, points=3)
    >>> emphasis.p.tolist(), [round(w, 6) for w in emphasis.w.tolist()]
    ([0.25, 0.5, 0.75], [1.5, 1.0, 0.5])
    """
    if num_classes < 2 or points < 1:
        raise ValueError(f"emphasis_of: needs num_classes >= 2 and points >= 1, got {num_classes} and {points}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"emphasis_of: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    p = torch.arange(1, points + 1, dtype=torch.float64) / (points + 1)
    others = torch.zeros(points, num_classes - 1, dtype=torch.float64)
    if generator is not None:
        others = torch.randn(others.shape, generator=generator, dtype=torch.float64)
    target = torch.arange(points) % num_classes
    logits = torch.full((points, num_classes), -math.inf, dtype=torch.float64)
    own = torch.nn.functional.one_hot(target, num_classes).bool()
    logits[~own] = others.reshape(-1)
    logits[own] = p.logit() + others.logsumexp(1)
    logits = (logits - logits.mean(1, keepdim=True)).requires_grad_()
    value = _in_double(criterion)(logits, target)
    per_row = reduction == "mean" and value.ndim == 0
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    cce = logits.detach().softmax(1) - own.double()
    cosine = torch.nn.functional.cosine_similarity(gradient, cce, dim=1, eps=1e-300)
    return Emphasis(p, gradient.abs().sum(1) * (points if per_row else 1), cosine)


def _in_double(criterion: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The criterion where float64 on the CPU is what it takes; else a copy of it there."""
    if not isinstance(criterion, nn.Module):
        return criterion
    double = torch.zeros((), dtype=torch.float64)
    tensors = chain(criterion.parameters(), criterion.buffers())
    fits = all(x.device == double.device and x.dtype == (double if x.is_floating_point() else x).dtype for x in tensors)
    return criterion if fits else deepcopy(criterion).to(double)
