"""Noise of classes alone: symmetric, and maps of one class to another.

Which examples are flipped is always decided on the clean labels, for all classes at once, before anything is
written: otherwise cat -> dog followed by dog -> cat would flip some examples back.

Every example gets one uniform score, and those with the smallest scores are flipped; so with the same seed a
higher rate flips the same examples, to the same classes, and more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reweigh.noise.arguments import (
    Count,
    Labels,
    Seed,
    check_count,
    check_labels,
    check_rate,
    expression,
    quota,
    random_source,
)
from reweigh.noise.corruption import Corruption, measure

CIFAR10_MAP = (0, 1, 0, 5, 7, 3, 6, 7, 8, 1)
"""Class -> class: bird -> airplane, cat <-> dog, deer -> horse, truck -> automobile."""


def symmetric(
    labels: npt.ArrayLike,
    rate: float,
    *,
    num_classes: int | None = None,
    seed: Seed = 0,
    include_true: bool = False,
    count: Count = "per_class",
) -> Corruption:
    """Flip a share `rate` of the labels to a class drawn uniformly.

    Args:
        labels: N class ids.
        rate: r, from 0 to 1.
        num_classes: C; by default the largest label + 1.
        seed: of the draw, or the caller's generator.
        include_true: False draws one of the C - 1 other classes, so that r is the wrong rate (the paper's
            convention); True any of the C classes, wrong rate r (C - 1) / C.
        count: "per_class": exactly floor(r n_c) of every class; "overall": exactly floor(r N);
            "independent": each with probability r.

    >>> symmetric([0, 0, 1, 1], 0.5, seed=3).counts.tolist()
    [[1, 1], [1, 1]]
    """
    clean, classes = check_labels(labels, num_classes)
    rate = check_rate(rate)
    check_count(count)
    if rate > 0 and classes < 2 and not include_true:
        raise ValueError(f"rate is {rate} with one class: there is no other class to flip to")
    rng, recorded = random_source(seed)
    flip = _chosen(clean, rate, count, rng)
    if include_true:
        drawn = rng.integers(0, classes, len(clean))
    else:
        drawn = (clean + rng.integers(1, max(classes, 2), len(clean))) % classes
    kind = expression("symmetric", rate=rate, include_true=include_true, count=count)
    return measure(np.where(flip, drawn, clean), clean, classes, kind, rate, recorded)


def pair(
    labels: npt.ArrayLike,
    rate: float,
    *,
    num_classes: int | None = None,
    seed: Seed = 0,
    count: Count = "per_class",
) -> Corruption:
    """Flip a share `rate` of every class to the next class, the last one to the first.

    >>> pair([0, 0, 1, 1, 2, 2], 0.5).counts.tolist()
    [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    """
    clean, classes = check_labels(labels, num_classes)
    rate = check_rate(rate)
    if classes < 2 and rate > 0:
        raise ValueError(f"rate is {rate} with one class: there is no next class to flip to")
    kind = expression("pair", rate=rate, count=count)
    return class_map(clean, np.roll(np.arange(classes), -1), rate, seed=seed, count=count, kind=kind)


def asymmetric_cifar10(labels: npt.ArrayLike, rate: float, *, seed: Seed = 0, count: Count = "per_class") -> Corruption:
    """CIFAR-10's five look-alikes: truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog.

    A share `rate` of those five classes flips, the other five stay: overall rate / 2 on balanced labels.
    """
    kind = expression("asymmetric_cifar10", rate=check_rate(rate), count=count)
    return class_map(labels, CIFAR10_MAP, rate, seed=seed, count=count, kind=kind)


def class_map(
    labels: npt.ArrayLike,
    targets: Sequence[int] | Labels,
    rate: float,
    *,
    seed: Seed = 0,
    count: Count = "per_class",
    kind: str | None = None,
) -> Corruption:
    """Flip a share `rate` of every class c with targets[c] != c to targets[c].

    Args:
        labels: N class ids.
        targets: class -> class, one entry for each of the C classes.
        rate: r, from 0 to 1.
        seed: of the draw, or the caller's generator.
        count: as in `symmetric`; "overall" is exactly floor(r M) of the M examples that the map moves at all.
        kind: how records call it; by default the map itself.

    >>> class_map([0, 0, 1, 1, 2, 2], [1, 0, 2], 0.5).counts.tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 2]]
    """
    to, _ = check_labels(targets, len(targets), name="targets")
    clean, classes = check_labels(labels, len(to))
    rate = check_rate(rate)
    check_count(count)
    rng, recorded = random_source(seed)
    moved = to != np.arange(classes)
    flip = np.zeros(len(clean), dtype=bool)
    eligible = np.flatnonzero(moved[clean])
    flip[eligible] = _chosen(clean[eligible], rate, count, rng)
    kind = kind or expression("class_map", targets=tuple(to.tolist()), rate=rate, count=count)
    return measure(np.where(flip, to[clean], clean), clean, classes, kind, rate, recorded)


def _chosen(clean: Labels, rate: float, count: Count, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Which examples to flip: those with the smallest scores, counted as `count` says."""
    score = rng.random(len(clean))
    if count == "independent":
        return score < rate
    strata = clean if count == "per_class" else np.zeros_like(clean)
    order = np.lexsort((score, strata))
    sizes = np.bincount(strata)
    rank = np.arange(len(clean)) - (np.cumsum(sizes) - sizes)[strata[order]]
    flip = np.zeros(len(clean), dtype=bool)
    flip[order] = rank < quota(sizes, rate)[strata[order]]
    return flip
