"""The base class of all losses: one value per row of logits, reduced like a loss of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import signature

import torch
from torch import Tensor, nn

from reweigh.checks import one_of
from reweigh.margin import at_least_float32
from reweigh.weightings.parameter import all_true


class Loss(nn.Module, ABC):
    """A loss of (N, C) logits and (N,) class indices computed in float32 or better, also under autocast.

    Args:
        reduction: "mean", "sum" or "none"; the mean of no rows is 0.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction: str = one_of("mean", "sum", "none")("reduction", reduction)

    @abstractmethod
    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return (N,) losses of valid logits in float32 or float64."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a scalar or (N,)."""
        check(logits, target)
        with torch.autocast(logits.device.type, enabled=False):
            values = self.rows(at_least_float32(logits), target.long())
        if self.reduction == "none":
            return values
        return values.mean() if self.reduction == "mean" and len(values) else values.sum()

    def extra_repr(self) -> str:
        values = {name: getattr(self, name, None) for name in signature(type(self)).parameters}
        return ", ".join(f"{name}={value!r}" for name, value in values.items() if isinstance(value, int | float))


def check(logits: Tensor, target: Tensor) -> None:
    """Raise unless logits are floating point (N, C) and target are (N,) class indices."""
    if not logits.is_floating_point() or logits.ndim != 2:
        raise ValueError(f"logits must be floating point (N, C), not {tuple(logits.shape)} of {logits.dtype}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(f"target must hold class indices (integers), not {target.dtype}")
    if target.shape != logits.shape[:1]:
        raise ValueError(f"target must have the shape ({len(logits)},) of the rows, not {tuple(target.shape)}")
    target = target.long()  # compared as uint8, 300 classes would be 44
    within = (target >= 0) & (target < logits.shape[1])
    if not all_true(within):
        raise ValueError(f"target must be in [0, {logits.shape[1] - 1}], got {target[~within][0].item()}")


def expected(share: Tensor, log_p: Tensor) -> Tensor:
    """Return (N,) Σ_j share_j log p_j with 0 log 0 = 0, because a logit of -inf masks a class.

    >>> expected(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, -torch.inf]]))
    tensor([0.])
    """
    return (share * log_p.masked_fill(share == 0, 0.0)).sum(1)


def pick(table: Tensor, target: Tensor) -> Tensor:
    """Return (N,) the entry of each row at its target.

    >>> pick(torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 0]))
    tensor([2, 3])
    """
    return table.gather(1, target[:, None]).squeeze(1)
