"""Estimate the noise rate and the transition matrix by the confident joint, with intervals.

Let t_j be the mean probability of class j among the examples labelled j. An example is counted as truly j if
p_j >= t_j (the most probable such j); examples without such a class are not counted (Northcutt 2021). The counts of
given label i and true class j are scaled so that row i sums to the number of examples labelled i. Then

    rate = share of examples with j != i,    T[j, i] = P(given i | true j)

The thresholds are per class, so a model that is less confident about some classes, such as rare ones, adds no bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.streams import numpy_generator

Joint = NDArray[np.float64]
Cells = tuple[NDArray[np.int64], NDArray[np.float64]]  # positions and values of a flat matrix's non-zero cells
LEVEL = 0.95
SIMULATIONS, SIMULATED = 40, 10_000  # simulated data sets, and their examples at most
CELLS = 2**19  # of their probabilities
BLOCK = 2**22  # values per call of np.quantile
_ENDS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
_SLACK = 1e-6  # so that equal probabilities reach their own mean despite rounding


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """The estimated share of wrong labels and the transition matrix, each with a 95 % interval.

    Attributes:
        rate, low, high: the share of wrong labels.
        transition, transition_low, transition_high: (C, C), P(given label | true label), [true, given].
    """

    rate: float
    low: float
    high: float
    transition: NDArray[np.float64]
    transition_low: NDArray[np.float64]
    transition_high: NDArray[np.float64]


def confident_classes(labels: NDArray[np.int64], pred_probs: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Return (N,) the class of each example whose probability reaches its threshold, -1 if there is none."""
    num_classes = pred_probs.shape[1]
    thresholds = _thresholds(labels, pred_probs[np.arange(len(labels)), labels], num_classes)
    above = np.where(pred_probs >= thresholds, pred_probs, -1.0)
    best: NDArray[np.int64] = above.argmax(axis=1)
    return np.where(above[np.arange(len(labels)), best] >= 0, best, -1)


def _thresholds(labels: NDArray[np.int64], own: NDArray[np.floating[Any]], num_classes: int) -> NDArray[np.float64]:
    """Return (C,) t of each class, from the probability `own` of each example's label."""
    count = np.bincount(labels, minlength=num_classes)
    total = np.bincount(labels, own, minlength=num_classes)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf) - _SLACK


def joint_of(labels: NDArray[np.int64], classes: NDArray[np.int64], num_classes: int) -> Joint:
    """Return (C, C) estimated P(given, true): the counts, each row scaled to the share of that label.

    A class without confident examples counts as correctly labelled.
    """
    confident = classes >= 0
    cells = labels[confident] * num_classes + classes[confident]
    counts = np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes).astype(np.float64)
    rows = counts.sum(axis=1, keepdims=True)
    shares = np.where(rows > 0, counts / np.maximum(rows, 1), np.eye(num_classes))
    joint: Joint = shares * np.bincount(labels, minlength=num_classes)[:, None] / len(labels)
    return joint


def estimate_noise(
    labels: NDArray[np.int64], pred_probs: NDArray[np.floating[Any]], *, seed: int = 0, bootstrap: int = 100
) -> NoiseEstimate:
    """Estimate the noise rate and the transition matrix, with 95 % intervals.

    The transition matrix has bootstrap intervals, for the variation between samples of this size. That of the rate also
    covers the bias of the confident joint where classes overlap: true labels are drawn from `pred_probs` and noisy ones
    from the estimated matrix, and the estimate from these is compared with their rate. Over 100 simulated data sets
    each it covers the true rate in 95 to 100 (the bootstrap alone: 0 to 99). It ignores other errors of the model: one
    that has memorised the noisy labels gives a low rate and a narrow interval.

    Args:
        labels: (N,) given class ids.
        pred_probs: (N, C) probabilities, out of fold or from a model that resists label noise.
        seed: of the bootstrap; the stream is "bootstrap".
        bootstrap: number of resamples.

    >>> labels = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    >>> truth = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    >>> noise = estimate_noise(labels, np.where(np.arange(2) == truth[:, None], 0.9, 0.1))
    >>> noise.rate, noise.transition
    (0.125, array([[0.75, 0.25],
           [0.  , 1.  ]]))
    """
    if bootstrap < 1:
        raise ValueError(f"bootstrap must be 1 or more, not {bootstrap}")
    n, num_classes = pred_probs.shape
    joint = joint_of(labels, confident_classes(labels, pred_probs), num_classes)
    own = pred_probs[np.arange(n), labels]

    def draws() -> Iterator[NDArray[np.int64]]:
        """Yield the resampled rows; called twice, since keeping them all would take too much memory."""
        rng = numpy_generator(seed, "bootstrap")
        for _ in range(bootstrap):
            yield rng.integers(0, n, size=(n,))

    thresholds = np.stack([_thresholds(labels[again], own[again], num_classes) for again in draws()])
    # Keep only the pairs that reach the threshold in some draw, ordered so that the most probable class comes last.
    example, reached = np.nonzero(pred_probs >= thresholds.min(axis=0))
    order = np.lexsort((-reached, pred_probs[example, reached], example))
    example, reached = example[order], reached[order]
    p = pred_probs[example, reached]
    rates = np.empty(bootstrap)
    matrices: list[Cells] = []
    for b, again in enumerate(draws()):
        confident, classes = p >= thresholds[b][reached], np.full(n, -1)
        classes[example[confident]] = reached[confident]
        resampled = joint_of(labels[again], classes[again], num_classes)
        rates[b], matrix = rate_of(resampled), transition_of(resampled).reshape(-1)
        cells = np.flatnonzero(matrix)
        matrices.append((cells, matrix[cells]))
    low, high = np.quantile(rates, _ENDS)
    widest = _simulated_interval(joint, pred_probs, numpy_generator(seed, "simulation"), min(bootstrap, SIMULATIONS))
    low, high = max(0.0, min(low, widest[0])), min(1.0, max(high, widest[1]))
    return NoiseEstimate(
        rate_of(joint), float(low), float(high), transition_of(joint), *_interval(matrices, num_classes)
    )


