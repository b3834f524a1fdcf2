"""Forward and backward correction (Patrini 2017) with a known transition matrix T[i, j] = P(given = j | true = i)."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reweigh.checks import number
from reweigh.losses.loss import Loss, expected
from reweigh.noise.class_noise import check_matrix

Matrix: TypeAlias = "Tensor | npt.ArrayLike"

WORST_CONDITION = 1e6  # above this, errors in the sixth digit of T reach the first digit of the inverse


class Forward(Loss):
    """Forward correction, L = -log Σ_i p_i T[i, y]; gradient p - r, r_i ∝ p_i T[i, y].

    With symmetric T it is the weighting `ForwardSymmetric`. A label whose column of T is zero has no gradient.

    Args:
        T: (C, C), T[i, j] = P(given = j | true = i); in expressions of the bench also `symmetric(rate)`,
            `map(targets, rate)` and `file('T.npy')`.

    >>> import torch
    >>> logits, target = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([2])
    >>> Forward(torch.eye(3))(logits, target) == torch.nn.functional.cross_entropy(logits, target)
    tensor(True)
    """

    log_t: Tensor

    def __init__(self, T: Matrix, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        # not -inf, whose logsumexp would have the derivative NaN
        self.register_buffer("log_t", as_matrix("Forward", T).log().clamp_min(-1e4), persistent=False)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        check_classes(logits, self.log_t)
        return -(logits.log_softmax(1) + self.log_t.to(logits).T[target]).logsumexp(1)


class Backward(Loss):
    """Backward correction, L = -Σ_j u_j log p_j with u = T⁻¹[y, :]; gradient p - u where nothing is clipped.

    Its expectation over given labels is cross entropy with the true one. It is bounded below only by `clip`:
    negative values are normal.

    Args:
        T: (C, C), T[i, j] = P(given = j | true = i), invertible.
        clip: lower bound on p; 0 for none.
    """

    u: Tensor

    def __init__(self, T: Matrix, clip: float = 1e-7, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.clip: float = number(0, 1, below=True)("Backward's clip", clip)
        self.register_buffer("u", inverse("Backward", as_matrix("Backward", T)), persistent=False)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        check_classes(logits, self.u)
        log_p = logits.log_softmax(1)
        if self.clip > 0:
            log_p = log_p.clamp_min(math.log(self.clip))
        return -expected(self.u.to(logits)[target], log_p)


def check_classes(logits: Tensor, T: Tensor) -> None:
    if logits.shape[1] != len(T):
        raise ValueError(f"T is for {len(T)} classes, the logits have {logits.shape[1]}")


def as_matrix(owner: str, T: Matrix) -> Tensor:
    """Return T as float64 (C, C); raise ValueError naming the row or entry that is wrong.

    >>> as_matrix("Forward", [[0.9, 0.2], [0.0, 1.0]])
    Traceback (most recent call last):
        ...
    ValueError: Forward's T: row 0 of matrix sums to 1.1; expected 1
    """
    given = T.detach().cpu().numpy() if isinstance(T, Tensor) else T
    try:
        rows = check_matrix(given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner}'s T: {error}") from None
    return torch.from_numpy(rows.copy())


def inverse(owner: str, T: Tensor) -> Tensor:
    """Return T⁻¹; raise ValueError if T is singular or nearly so."""
    condition = float(np.linalg.cond(T.numpy()))
    if not condition < WORST_CONDITION:
        raise ValueError(f"{owner}'s T cannot be inverted: its condition number is {condition:.3g}")
    inverted: Tensor = torch.linalg.inv(T)
    return inverted
