"""Forward and backward correction (Patrini 2017) with a known transition matrix T."""

from __future__ import annotations

import math

from torch import Tensor

from reweigh.checks import number
from reweigh.losses.loss import Loss, expected
from reweigh.losses.matrix import Matrix, as_matrix, inverse


class Forward(Loss):
    """Forward correction, L = -log Σ_i p_i T[i, y]; gradient p - r, r_i ∝ p_i T[i, y].

    With symmetric T it is the weighting `ForwardSymmetric`. A label whose column of T is zero teaches nothing.

    Args:
        T: (C, C), T[i, j] = P(given = j | true = i); in expressions also `symmetric(rate)`, `map(targets, rate)`
            and `file('T.npy')`.

    >>> import torch
    >>> logits, target = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([2])
    >>> Forward(torch.eye(3))(logits, target) == torch.nn.functional.cross_entropy(logits, target)
    tensor(True)
    """

    log_t: Tensor

    def __init__(self, T: Matrix, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        # not -inf: the derivative of a sum of nothing would be NaN
        self.register_buffer("log_t", as_matrix("Forward", T).log().clamp_min(-1e4), persistent=False)

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        check_classes(logits, self.log_t)
        return -(logits.log_softmax(1) + self.log_t.to(logits).T[target]).logsumexp(1)


class Backward(Loss):
    """Backward correction, L = -Σ_j u_j log p_j with u = T⁻¹[y, :]; gradient p - u where nothing is clipped.

    Its expectation over given labels is cross entropy with the true one. It has no lower bound but that of `clip`:
    negative values are normal.

    Args:
        T: (C, C), T[i, j] = P(given = j | true = i), invertible.
        clip: p is taken to be at least this; 0 for no bound.
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
