"""The result of every kind of noise: given labels beside the clean ones, and what was measured on them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from reweigh.noise.arguments import Labels, Matrix


@dataclass(frozen=True, eq=False)
class Corruption:
    """Noisy labels with their provenance.

    Args:
        labels: the given labels, int64.
        clean: the true labels, int64; -1 where the truth is not known.
        kind: the noise as an expression, such as "symmetric(rate=0.4)".
        rate: nominal: what was asked for.
        measured: the share of wrong labels among those whose truth is known; NaN if none is.
        counts: C x C, counts[true, given], over the same examples.
        seed: None when the caller brought a generator or the labels were given.
        hash: sha256 of `labels` as little-endian int64.
    """

    labels: Labels
    clean: Labels
    kind: str
    rate: float
    measured: float
    counts: Labels
    seed: int | None
    hash: str

    @property
    def num_classes(self) -> int:
        """C, the side of `counts`."""
        return len(self.counts)

    @property
    def flipped(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which labels are known to be wrong."""
        wrong: np.ndarray[tuple[int], np.dtype[np.bool_]] = (self.clean >= 0) & (self.labels != self.clean)
        return wrong

    @property
    def transition(self) -> Matrix:
        """The measured P(given | true): `counts` with rows summing to 1; an absent class stays itself."""
        rows = self.counts.sum(axis=1, keepdims=True)
        measured: Matrix = np.where(rows > 0, self.counts / np.maximum(rows, 1), np.eye(self.num_classes))
        return measured

    def __repr__(self) -> str:
        wrong = int(self.counts.sum() - self.counts.trace())
        return f"Corruption({self.kind}, {len(self.labels)} labels, {wrong} wrong, hash={self.hash[:12]})"


def label_hash(labels: Labels) -> str:
    """The sha256 of labels as little-endian int64 bytes: the same on every machine.

    >>> label_hash(np.array([6, 9, 9]))[:12]
    'abbc703f913e'
    """
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()


def measure(labels: Labels, clean: Labels, num_classes: int, kind: str, rate: float, seed: int | None) -> Corruption:
    """The Corruption of these labels, everything measured, arrays frozen.

    >>> c = measure(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, "pair(rate=0.3)", 0.3, seed=0)
    >>> round(c.measured, 3), c.counts.tolist()
    (0.333, [[1, 1], [0, 1]])
    """
    known = clean >= 0
    cells = clean[known] * num_classes + labels[known]
    counts = np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes).astype(np.int64)
    total = int(counts.sum())
    measured = (total - int(counts.trace())) / total if total else float("nan")
    frozen = [np.array(array, dtype=np.int64) for array in (labels, clean, counts)]
    for array in frozen:
        array.flags.writeable = False
    return Corruption(frozen[0], frozen[1], kind, rate, measured, frozen[2], seed, label_hash(labels))
