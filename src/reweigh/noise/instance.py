"""Instance-dependent noise (Xia et al., "Part-dependent Label Noise", NeurIPS 2020, appendix B).

Example i gets its own flip rate q_i from a normal distribution around `rate`, truncated to [0, 1]; its new class is
drawn from the softmax of x_i W_y over the other classes, W_y a random F x C projection for its true class.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reweigh.noise.corruption import (
    Corruption,
    Matrix,
    Seed,
    check_labels,
    check_rate,
    kind_text,
    random_source,
)

SPREAD = 0.1
ROWS = 4096  # examples held in float64 at a time: CIFAR's 50,000 x 3,072 pixels would be 1.2 GB


def instance_dependent(
    labels: npt.ArrayLike,
    rate: float,
    features: npt.ArrayLike,
    *,
    num_classes: int | None = None,
    seed: Seed = 0,
) -> Corruption:
    """Flip labels to classes that depend on the features.

    Args:
        labels: N class ids.
        rate: the mean of the flip rates.
        features: N x anything, numbers; flattened, each column standardised, a constant column ignored.
        num_classes: C; by default the largest label + 1.
        seed: of the draw, or a generator.

    The mean of the q_i is `rate` away from the ends; near them truncation pulls it inwards (0.05 gives about
    0.1), as in the source. At exactly 0 and 1 all q_i are the rate itself.

    >>> x = [[0.0], [1.0], [2.0]]
    >>> bool((instance_dependent([0, 1, 2], 1.0, x).labels == [0, 1, 2]).any())
    False
    """
    clean, classes = check_labels(labels, num_classes)
    rate = check_rate(rate)
    x = np.asarray(features)
    if x.ndim == 0 or len(x) != len(clean):
        raise ValueError(f"features has shape {x.shape}; expected {len(clean)} rows, one for each label")
    if x.dtype.kind not in "biuf":
        raise TypeError(f"features has dtype {x.dtype}; expected numbers")
    if rate > 0 and classes < 2:
        raise ValueError(f"rate is {rate} with one class: there is no other class to flip to")
    rng, recorded = random_source(seed)
    x = x.reshape(len(x), -1)
    mean, scale = _moments(x)
    flip = rng.random(len(clean)) < _truncated_normal(rate, len(clean), rng)
    score = rng.random(len(clean))
    given = clean.copy()
    for c in range(classes):
        projection = rng.standard_normal((x.shape[1], classes))
        for rows in np.array_split(np.flatnonzero(flip & (clean == c)), max(1, len(clean) // ROWS)):
            logits = ((x[rows] - mean) * scale) @ projection
            logits[:, c] = -np.inf
            below = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
            below /= below[:, -1:]  # ends at exactly 1, which no score reaches
            given[rows] = (below <= score[rows, None]).sum(axis=1)
    kind = kind_text("instance_dependent", rate=rate)
    return Corruption.from_labels(given, clean, classes, kind, rate, recorded)


def _truncated_normal(mean: float, size: int, rng: np.random.Generator) -> Matrix:
    """Draw from a normal distribution of deviation SPREAD truncated to [0, 1]; a mean of 0 or 1 is returned as is."""
    if mean in (0, 1):
        return np.full(size, mean)
    drawn = rng.normal(mean, SPREAD, size)
    while (outside := (drawn < 0) | (drawn > 1)).any():
        drawn[outside] = rng.normal(mean, SPREAD, int(outside.sum()))
    return drawn


def _moments(x: npt.NDArray[np.generic]) -> tuple[Matrix, Matrix]:
    """Return the mean of every column and the inverse of its deviation, 0 where the column is constant."""
    with np.errstate(invalid="ignore", over="ignore"):
        mean = sum((part.sum(axis=0) for part in _parts(x)), np.zeros(x.shape[1])) / len(x)
        variance = sum((np.square(part - mean).sum(axis=0) for part in _parts(x)), np.zeros(x.shape[1])) / len(x)
    bad = np.flatnonzero(~np.isfinite(variance))
    if bad.size:
        raise ValueError(f"features has a value in column {bad[0]} that is not finite")
    scale = np.zeros_like(variance)
    varies = (variance > 0) & (x.min(axis=0) < x.max(axis=0))  # rounding may leave a constant some variance
    np.divide(1, np.sqrt(variance), out=scale, where=varies)
    return mean, scale


def _parts(x: npt.NDArray[np.generic]) -> Iterator[Matrix]:
    for start in range(0, len(x), ROWS):
        yield x[start : start + ROWS].astype(np.float64)
