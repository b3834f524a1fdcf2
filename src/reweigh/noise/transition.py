"""Noise from any transition matrix P[true, given], and the matrices of the named kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reweigh.noise.arguments import Labels, Matrix, Seed, check_labels, check_rate, expression, random_source
from reweigh.noise.corruption import Corruption, measure


def transition(labels: npt.ArrayLike, matrix: npt.ArrayLike, *, seed: Seed = 0) -> Corruption:
    """Draw every label from the row of its true class, independently.

    The nominal rate is the expected share of wrong labels, mean of 1 - P[y, y].

    >>> transition([0, 0, 1], [[0, 1], [0, 1]]).labels.tolist()
    [1, 1, 1]
    """
    rows = check_matrix(matrix)
    clean, classes = check_labels(labels, len(rows))
    rng, recorded = random_source(seed)
    rate = float(np.mean(1 - rows.diagonal()[clean]))
    kind = expression("transition", rate=round(rate, 6))
    return measure(draw(rows, clean, rng), clean, classes, kind, rate, recorded)


def draw(rows: Matrix, clean: Labels, rng: np.random.Generator) -> Labels:
    """One label per example from the row of its class, by inversion of the cumulative row."""
    below = np.cumsum(rows, axis=1)
    below /= below[:, -1:]  # ends at exactly 1, which no uniform draw reaches
    score = rng.random(len(clean))
    given = np.empty_like(clean)
    for c in np.unique(clean):
        members = clean == c
        given[members] = np.searchsorted(below[c], score[members], side="right")
    return given


def check_matrix(matrix: npt.ArrayLike) -> Matrix:
    """The matrix as float64, square, non-negative, rows summing to 1 within 1e-6."""
    rows = np.asarray(matrix, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[0] != rows.shape[1] or rows.size == 0:
        raise ValueError(f"matrix has shape {rows.shape}; expected C x C")
    bad = np.argwhere(~np.isfinite(rows) | (rows < 0))
    if len(bad):
        i, j = bad[0]
        raise ValueError(f"matrix[{i}, {j}] is {rows[i, j]}; expected a probability")
    sums = rows.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > 1e-6)
    if off.size:
        raise ValueError(f"row {off[0]} of matrix sums to {sums[off[0]]:.6g}; expected 1")
    return rows


def symmetric_matrix(num_classes: int, rate: float, include_true: bool = False) -> Matrix:
    """The expected matrix of `symmetric` noise.

    >>> symmetric_matrix(3, 0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    rate = check_rate(rate)
    if num_classes < 2:
        raise ValueError(f"num_classes is {num_classes}; expected at least 2")
    share = rate / (num_classes if include_true else num_classes - 1)
    stay = 1 - rate + (share if include_true else 0)
    return np.where(np.eye(num_classes, dtype=bool), stay, share)


def map_matrix(targets: Sequence[int] | Labels, rate: float) -> Matrix:
    """The expected matrix of a class map: 1 - rate on the diagonal and rate at (c, targets[c]).

    >>> map_matrix([1, 0, 2], 0.25).tolist()
    [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    """
    to, classes = check_labels(targets, len(targets), name="targets")
    identity = np.eye(classes)
    return (1 - check_rate(rate)) * identity + rate * identity[to]
