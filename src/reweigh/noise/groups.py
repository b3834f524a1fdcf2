"""Noise inside groups of classes: the four readings of "asymmetric CIFAR-100".

    superclass_pair   two classes of every group, exchanged, exact counts      overall rate .4 r
    sl_block_pair     two of every five consecutive ids, drawn per image       about .4 r
    superclass_cycle  every class to the next of its group                     overall rate r
    block_cycle       every class to the next of its five consecutive ids      overall rate r

The block kinds are what several public programs do; as CIFAR-100's ids are alphabetical, their first
"superclass" is {apple, aquarium_fish, baby, bear, beaver}. They exist to compare with published numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reweigh.noise.arguments import (
    Count,
    Labels,
    Seed,
    check_groups,
    check_labels,
    check_rate,
    expression,
    random_source,
)
from reweigh.noise.corruption import Corruption, measure
from reweigh.noise.flips import class_map
from reweigh.noise.transition import draw, map_matrix


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
        seed: of the pairs and of the draw, or the caller's generator.
        count: as in `symmetric`.

    >>> superclass_pair([0, 0, 1, 1], 0.5, groups=[0, 0]).counts.tolist()
    [[1, 1], [1, 1]]
    """
    kind = expression("superclass_pair", rate=check_rate(rate), count=count)
    return class_map(labels, random_pairs(groups, seed), rate, seed=seed, count=count, kind=kind)


def sl_block_pair(
    labels: npt.ArrayLike, rate: float, *, num_classes: int | None = None, block: int = 5, seed: Seed = 0
) -> Corruption:
    """Exchange two classes of every block of consecutive ids, each label drawn as SL's code does.

    The share of wrong labels is random, 2 rate / block on average on balanced labels.
    """
    clean, classes = check_labels(labels, num_classes)
    rate = check_rate(rate)
    matrix = map_matrix(random_pairs(blocks(classes, block), seed), rate)
    rng, recorded = random_source(seed)
    kind = expression("sl_block_pair", rate=rate, block=block)
    return measure(draw(matrix, clean, rng), clean, classes, kind, rate, recorded)


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
    kind = expression("superclass_cycle", rate=check_rate(rate), count=count)
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
    kind = expression("block_cycle", rate=check_rate(rate), block=block, count=count)
    return class_map(clean, cycle(blocks(classes, block)), rate, seed=seed, count=count, kind=kind)


def blocks(num_classes: int, block: int = 5) -> Labels:
    """Groups of consecutive ids: the group of class c is c // block.

    >>> blocks(4, block=2).tolist()
    [0, 0, 1, 1]
    """
    if block < 2 or num_classes % block:
        raise ValueError(f"{num_classes} classes do not divide into blocks of {block}, each of two or more")
    return np.arange(num_classes, dtype=np.int64) // block


def random_pairs(groups: Sequence[int] | Labels, seed: Seed = 0) -> Labels:
    """A class map that exchanges two classes, drawn at random, of every group and leaves the others.

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
    """A class map that sends every class to the next id of its group, the last to the first.

    >>> cycle([0, 1, 0, 1, 0]).tolist()
    [2, 3, 4, 1, 0]
    """
    of = check_groups(groups)
    targets = np.empty(len(of), dtype=np.int64)
    for group in np.unique(of):
        members = np.flatnonzero(of == group)
        targets[members] = np.roll(members, -1)
    return targets
