"""Orders of examples as pure functions of (seed, step), so that a run resumes exactly in mid-epoch.

An order is called with a range of steps and returns their indices, (len(steps), batch_size) int64 on the CPU. The row
of a step does not depend on the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.streams import generator


class Order(Protocol):
    """Steps -> indices, with the same `batch_size` at every step."""

    @property
    def batch_size(self) -> int:
        """Examples per step."""

    def __call__(self, steps: range) -> Tensor:
        """Return (len(steps), batch_size) int64."""


@dataclass(frozen=True)
class Shuffled:
    """A new random order in every epoch; examples that do not fill a last batch are skipped in that epoch.

    So every batch has the same size and no example twice, and an epoch uses each example at most once; the skipped
    ones change from epoch to epoch. With fewer examples than `batch_size`, a batch repeats them as evenly as possible.

    Args:
        n: number of examples.
        batch_size: examples per step.
        seed: of the run; the stream is "order".

    >>> order = Shuffled(n=5, batch_size=2, seed=0)
    >>> order(range(4)).shape, bool((order(range(4))[3] == order(range(3, 4))[0]).all())
    (torch.Size([4, 2]), True)
    """

    n: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        _check(self.n, self.batch_size)

    def __call__(self, steps: range) -> Tensor:
        """(len(steps), batch_size) indices."""
        per_epoch = max(1, self.n // self.batch_size)
        rows = []
        for epoch, group in groupby(steps, key=lambda step: step // per_epoch):
            permutation = _permutation(self.n, self.seed, "order", epoch)
            first = torch.tensor([step % per_epoch for step in group]) * self.batch_size
            rows.append(permutation[(first[:, None] + torch.arange(self.batch_size)) % self.n])
        return torch.cat(rows) if rows else torch.empty(0, self.batch_size, dtype=torch.int64)


@dataclass(frozen=True)
class Cyclic:
    """One random order, repeated without gaps, as a Caffe program reads its database.

    Args:
        n: number of examples.
        batch_size: examples per step.
        seed: of the run; the stream is "order".
    """

    n: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        _check(self.n, self.batch_size)

    def __call__(self, steps: range) -> Tensor:
        """(len(steps), batch_size) indices."""
        first = torch.tensor(steps, dtype=torch.int64) * self.batch_size
        permutation = _permutation(self.n, self.seed, "order", 0)
        return permutation[(first[:, None] + torch.arange(self.batch_size)) % self.n]


class Balanced:
    """Class-balanced batches: min(classes, C) classes a batch, images shared equally, by the given label.

    The paper's authors ran batches of 256 as 32 classes x 8 images. Classes without examples are ignored. Classes are
    shuffled and batches take them in turn; after the smallest number of batches that uses all equally often (25 for 32
    of 100) they are shuffled again. No batch has a class twice. Where `batch_size` does not divide, the first classes
    of a batch get one image more. Within a class, images come in shuffled epochs as in `Shuffled`, so that a batch
    repeats an image only if its class has too few.

    Args:
        labels: (N,) the given (noisy) labels.
        batch_size: examples per step.
        seed: of the run; the stream is "order".
        classes: at most this many classes in a batch.

    >>> order = Balanced([0, 0, 0, 1], batch_size=4, seed=0)
    >>> torch.tensor([0, 0, 0, 1])[order(range(2))].sum(1)
    tensor([2, 2])
    """

    def __init__(
        self, labels: Sequence[int] | NDArray[np.int64], batch_size: int, seed: int, *, classes: int = 32
    ) -> None:
        given = np.asarray(labels)
        _check(given.size, batch_size)
        if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
            raise ValueError(f"labels must be one-dimensional integers, not {given.shape} of {given.dtype}")
        if classes < 1:
            raise ValueError(f"classes must be 1 or more, not {classes}")
        self.batch_size, self.seed = batch_size, seed
        self.members = [np.flatnonzero(given == label) for label in np.unique(given)]
        self.classes = min(classes, len(self.members), batch_size)
        self.share, self.larger = divmod(batch_size, self.classes)
        common = math.gcd(len(self.members), self.classes)
        self.round, self.visits = len(self.members) // common, self.classes // common

    def __call__(self, steps: range) -> Tensor:
        """(len(steps), batch_size) indices, grouped by class."""
        shuffled: dict[tuple[int, int], NDArray[np.int64]] = {}

        def images(label: int, visit: int, size: int) -> NDArray[np.int64]:
            members = self.members[label]
            reserved = self.share + (self.larger > 0)
            epoch, nth = divmod(visit, max(1, len(members) // reserved))
            if (label, epoch) not in shuffled:
                permutation = _permutation(len(members), self.seed, f"order/class {label}", epoch)
                shuffled[label, epoch] = members[permutation.numpy()]
            return shuffled[label, epoch][(nth * reserved + np.arange(size)) % len(members)]

        rows = []
        for number, group in groupby(steps, key=lambda step: step // self.round):
            labels = _permutation(len(self.members), self.seed, "order/classes", number).tolist()
            for step in group:
                first = step % self.round * self.classes
                for slot in range(self.classes):
                    lap, at = divmod(first + slot, len(labels))
                    size = self.share + (slot < self.larger)
                    rows.append(images(labels[at], number * self.visits + lap, size))
        flat = np.concatenate(rows) if rows else np.empty(0, np.int64)
        return torch.from_numpy(flat).view(len(steps), self.batch_size)


class Subset:
    """An order over a subset of the examples: `order` is over 0 to len(indices) - 1.

    >>> Subset([7, 9], Cyclic(n=2, batch_size=2, seed=0))(range(1)).sort().values
    tensor([[7, 9]])
    """

    def __init__(self, indices: Sequence[int] | NDArray[np.int64], order: Order) -> None:
        self.indices = torch.from_numpy(np.array(indices, dtype=np.int64))
        self.order = order
        self.batch_size = order.batch_size

    def __call__(self, steps: range) -> Tensor:
        """(len(steps), batch_size) indices."""
        return self.indices[self.order(steps)]


def checked(order: Order | None, steps: range, n: int) -> Tensor:
    """Return the indices of those steps; raise ValueError unless they are valid for `n` examples."""
    if order is None:
        raise ValueError("order is None: this part is for evaluation only")
    if len(steps) and min(steps) < 0:
        raise ValueError(f"step must be 0 or more, not {min(steps)}")
    index = order(steps)
    if index.numel() and (index.min() < 0 or index.max() >= n):
        wrong = index.min() if index.min() < 0 else index.max()
        raise ValueError(f"order gives index {int(wrong)}, but there are {n} examples")
    return index


def _permutation(n: int, seed: int, stream: str, number: int) -> Tensor:
    return torch.randperm(n, generator=generator(seed, stream, number))


def _check(n: int, batch_size: int) -> None:
    if n < 1:
        raise ValueError(f"n must be 1 or more, not {n}: there is nothing to draw from")
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
