"""Losses that use the class frequencies: logit adjustment and balanced softmax."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import number
from reweigh.losses.loss import Loss


class LogitAdjustment(Loss):
    """Logit adjustment (Menon 2021), L = CE(z + τ log π, y) with the class frequencies π; use the raw z for prediction.

    Args:
        class_counts: (C,) examples of each class, or their frequencies; in expressions of the bench, those of the
            training labels.
        tau: τ; 0 is cross entropy.
    """

    prior: Tensor

    def __init__(self, class_counts: npt.ArrayLike | Tensor, tau: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        counts = checked_counts(type(self).__name__, class_counts)
        self.tau: float = number(0)(f"{type(self).__name__}'s tau", tau)
        # a class without examples would have log 0
        self.register_buffer("prior", torch.from_numpy(np.log(counts / counts.sum() + 1e-12)), persistent=False)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        if logits.shape[1] != len(self.prior):
            raise ValueError(f"class_counts is for {len(self.prior)} classes, the logits have {logits.shape[1]}")
        return functional.cross_entropy(logits + self.tau * self.prior.to(logits), target, reduction="none")


class BalancedSoftmax(LogitAdjustment):
    """Balanced softmax (Ren 2020): logit adjustment with τ = 1.

    Args:
        class_counts: (C,) examples of each class.
    """

    def __init__(self, class_counts: npt.ArrayLike | Tensor, *, reduction: str = "mean") -> None:
        super().__init__(class_counts, reduction=reduction)


def checked_counts(owner: str, class_counts: npt.ArrayLike | Tensor) -> npt.NDArray[np.float64]:
    """Return class counts as float64 (C,); they must be finite, none negative, not all zero."""
    given = class_counts.detach().cpu().numpy() if isinstance(class_counts, Tensor) else class_counts
    counts = np.asarray(given, dtype=np.float64)
    if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0).any() or not counts.sum() > 0:
        raise ValueError(f"{owner}'s class_counts must be (C,) numbers >= 0, not all 0, got {given!r}")
    return counts
