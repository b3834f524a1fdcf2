"""How many labels are wrong, and which mistakes are made: the confident joint, with bootstrap intervals.

With t_j the mean probability of class j among the examples labelled j, an example is counted as truly j if
p_j >= t_j (the most probable such j); examples without one are not counted (Northcutt 2021). Counts of given label i
and true class j are scaled so that the rows have as many examples as there are labels i. Then

    rate = share of examples with j != i,    T[j, i] = P(given i | true j)

Thresholds by class make it indifferent to a model that is less sure of some classes, as of rare ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.labels.suspects import NoiseEstimate
from reweigh.streams import numpy_generator

Joint = NDArray[np.float64]
Cells = tuple[NDArray[np.int64], NDArray[np.float64]]  # of a flat matrix, those other than 0 in order, and their values
LEVEL = 0.95
BLOCK = 2**22  # numbers of which quantiles are taken at once
_ENDS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
_SLACK = 1e-6  # a model that is always sure reaches its own mean, whatever the rounding


def confident_classes(labels: NDArray[np.int64], pred_probs: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """(N,) the class that each example is confidently of, -1 where there is none."""
    num_classes = pred_probs.shape[1]
    thresholds = _thresholds(labels, pred_probs[np.arange(len(labels)), labels], num_classes)
    above = np.where(pred_probs >= thresholds, pred_probs, -1.0)
    found: NDArray[np.int64] = above.argmax(axis=1)
    return np.where(above[np.arange(len(labels)), found] >= 0, found, -1)


def _thresholds(labels: NDArray[np.int64], own: NDArray[np.floating[Any]], num_classes: int) -> NDArray[np.float64]:
    """(C,) t of every class, from the probability `own` of each example's label."""
    count = np.bincount(labels, minlength=num_classes)
    total = np.bincount(labels, own, minlength=num_classes)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf) - _SLACK


def joint_of(labels: NDArray[np.int64], classes: NDArray[np.int64], num_classes: int) -> Joint:
    """(C, C) estimated P(given, true): the counts, each row scaled to the share of that label.

    A label without any confident example is taken as right.
    """
    sure = classes >= 0
    cells = labels[sure] * num_classes + classes[sure]
    counts = np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes).astype(np.float64)
    rows = counts.sum(axis=1, keepdims=True)
    shares = np.where(rows > 0, counts / np.maximum(rows, 1), np.eye(num_classes))
    joint: Joint = shares * np.bincount(labels, minlength=num_classes)[:, None] / len(labels)
    return joint


def estimate_noise(
    labels: NDArray[np.int64], pred_probs: NDArray[np.floating[Any]], *, seed: int = 0, bootstrap: int = 100
) -> NoiseEstimate:
    """The noise rate and the transition matrix, with 95 % intervals over examples drawn again with replacement.

    The intervals tell what another sample of the same size would have given; they know nothing of what the model gets
    wrong, so a model that has learned the wrong labels by heart gives a low rate and a narrow interval.

    Args:
        labels: (N,) given.
        pred_probs: (N, C), out of fold, or of a model that resists noise.
        seed: of the bootstrap; the stream is "bootstrap".
        bootstrap: how often.

    >>> labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    >>> sure = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    >>> found = estimate_noise(labels, np.where(np.arange(2) == sure[:, None], 0.9, 0.1))
    >>> found.rate, found.transition
    (0.125, array([[0.75, 0.25],
           [0.  , 1.  ]]))
    """
    if bootstrap < 1:
        raise ValueError(f"bootstrap must be 1 or more, not {bootstrap}")
    n, num_classes = pred_probs.shape
    joint = joint_of(labels, confident_classes(labels, pred_probs), num_classes)
    own = pred_probs[np.arange(n), labels]

    def draws() -> Iterator[NDArray[np.int64]]:
        """Drawn twice instead of kept: there may be millions of examples."""
        rng = numpy_generator(seed, "bootstrap")
        for _ in range(bootstrap):
            yield rng.integers(0, n, size=(n,))

    thresholds = np.stack([_thresholds(labels[again], own[again], num_classes) for again in draws()])
    # Few classes of an example reach the threshold of any draw; in this order the one that counts is written last.
    example, reached = np.nonzero(pred_probs >= thresholds.min(axis=0))
    order = np.lexsort((-reached, pred_probs[example, reached], example))
    example, reached = example[order], reached[order]
    p = pred_probs[example, reached]
    rates = np.empty(bootstrap)
    matrices: list[Cells] = []
    for b, again in enumerate(draws()):
        sure, classes = p >= thresholds[b][reached], np.full(n, -1)
        classes[example[sure]] = reached[sure]
        drawn = joint_of(labels[again], classes[again], num_classes)
        rates[b], matrix = rate_of(drawn), transition_of(drawn).reshape(-1)
        cells = np.flatnonzero(matrix)
        matrices.append((cells, matrix[cells]))
    low, high = np.quantile(rates, _ENDS)
    return NoiseEstimate(
        rate_of(joint), float(low), float(high), transition_of(joint), *_interval(matrices, num_classes)
    )


def _interval(matrices: Sequence[Cells], num_classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(C, C) lower and upper end of every cell over the matrices.

    Of the C^2 mistakes few are ever made, while a whole matrix for each draw would fill the memory.
    """
    low, high, made = np.zeros(num_classes**2), np.zeros(num_classes**2), np.zeros(num_classes**2, bool)
    for cells, _ in matrices:
        made[cells] = True
    every = np.flatnonzero(made)
    width = max(1, BLOCK // len(matrices))
    for start in range(0, len(every), width):
        some = every[start : start + width]
        values = np.zeros((len(matrices), len(some)))
        for row, (cells, found) in zip(values, matrices, strict=True):
            here = slice(*np.searchsorted(cells, (some[0], some[-1] + 1)))
            row[np.searchsorted(some, cells[here])] = found[here]
        low[some], high[some] = np.quantile(values, _ENDS, axis=0)
    return low.reshape(num_classes, -1), high.reshape(num_classes, -1)


def rate_of(joint: Joint) -> float:
    """The share of wrong labels."""
    return float(max(0.0, 1.0 - joint.trace()))


def transition_of(joint: Joint) -> NDArray[np.float64]:
    """T[true, given]; a class that no example seems to be of stays itself."""
    true = joint.sum(axis=0)[:, None]
    return np.where(true > 0, joint.T / np.where(true > 0, true, 1.0), np.eye(len(joint)))
