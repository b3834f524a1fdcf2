"""Label noise that depends on the true class alone: symmetric, class maps, groups of classes, transition matrices.

Which examples are flipped is decided on the clean labels, for all classes at once, before anything is written:
otherwise cat -> dog followed by dog -> cat would flip some examples back.

Every example of a class map or of symmetric noise gets one uniform score, and those with the smallest scores are
flipped; so with the same seed a higher rate flips the same examples, to the same classes, and more.

There are four readings of "asymmetric CIFAR-100":

    superclass_pair   two classes of every group, exchanged, exact counts      overall rate .4 r
    sl_block_pair     two of every five consecutive ids, drawn per image       about .4 r
    superclass_cycle  every class to the next of its group                     overall rate r
    block_cycle       every class to the next of its five consecutive ids      overall rate r

The block kinds are what several public programs do; as CIFAR-100's ids are alphabetical, their first "superclass" is
{apple, aquarium_fish, baby, bear, beaver}. They exist to compare with published numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reweigh.noise.corruption import (
    Corruption,
    Count,
    Labels,
    Matrix,
    Seed,
    check_count,
    check_groups,
    check_labels,
    check_rate,
    kind_text,
    quota,
    random_source,
)

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
        seed: of the draw, or a generator.
        include_true: False draws one of the C - 1 other classes, so that r is the noise rate (the paper's convention);
            True draws any of the C classes, so that the noise rate is r (C - 1) / C.
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
    kind = kind_text("symmetric", rate=rate, include_true=include_true, count=count)
    return Corruption.from_labels(np.where(flip, drawn, clean), clean, classes, kind, rate, recorded)


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
    kind = kind_text("pair", rate=rate, count=count)
    return class_map(clean, np.roll(np.arange(classes), -1), rate, seed=seed, count=count, kind=kind)


def asymmetric_cifar10(labels: npt.ArrayLike, rate: float, *, seed: Seed = 0, count: Count = "per_class") -> Corruption:
    """Flip between similar classes of CIFAR-10: truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog.

    A share `rate` of those five classes flips, the other five stay: overall rate / 2 on balanced labels.
    """
    kind = kind_text("asymmetric_cifar10", rate=check_rate(rate), count=count)
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
        seed: of the draw, or a generator.
        count: as in `symmetric`; "overall" is exactly floor(r M) of the M examples that the map moves at all.
        kind: its name in records; by default the map itself.

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
    kind = kind or kind_text("class_map", targets=tuple(to.tolist()), rate=rate, count=count)
    return Corruption.from_labels(np.where(flip, to[clean], clean), clean, classes, kind, rate, recorded)


def superclass_pair(
    labels: npt.ArrayLike,
    rate: float,
    groups: Sequence[int] | Labels,
    *,
    seed: Seed = 0,
    count: Count = "per_class",
) -> Corruption:
    """Exchange a share `rate` between two classes, drawn at random, of every group.

    Args:
        labels: N class ids.
        rate: r, from 0 to 1, of each of the two classes.
        groups: the group of every class; its length is the number of classes.
        seed: of the pairs and of the draw, or a generator.
        count: as in `symmetric`.

    >>> superclass_pair([0, 0, 1, 1], 0.5, groups=[0, 0]).counts.tolist()
    [[1, 1], [1, 1]]
    """
    kind = kind_text("superclass_pair", rate=check_rate(rate), count=count)
    return class_map(labels, random_pairs(groups, seed), rate, seed=seed, count=count, kind=kind)


def sl_block_pair(
    labels: npt.ArrayLike, rate: float, *, num_classes: int | None = None, block: int = 5, seed: Seed = 0
) -> Corruption:
    """Exchange two classes of every block of consecutive ids, drawing each label as SL's program does.

    The share of noisy labels is random, 2 rate / block on average on balanced labels.
    """
    clean, classes = check_labels(labels, num_classes)
    rate = check_rate(rate)
    matrix = map_matrix(random_pairs(blocks(classes, block), seed), rate)
    rng, recorded = random_source(seed)
    kind = kind_text("sl_block_pair", rate=rate, block=block)
    return Corruption.from_labels(draw(matrix, clean, rng), clean, classes, kind, rate, recorded)


def superclass_cycle(
    labels: npt.ArrayLike,
    rate: float,
    groups: Sequence[int] | Labels,
    *,
    seed: Seed = 0,
    count: Count = "per_class",
) -> Corruption:
    """Flip a share `rate` of every class to the next class of its group, the last one to the first.

    >>> superclass_cycle([0, 1, 2, 3], 1.0, groups=[0, 1, 0, 1]).labels.tolist()
    [2, 3, 0, 1]
    """
    kind = kind_text("superclass_cycle", rate=check_rate(rate), count=count)
    return class_map(labels, cycle(groups), rate, seed=seed, count=count, kind=kind)


def block_cycle(
    labels: npt.ArrayLike,
    rate: float,
    *,
    num_classes: int | None = None,
    block: int = 5,
    seed: Seed = 0,
    count: Count = "per_class",
) -> Corruption:
    """Flip a share `rate` of every class to the next id of its block, the last one to the first.

    >>> block_cycle([0, 1, 2, 3], 1.0, block=2).labels.tolist()
    [1, 0, 3, 2]
    """
    clean, classes = check_labels(labels, num_classes)
    kind = kind_text("block_cycle", rate=check_rate(rate), block=block, count=count)
    return class_map(clean, cycle(blocks(classes, block)), rate, seed=seed, count=count, kind=kind)


def blocks(num_classes: int, block: int = 5) -> Labels:
    """Return groups of consecutive ids: the group of class c is c // block.

    >>> blocks(4, block=2).tolist()
    [0, 0, 1, 1]
    """
    if block < 2 or num_classes % block:
        raise ValueError(f"{num_classes} classes do not divide into blocks of {block}, each of two or more")
    return np.arange(num_classes, dtype=np.int64) // block


def random_pairs(groups: Sequence[int] | Labels, seed: Seed = 0) -> Labels:
    """Return a class map that exchanges two random classes of every group and leaves the others.

    The pairs depend on the seed only, not on the rate.
    """
    of = check_groups(groups)
    rng, _ = random_source(seed, "noise/pairs")
    targets = np.arange(len(of), dtype=np.int64)
    for group in np.unique(of):
        a, b = rng.choice(np.flatnonzero(of == group), size=2, replace=False)
        targets[[a, b]] = b, a
    return targets


def cycle(groups: Sequence[int] | Labels) -> Labels:
    """Return a class map that sends every class to the next id of its group, the last to the first.

    >>> cycle([0, 1, 0, 1, 0]).tolist()
    [2, 3, 4, 1, 0]
    """
    of = check_groups(groups)
    targets = np.empty(len(of), dtype=np.int64)
    for group in np.unique(of):
        members = np.flatnonzero(of == group)
        targets[members] = np.roll(members, -1)
    return targets


def transition(labels: npt.ArrayLike, matrix: npt.ArrayLike, *, seed: Seed = 0) -> Corruption:
    """Draw every label from the row of its true class, independently.

    The nominal rate is the expected share of noisy labels, the mean of 1 - P[y, y].

    >>> transition([0, 0, 1], [[0, 1], [0, 1]]).labels.tolist()
    [1, 1, 1]
    """
    rows = check_matrix(matrix)
    clean, classes = check_labels(labels, len(rows))
    rng, recorded = random_source(seed)
    rate = float(np.mean(1 - rows.diagonal()[clean]))
    kind = kind_text("transition", rate=round(rate, 6))
    return Corruption.from_labels(draw(rows, clean, rng), clean, classes, kind, rate, recorded)


def draw(rows: Matrix, clean: Labels, rng: np.random.Generator) -> Labels:
    """Draw one label per example from the row of its class, by inversion of the cumulative row."""
    below = np.cumsum(rows, axis=1)
    below /= below[:, -1:]  # ends at exactly 1, which no uniform draw reaches
    score = rng.random(len(clean))
    given = np.empty_like(clean)
    for c in np.unique(clean):
        members = clean == c
        given[members] = np.searchsorted(below[c], score[members], side="right")
    return given


def check_matrix(matrix: npt.ArrayLike) -> Matrix:
    """Return the matrix as float64; it must be square and non-negative, with rows summing to 1 within 1e-6."""
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
    """Return the expected matrix of `symmetric` noise.

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
    """Return the expected matrix of a class map: 1 - rate on the diagonal and rate at (c, targets[c]).

    >>> map_matrix([1, 0, 2], 0.25).tolist()
    [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    """
    to, classes = check_labels(targets, len(targets), name="targets")
    identity = np.eye(classes)
    return (1 - check_rate(rate)) * identity + rate * identity[to]


def _chosen(clean: Labels, rate: float, count: Count, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return which examples to flip: those with the smallest scores, as many as `count` and `rate` require."""
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
