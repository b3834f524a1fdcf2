"""Transition matrices T[i, j] = P(given = j | true = i) as arguments."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reweigh.noise.transition import check_matrix

Matrix: TypeAlias = "Tensor | npt.ArrayLike"

WORST_CONDITION = 1e6  # beyond this the inverse multiplies errors of T in the sixth digit into the first


def as_matrix(owner: str, T: Matrix) -> Tensor:
    """T as float64 (C, C), or a refusal that says which row or entry is wrong.

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
    """T⁻¹, unless T is singular or nearly so."""
    condition = float(np.linalg.cond(T.numpy()))
    if not condition < WORST_CONDITION:
        raise ValueError(f"{owner}'s T cannot be inverted: its condition number is {condition:.3g}")
    inverted: Tensor = torch.linalg.inv(T)
    return inverted
