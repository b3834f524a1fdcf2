"""How suspicious a label is: each score is a function of arrays, in [0, 1], higher is more suspicious."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]

FURTHEST = 1e300  # what an infinite margin counts as


def final_p(labels: Labels, pred_probs: NDArray[np.floating[Any]]) -> Scores:
    """1 - p of the given label: of the final model, or out of fold.

    Args:
        labels: (N,) class ids.
        pred_probs: (N, C) probabilities.

    >>> final_p(np.array([0, 1]), np.array([[0.75, 0.25], [0.75, 0.25]]))
    array([0.25, 0.75])
    """
    return 1.0 - pred_probs[np.arange(len(labels)), labels].astype(np.float64)


def mean_p(history: NDArray[np.floating[Any]]) -> Scores:
    """1 - mean over the evaluations of p of the given label: what is learned late, or never, is suspicious.

    Args:
        history: (N, E), p of the given label at each evaluation.

    >>> mean_p(np.array([[0.25, 0.75], [0.75, 1.0]]))
    array([0.5  , 0.125])
    """
    mean: Scores = history.mean(axis=1, dtype=np.float64)
    return 1.0 - mean


def area_under_margin(margins: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """AUM = mean over the evaluations of (logit of the given label - largest other logit) (Pleiss 2020).

    Args:
        margins: (N, E); infinities of either sign outweigh all numbers and cancel each other.

    >>> area_under_margin(np.array([[1.0, 3.0], [-4.0, 2.0]]))
    array([ 2., -1.])
    """
    area: NDArray[np.float64] = np.clip(margins.astype(np.float64), -FURTHEST, FURTHEST).mean(axis=1)
    return area


def margin_score(area: NDArray[np.float64], threshold: float = 0.0) -> Scores:
    """An area under the margin as a score: 1/2 at the threshold, 1/2 (1 - x / (1 + |x|)) at a distance x above it.

    Not a sigmoid, which in floating point is 1 for every area far below.

    >>> margin_score(np.array([-1.0, 1.0, 4.0]), threshold=1.0)
    array([0.83333333, 0.5       , 0.125     ])
    """
    x = area - threshold
    return 0.5 * (1.0 - x / (1.0 + np.abs(x)))


def mixture(score: Scores) -> Scores:
    """The posterior of the worse of two Beta components fitted to another score (Arazo 2019), never falling with it.

    A wide component has the higher density far out on both sides. So, going away from the mean of the better one, the
    posterior may only fall to the left and only rise to the right.

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
    found = np.empty_like(posterior)
    found[order] = posterior
    return found


def mean_duel(
    labels: Labels, margins: NDArray[np.floating[Any]], rivals: NDArray[np.integer[Any]], num_classes: int
) -> NDArray[np.float64]:
    """(N, C) probabilities averaged over training, as far as the record has them: the label against its rival.

    At each evaluation the given label gets sigmoid(margin) and the largest other class the rest; the mean over the
    evaluations remembers what the model said before it had learned a wrong label by heart.

    Args:
        labels: (N,) given.
        margins, rivals: (N, E) as in margins.bin.
        num_classes: C.

    >>> mean_duel(np.array([0]), np.array([[0.0, 0.0]]), np.array([[1, 2]]), num_classes=3)
    array([[0.5 , 0.25, 0.25]])
    """
    rows, evaluations = np.arange(len(labels)), margins.shape[1]
    found = np.zeros((len(labels), num_classes))
    for e in range(evaluations):
        won = 0.5 * (1.0 + np.tanh(0.5 * margins[:, e].astype(np.float64)))
        found[rows, labels] += won
        found[rows, rivals[:, e]] += 1.0 - won
    mean: NDArray[np.float64] = found / evaluations
    return mean
