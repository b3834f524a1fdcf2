"""A call like one before: on a small batch, working out anew what to launch takes longer than all the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reweigh.margin import is_transformed

# So many shapes of batches are remembered before it begins anew.
REMEMBERED = 64


class Repeat:
    """The value of logits and labels like those of a call without weights; None for any other.

    It is found by the shape of the logits, at which nobody looks again.

    Args:
        apply: (logits, target, plan) -> value.
        plan: with what is asked here: whether it is `eager`, not for CUDA graphs, and writes over the logits `inplace`.
    """

    __slots__ = ("apply", "dtype", "label_dtype", "labels", "place", "plan")

    def __init__(self, apply: Callable[..., Tensor], plan: Any, logits: Tensor, target: Tensor) -> None:
        self.apply, self.plan, self.place = apply, plan, logits.get_device()
        self.dtype, self.labels, self.label_dtype = logits.dtype, target.shape, target.dtype

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor | None:
        if (
            type(logits) is Tensor
            and type(target) is Tensor
            and logits.dtype is self.dtype
            and target.dtype is self.label_dtype
            and target.shape == self.labels
            and logits.get_device() == self.place == target.get_device()
            and not is_transformed()
            and not torch._C._len_torch_dispatch_stack()
            and not torch.is_anomaly_enabled()
            and is_usual(logits, target)
            and not (self.plan.eager and is_captured(logits))
            and not (logits.requires_grad and (not torch.is_grad_enabled() or (self.plan.inplace and logits.is_leaf)))
        ):
            return self.apply(logits, target, self.plan)
        return None


def remember(
    repeats: dict[torch.Size, Repeat], apply: Callable[..., Tensor], plan: Any, logits: Tensor, target: Tensor
) -> None:
    """Keep a call without weights, if nothing about its tensors is unusual."""
    if is_usual(logits, target):
        if len(repeats) >= REMEMBERED:
            repeats.clear()
        repeats[logits.shape] = Repeat(apply, plan, logits, target)


def is_usual(logits: Tensor, target: Tensor) -> bool:
    """Whether shapes, types and devices are all there is to say of them."""
    return (
        logits.is_contiguous()
        and target.is_contiguous()
        and logits.data_ptr() % 16 == 0
        and lies_in_memory(logits)
        and lies_in_memory(target)
    )


def lies_in_memory(x: Tensor) -> bool:
    """Whether its values are what its memory holds: not so of a view that negates, and of torch's zero tensors."""
    return not x.is_neg() and x.data_ptr() != 0


def is_captured(logits: Tensor) -> bool:
    """Whether what is launched becomes a part of a CUDA graph."""
    return logits.is_cuda and torch.cuda.is_current_stream_capturing()
