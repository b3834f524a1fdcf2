"""Stratified, seeded splits: labels -> (training indices, held-out indices), both in ascending order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.dataset import NOISY_HOLDOUT, Dataset, Labels, Part
from reweigh.streams import numpy_generator

Indices = NDArray[np.int64]

TEST_NAMES = ("test", "val", "valid", "validation")
"""What the test part of a user's data may be called; the first that is there is read."""


def stratified_split(labels: Labels, fraction: float = 0.2, seed: int = 0) -> tuple[Indices, Indices]:
    """Hold out about `fraction` of every class.

    round(fraction * N) examples are held out. Class c gives floor(fraction * n_c) of them, and what is missing
    comes one each from the classes with the largest remainders (the lower label first). Every class keeps at
    least one training example, so a class with a single example gives none and fewer may be held out in all.

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
    """The paper's validation split: train on the first part with its noise, validate on the second with clean labels.

    The rule is that of `stratified_split`; the draws are independent of it. A run hands it the labels as they are
    after the noise, as a user without clean ones would have to. After the search the paper trains again on everything.
    """
    return _split(labels, fraction, seed, "validation")


def noisy_holdout(name: str, labels: Labels, seed: int = 0) -> tuple[Indices, Indices]:
    """The split of a user's data that has no test part: 80 % for training, 20 % as the *noisy hold-out*."""
    train, held = stratified_split(labels, seed=seed)
    if not len(held):
        if len(labels) > 2 and len(np.unique(labels)) == len(labels):  # a column of measurements, say
            raise DataError(f"{name}: no two of the {len(labels)} labels are equal; expected classes")
        raise DataError(f"{name}: {len(labels)} examples are too few to hold any out; add some, or a test part")
    return train, held


def assemble(name: str, train: Part, test: Part | None, class_names: tuple[str, ...], seed: int = 0) -> Dataset:
    """A data set of the two parts, or of the training part's `noisy_holdout` where there is no test part."""
    if test is not None:
        return Dataset(name, train, test, class_names)
    kept, held = noisy_holdout(name, train.labels, seed)
    return Dataset(name, train.take(kept), train.take(held), class_names, holdout=NOISY_HOLDOUT)


def _split(labels: Labels, fraction: float, seed: int, stream: str) -> tuple[Indices, Indices]:
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, not {fraction!r}")
    values, counts = np.unique(np.asarray(labels), return_counts=True)
    share = fraction * counts
    give = np.floor(share).astype(np.int64)
    missing = round(fraction * len(labels)) - int(give.sum())
    order = np.argsort(-(share - give), kind="stable")
    give[order[:missing]] += 1
    give = np.minimum(give, counts - 1)
    generator = numpy_generator(seed, stream)
    held = np.zeros(len(labels), dtype=bool)
    for value, number in zip(values, give, strict=True):
        held[generator.permutation(np.flatnonzero(labels == value))[:number]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
