"""Imbalanced training sets: pure functions from labels to the indices to keep.

For a given seed, a stronger imbalance keeps a subset of the examples that a weaker one keeps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reweigh.errors import DataError
from reweigh.noise.corruption import Labels, Seed, check_labels, kind_text, label_hash, quota, random_source
from reweigh.noise.files import read_array


@dataclass(frozen=True, eq=False)
class Subset:
    """The indices of the examples to keep.

    Args:
        indices: sorted, so that the order of the examples is preserved.
        counts: number of kept examples, by class.
        kind: the imbalance as an expression, such as "long_tail(factor=100.0)".
        seed: None if the caller passed a generator.
        hash: sha256 of `indices` as little-endian int64.
    """

    indices: Labels
    counts: Labels
    kind: str
    seed: int | None
    hash: str

    def __repr__(self) -> str:
        return f"Subset({self.kind}, counts={self.counts.tolist()}, hash={self.hash[:12]})"


def ratio(
    labels: npt.ArrayLike,
    ratio: float,
    minority: int | Sequence[int] = 0,
    seed: Seed = 0,
    num_classes: int | None = None,
) -> Subset:
    """Keep floor(largest other class / ratio) examples of each minority class, and all of the other classes.

    Args:
        labels: N class ids.
        ratio: size of the majority over that of the minority, 1 or more.
        minority: the class or classes to subsample.
        seed: random seed, or a generator.
        num_classes: C; by default the largest label + 1.

    For example, IMDB at 10:1 has 12,500 positive and 1,250 negative reviews.

    >>> ratio([0] * 10 + [1] * 10, 5, minority=0).counts.tolist()
    [2, 10]
    """
    clean, classes = check_labels(labels, num_classes)
    minorities = tuple(dict.fromkeys([minority] if isinstance(minority, int | np.integer) else minority))
    if not minorities or len(minorities) >= classes or not all(0 <= c < classes for c in minorities):
        raise ValueError(f"minority is {minority!r}; expected some, not all, of the classes 0 to {classes - 1}")
    factor = _check_factor(ratio, "ratio")
    counts = np.bincount(clean, minlength=classes)
    wanted = counts.copy()
    wanted[list(minorities)] = quota(np.delete(counts, minorities).max(), 1 / factor)
    for c in minorities:
        if wanted[c] > counts[c]:
            raise ValueError(f"ratio is {factor:g}: it needs {wanted[c]} examples of class {c}, which has {counts[c]}")
    return _keep(clean, wanted, kind_text("ratio", ratio=factor, minority=minorities), seed)


def long_tail(labels: npt.ArrayLike, factor: float, seed: Seed = 0, num_classes: int | None = None) -> Subset:
    """Keep floor(n factor^(-c / (C - 1))) examples of class c, where n is the size of the largest class.

    Args:
        labels: N class ids.
        factor: size of the largest over that of the smallest class, 1 or more; a class with fewer examples keeps all.
        seed: random seed, or a generator.
        num_classes: C; by default the largest label + 1.

    >>> long_tail(sorted([0, 1, 2] * 100), 100).counts.tolist()
    [100, 10, 1]
    """
    clean, classes = check_labels(labels, num_classes)
    factor = _check_factor(factor, "factor")
    if classes < 2:
        raise ValueError("labels has one class; expected two or more")
    counts = np.bincount(clean, minlength=classes)
    share = factor ** -(np.arange(classes) / (classes - 1))
    wanted = np.minimum(counts, quota(counts.max() * share, 1))
    return _keep(clean, wanted, kind_text("long_tail", factor=factor), seed)


def step(
    labels: npt.ArrayLike,
    factor: float,
    fraction: float = 0.5,
    seed: Seed = 0,
    num_classes: int | None = None,
) -> Subset:
    """Keep floor(n / factor) examples of the last round(fraction C) classes and all examples of the others.

    n is the size of the largest class.

    Args:
        labels: N class ids.
        factor: size of a large over that of a small class, 1 or more.
        fraction: fraction of the classes to make small.
        seed: random seed, or a generator.
        num_classes: C; by default the largest label + 1.

    >>> step(sorted([0, 1, 2, 3] * 100), 10).counts.tolist()
    [100, 100, 10, 10]
    """
    clean, classes = check_labels(labels, num_classes)
    factor = _check_factor(factor, "factor")
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is {fraction}; expected a number from 0 to 1")
    counts = np.bincount(clean, minlength=classes)
    num_small = round(fraction * classes)
    wanted = counts.copy()
    wanted[classes - num_small :] = np.minimum(wanted[classes - num_small :], quota(counts.max(), 1 / factor))
    return _keep(clean, wanted, kind_text("step", factor=factor, fraction=float(fraction)), seed)


def kept(
    labels: npt.ArrayLike, file: str | os.PathLike[str], hash: str | None = None, num_classes: int | None = None
) -> Subset:
    """Keep the examples marked with 1 in a .npy file of zeros and ones.

    Args:
        labels: N class ids.
        file: N numbers, such as `reweigh correct` writes.
        hash: the first digits of the expected sha256 of the file, if known.
        num_classes: C; by default the largest label + 1.
    """
    clean, classes = check_labels(labels, num_classes)
    mask = read_array(file, clean.shape, hash=hash)
    bad = np.flatnonzero((mask != 0) & (mask != 1))
    if bad.size:
        raise DataError(f"{os.fspath(file)}: record {bad[0]}: {mask[bad[0]]:g}; expected 0 or 1")
    if not mask.any():
        raise DataError(f"{os.fspath(file)}: all {len(mask)} examples are left out")
    return _subset(clean, np.flatnonzero(mask), classes, kind_text("kept", file=Path(file).name), None)


def _check_factor(factor: float, name: str) -> float:
    if not (math.isfinite(factor) and factor >= 1):
        raise ValueError(f"{name} is {factor}; expected 1 or more")
    return float(factor)


def _keep(clean: Labels, wanted: Labels, kind: str, seed: Seed) -> Subset:
    """Keep the wanted[c] examples with the smallest random scores of every class."""
    present = np.bincount(clean, minlength=len(wanted))
    empty = np.flatnonzero((present > 0) & (wanted < 1))
    if empty.size:
        raise ValueError(f"{kind} leaves no example of class {empty[0]}, which has {present[empty[0]]}")
    rng, recorded = random_source(seed, "imbalance")
    order = np.lexsort((rng.random(len(clean)), clean))
    rank = np.arange(len(clean)) - (np.cumsum(present) - present)[clean[order]]
    return _subset(clean, np.sort(order[rank < wanted[clean[order]]]), len(wanted), kind, recorded)


def _subset(clean: Labels, chosen: Labels, classes: int, kind: str, seed: int | None) -> Subset:
    indices, counts = chosen.astype(np.int64), np.bincount(clean[chosen], minlength=classes).astype(np.int64)
    indices.flags.writeable = counts.flags.writeable = False
    return Subset(indices, counts, kind, seed, label_hash(indices))