def _simulated_interval(
    joint: Joint, pred_probs: NDArray[np.floating[Any]], rng: np.random.Generator, draws: int
) -> tuple[float, float]:
    """Return the interval of the rate by the errors of the estimate on simulated labels.

    The second round simulates noise without the error that the first has found.
    """
    n, num_classes = pred_probs.shape
    estimate, transition = rate_of(joint), transition_of(joint)
    size = min(n, SIMULATED, max(1000, CELLS // num_classes))
    ends: list[float] = []
    for _ in range(2):
        given_cumulative, errors = transition.cumsum(axis=1), np.empty(draws)
        for k in range(draws):
            rows = rng.integers(0, n, size=(size,))
            p = pred_probs[rows]
            true = _draw(p.cumsum(axis=1), rng)
            given = _draw(given_cumulative[true], rng)
            found = joint_of(given, confident_classes(given, p), num_classes)
            errors[k] = rate_of(found) - float((true != given).mean())
        ends += (estimate - np.quantile(errors, _ENDS)).tolist()
        share = min(1.0, max(0.0, estimate - float(np.median(errors))) / max(estimate, _SLACK))
        off = transition_of(joint) * share
        np.fill_diagonal(off, 0.0)
        transition = off + np.diag(1.0 - off.sum(axis=1))
    return min(ends), max(ends)


def _draw(cumulative: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a class from each row of cumulative probabilities."""
    drawn: NDArray[np.int64] = (rng.random((len(cumulative), 1)) > cumulative).sum(axis=1)
    inside: NDArray[np.int64] = np.minimum(drawn, cumulative.shape[1] - 1)
    return inside


def _interval(matrices: Sequence[Cells], num_classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (C, C) lower and upper quantiles of each cell over the sparse matrices."""
    low, high, used = np.zeros(num_classes**2), np.zeros(num_classes**2), np.zeros(num_classes**2, bool)
    for cells, _ in matrices:
        used[cells] = True
    every = np.flatnonzero(used)
    width = max(1, BLOCK // len(matrices))
    for start in range(0, len(every), width):
        block = every[start : start + width]
        dense = np.zeros((len(matrices), len(block)))
        for row, (cells, values) in zip(dense, matrices, strict=True):
            inside = slice(*np.searchsorted(cells, (block[0], block[-1] + 1)))
            row[np.searchsorted(block, cells[inside])] = values[inside]
        low[block], high[block] = np.quantile(dense, _ENDS, axis=0)
    return low.reshape(num_classes, -1), high.reshape(num_classes, -1)


def rate_of(joint: Joint) -> float:
    """Return the share of wrong labels."""
    return float(max(0.0, 1.0 - joint.trace()))


def transition_of(joint: Joint) -> NDArray[np.float64]:
    """Return T[true, given]; the row of a class without examples is that of the identity."""
    true = joint.sum(axis=0)[:, None]
    return np.where(true > 0, joint.T / np.where(true > 0, true, 1.0), np.eye(len(joint)))
