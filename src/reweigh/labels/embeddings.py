"""Probabilities of the classes from embeddings alone, by two classifiers that do not see the label they judge.

The linear head is a linear discriminant with a shared, shrunk covariance, cross-fitted over folds. The other is the
share of each class among the nearest neighbours by cosine similarity. Both have a closed form: there is no training,
and nothing is memorised. Their mean ranks wrong labels better than either one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reweigh.labels.arrays import Labels, check_rows, to_array
from reweigh.streams import numpy_generator

FOLDS = 5
NEIGHBOURS = 15
SHRINKAGE = 0.1  # of the covariance, towards a multiple of the identity
REFERENCES = 50_000  # neighbours are searched among this many examples at most, so that the cost stays linear in N
BLOCK = 2**24  # similarities computed at a time

Floats = NDArray[np.float64]
Single = NDArray[np.float32]


def probabilities_of(labels: Labels, embeddings: ArrayLike, num_classes: int, *, seed: int = 0) -> Floats:
    """Return (N, C) out-of-sample probabilities from embeddings and noisy labels.

    Args:
        labels: (N,) class ids.
        embeddings: (N, D) numbers, such as features of a pretrained net.
        num_classes: C.
        seed: of the folds and of the references among more than `REFERENCES` examples.

    Raises:
        ValueError: the embeddings are not finite, or there are fewer examples than 4.
    """
    features = to_array(embeddings)
    if features.ndim != 2 or features.dtype.kind not in "fiu" or len(features) != len(labels):
        raise ValueError(f"embeddings must be ({len(labels)}, D) numbers, not {features.shape} of {features.dtype}")
    check_rows("embeddings", "finite", ~np.isfinite(features).all(axis=1))
    if len(labels) < 4:
        raise ValueError(f"embeddings has {len(labels)} rows; expected 4 or more")
    x = features.astype(np.float32)
    x = x - x.mean(axis=0)
    rng = numpy_generator(seed, "embeddings")
    linear = _linear_head(x / (x.std(axis=0) + 1e-6), labels, num_classes, _folds(labels, rng))
    return 0.5 * (linear + _neighbours(x, labels, num_classes, rng))


def _folds(labels: Labels, rng: np.random.Generator) -> Labels:
    """Return (N,) the fold of each example; every fold has its share of every class."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.int64)
    folds[order] = np.arange(len(labels)) % min(FOLDS, len(labels))
    return folds


def _linear_head(x: Single, labels: Labels, num_classes: int, folds: Labels) -> Floats:
    counts, sums, moments = [], [], []
    for fold in range(int(folds.max()) + 1):
        inside = folds == fold
        of_class = np.zeros((num_classes, x.shape[1]))
        np.add.at(of_class, labels[inside], x[inside])
        counts.append(np.bincount(labels[inside], minlength=num_classes).astype(np.float64))
        sums.append(of_class)
        moments.append((x[inside].T @ x[inside]).astype(np.float64))
    logits = np.empty((len(x), num_classes))
    for fold in range(len(counts)):
        count = sum(counts) - counts[fold]
        n = count.sum()
        mean = (sum(sums) - sums[fold]) / np.maximum(count, 1.0)[:, None]
        within = (sum(moments) - moments[fold]) / n - (mean.T * (count / n)) @ mean
        scale = max(float(np.trace(within)) / len(within), 1e-12)
        shrunk = (1 - SHRINKAGE) * within + SHRINKAGE * scale * np.eye(len(within))
        weights = np.linalg.solve(shrunk, mean.T)
        with np.errstate(divide="ignore"):
            bias = np.log(count / n) - 0.5 * (mean * weights.T).sum(axis=1)  # -inf for a class without examples
        logits[folds == fold] = x[folds == fold] @ weights + bias
    logits -= logits.max(axis=1, keepdims=True)
    p: Floats = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    return p


def _neighbours(x: Single, labels: Labels, num_classes: int, rng: np.random.Generator) -> Floats:
    """Return the shares of the classes among each example's nearest neighbours, itself excluded, plus the prior."""
    n = len(x)
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    known = np.arange(n) if n <= REFERENCES else np.sort(rng.choice(n, REFERENCES, replace=False))
    place = np.full(n, -1)
    place[known] = np.arange(len(known))
    k = min(NEIGHBOURS, len(known) - 1)
    prior = np.bincount(labels, minlength=num_classes) / n
    shares = np.tile(prior, (n, 1))
    width = max(1, BLOCK // len(known))
    for start in range(0, n, width):
        rows = np.arange(start, min(n, start + width))
        similarity = unit[rows] @ unit[known].T
        own = place[rows] >= 0
        similarity[np.flatnonzero(own), place[rows][own]] = -np.inf
        nearest = labels[known[np.argpartition(-similarity, k - 1, axis=1)[:, :k]]]
        np.add.at(shares, (np.repeat(rows, k), nearest.reshape(-1)), 1.0)
    return shares / (k + 1.0)
