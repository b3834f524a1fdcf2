"""Stratified, seeded splits: labels -> (training indices, held-out indices), in ascending order."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.dataset import NOISY_HOLDOUT, Dataset, Labels, Part
from reweigh.streams import numpy_generator

Indices = NDArray[np.int64]

TEST_NAMES = ("test", "val", "valid", "validation")
"""Possible names of the test part of a user's data; the first that exists is read."""


def stratified_split(labels: Labels, fraction: float = 0.2, seed: int = 0) -> tuple[Indices, Indices]:
    """Hold out about `fraction` of every class.

    round(fraction * N) examples are held out: floor(fraction * n_c) of class c, and the rest one each from the classes
    with the largest remainders (the lower label first). Every class keeps at least one training example, so fewer may
    be held out if a class has a single example.

    Args:
        labels: (N,) integers.
        fraction: between 0 and 1, both excluded.
        seed: the same seed gives the same indices.

    >>> train, held = stratified_split(np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]))
    >>> len(train), len(held)
    (8, 2)
    """
    return _split(labels, fraction, seed, "split")


def validation_split(labels: Labels, fraction: float = 0.2, seed: int = 0) -> tuple[Indices, Indices]:
    """Return the paper's validation split: train on noisy labels, validate on clean ones.

    Follows the rule of `stratified_split` with independent random numbers. A run passes the noisy labels, as a user
    without clean ones would have to. After the search the paper trains again on all examples.
    """
    return _split(labels, fraction, seed, "validation")


HOLDOUT = 0.2
"""The fraction of a user's data that is held out by default if there is no test part."""


def noisy_holdout(name: str, labels: Labels, seed: int = 0, fraction: float = HOLDOUT) -> tuple[Indices, Indices]:
    """Split data without a test part: a fraction becomes the *noisy hold-out*, all other rows are for training."""
    if fraction == 0:
        return np.arange(len(labels)), np.zeros(0, np.int64)
    train, held = stratified_split(labels, fraction, seed)
    if not len(held):
        if len(labels) > 2 and len(np.unique(labels)) == len(labels):  # for example a column of measurements
            raise DataError(f"{name}: all {len(labels)} labels are different; expected class labels")
        raise DataError(f"{name}: {len(labels)} examples are too few to hold any out; add more, or a test part")
    return train, held


def assemble(
    name: str,
    train: Part,
    test: Part | None,
    class_names: tuple[str, ...],
    seed: int = 0,
    holdout: float = HOLDOUT,
) -> Dataset:
    """Return a data set of the two parts; without a test part, split off the `noisy_holdout`."""
    if test is not None:
        return Dataset(name, train, test, class_names)
    kept, held = noisy_holdout(name, train.labels, seed, holdout)
    return Dataset(name, train.take(kept), train.take(held), class_names, holdout=NOISY_HOLDOUT)


def class_names_of(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels, sorted as numbers if all are integers.

    >>> class_names_of(["10", "9", "9"]), class_names_of(["b", "10"])
    (('9', '10'), ('10', 'b'))
    """
    names = set(labels)
    if all(name.removeprefix("-").isdecimal() and len(name) < 20 for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def _split(labels: Labels, fraction: float, seed: int, stream: str) -> tuple[Indices, Indices]:
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, not {fraction!r}")
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    share = fraction * counts
    quota = np.floor(share).astype(np.int64)
    missing = round(fraction * len(labels)) - int(quota.sum())
    order = np.argsort(-(share - quota), kind="stable")
    quota[order[:missing]] += 1
    quota = np.minimum(quota, counts - 1)
    generator = numpy_generator(seed, stream)
    held = np.zeros(len(labels), dtype=bool)
    for value, number in zip(values, quota, strict=True):
        held[generator.permutation(np.flatnonzero(labels == value))[:number]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
