"""Scores of suspicion: functions of arrays with values in [0, 1], where higher is more suspicious."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]

LARGEST = 1e300  # replaces infinite margins


def final_p(labels: Labels, pred_probs: NDArray[np.floating[Any]]) -> Scores:
    """Return 1 - p of the given label.

    Args:
        labels: (N,) class ids.
        pred_probs: (N, C) probabilities.

    >>> final_p(np.array([0, 1]), np.array([[0.75, 0.25], [0.75, 0.25]]))
    array([0.25, 0.75])
    """
    return 1.0 - pred_probs[np.arange(len(labels)), labels].astype(np.float64)


def mean_p(history: NDArray[np.floating[Any]]) -> Scores:
    """Return 1 - the mean p of the given label over the evaluations: late learning is suspicious.

    Args:
        history: (N, E), p of the given label at each evaluation.

    >>> mean_p(np.array([[0.25, 0.75], [0.75, 1.0]]))
    array([0.5  , 0.125])
    """
    mean: Scores = history.mean(axis=1, dtype=np.float64)
    return 1.0 - mean


def area_under_margin(logit_gaps: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return AUM, the mean over the evaluations of the given label's logit minus the largest other (Pleiss 2020).

    Args:
        logit_gaps: (N, E); infinities outweigh all finite values, and those of opposite signs cancel. NaN: not
            evaluated.

    >>> area_under_margin(np.array([[1.0, 3.0], [-4.0, 2.0], [np.nan, 5.0]]))
    array([ 2., -1.,  5.])
    """
    clipped = np.clip(logit_gaps.astype(np.float64), -LARGEST, LARGEST)
    known = ~np.isnan(clipped)
    # divided before they are summed: the sum of two clipped infinities would overflow
    area: NDArray[np.float64] = (np.where(known, clipped, 0.0) / known.sum(axis=1, keepdims=True)).sum(axis=1)
    return area


def margin_score(area: NDArray[np.float64], threshold: float = 0.0) -> Scores:
    """Map an area under the margin to 1/2 (1 - x / (1 + |x|)), where x is its distance above the threshold.

    A sigmoid would round to 1 for all areas far below the threshold, and lose their order.

    >>> margin_score(np.array([-1.0, 1.0, 4.0]), threshold=1.0)
    array([0.83333333, 0.5       , 0.125     ])
    """
    x = area - threshold
    return 0.5 * (1.0 - x / (1.0 + np.abs(x)))


def mixture(score: Scores) -> Scores:
    """Return the posterior of the noisy one of two Beta components fitted to another score (Arazo 2019).

    The result is made non-decreasing in that score. The wider component has the higher density at both ends, so a raw
    posterior would also rise to the left of the clean component's mean.

    >>> x = np.concatenate([np.linspace(0.01, 0.2, 50), np.linspace(0.8, 0.99, 25)])
    >>> int((mixture(x) > 0.5).sum())
    25
    """
    import torch

    from reweigh.labels.beta_mixture import fit

    x = torch.from_numpy(np.ascontiguousarray(score))
    fitted = fit(x)
    order = np.argsort(score, kind="stable")
    posterior: Scores = fitted.noisy(x[order]).numpy()
    middle = int(np.searchsorted(score[order], float(fitted.a[0] / (fitted.a[0] + fitted.b[0]))))
    posterior[:middle] = np.minimum.accumulate(posterior[:middle][::-1])[::-1]
    posterior = np.maximum.accumulate(posterior)
    result = np.empty_like(posterior)
    result[order] = posterior
    return result


def mean_pairwise_p(
    labels: Labels, logit_gaps: NDArray[np.floating[Any]], rivals: NDArray[np.integer[Any]], num_classes: int
) -> NDArray[np.float64]:
    """Return (N, C) pairwise probabilities of the label and the strongest other class, averaged over training.

    At each evaluation the given label gets sigmoid(gap) and the strongest other class the rest. The mean includes
    the evaluations before a wrong label was memorised.

    Args:
        labels: (N,) given class ids.
        logit_gaps: (N, E), logit of the given label minus the largest other logit; NaN where it was not evaluated.
        rivals: (N, E), the class of that other logit.
        num_classes: C.

    >>> mean_pairwise_p(np.array([0]), np.array([[0.0, 0.0]]), np.array([[1, 2]]), num_classes=3)
    array([[0.5 , 0.25, 0.25]])
    """
    rows = np.arange(len(labels))
    total = np.zeros((len(labels), num_classes))
    for gaps, others in zip(logit_gaps.T, rivals.T, strict=True):
        known = ~np.isnan(gaps)
        p = np.where(known, 0.5 * (1.0 + np.tanh(0.5 * gaps.astype(np.float64))), 0.0)
        total[rows, labels] += p
        total[rows, others] += np.where(known, 1.0 - p, 0.0)
    mean: NDArray[np.float64] = total / (~np.isnan(logit_gaps)).sum(axis=1, keepdims=True)
    return mean
