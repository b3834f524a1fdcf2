"""Transition matrices T[i, j] = P(given = j | true = i) as arguments."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reweigh.noise.arrays import read_array
from reweigh.noise.transition import check_matrix, map_matrix, symmetric_matrix
from reweigh.spec.checks import flag
from reweigh.spec.expression import Expression, nearest

Matrix: TypeAlias = "Tensor | npt.ArrayLike"

WORST_CONDITION = 1e6  # beyond this the inverse multiplies errors of T in the sixth digit into the first
_KINDS = {"symmetric": ("rate", "include_true"), "map": ("targets", "rate"), "file": ("path", "hash")}


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


def named_matrix(expression: Expression, num_classes: int) -> npt.NDArray[np.float64]:
    """`symmetric(rate, include_true=False)`, `map(targets, rate)` or `file(path, hash=None)` as a matrix.

    >>> from reweigh.spec import parse
    >>> named_matrix(parse("map([1, 1], 0.25)"), 2).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    if expression.name not in _KINDS:
        raise ValueError(
            f"no transition matrix is called {expression.name!r}; {nearest(expression.name, list(_KINDS))}"
        )
    wanted = _KINDS[expression.name]
    values = dict(expression.bind(wanted).kwargs)
    if expression.name == "file":
        path, digest = values.get("path"), values.get("hash")
        if not isinstance(path, str) or not isinstance(digest, str | None):
            raise ValueError(f"{expression} needs a path, and may have a hash, both as texts")
        return read_array(path, (num_classes, num_classes), hash=digest)
    rate = values.get("rate")
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise ValueError(f"{expression} needs a number as its rate")
    if expression.name == "symmetric":
        include_true = flag(f"{expression}: include_true", values.get("include_true", False))
        return symmetric_matrix(num_classes, rate, include_true)
    targets = values.get("targets")
    if not isinstance(targets, tuple) or len(targets) != num_classes:
        raise ValueError(f"{expression} needs {num_classes} targets, one for every class")
    return map_matrix(np.asarray(targets), rate)
