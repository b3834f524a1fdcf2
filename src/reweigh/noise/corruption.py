"""`Corruption`, the result of every kind of noise, and the checks that all kinds share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from reweigh.streams import numpy_generator

Labels: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Seed: TypeAlias = "int | np.random.Generator"
Count: TypeAlias = Literal["per_class", "overall", "independent"]

DEFAULTS: dict[str, object] = {"count": "per_class", "include_true": False, "block": 5, "key": None}
COUNTS: tuple[Count, ...] = ("per_class", "overall", "independent")

# A larger id is more likely a broken file than a class, and C x C counts would fill the memory.
LARGEST_INFERRED = 10_000


@dataclass(frozen=True, eq=False)
class Corruption:
    """Noisy labels with their provenance.

    Args:
        labels: the given labels, int64.
        clean: the true labels, int64; -1 where the truth is not known.
        kind: the noise as an expression, such as "symmetric(rate=0.4)".
        rate: the nominal rate.
        measured: the share of noisy labels among those whose truth is known; NaN if none is.
        counts: C x C, counts[true, given], over the same examples.
        seed: None when the caller passed a generator or the labels came from elsewhere.
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

    @classmethod
    def from_labels(
        cls, labels: Labels, clean: Labels, num_classes: int, kind: str, rate: float, seed: int | None
    ) -> Corruption:
        """Measure rate and counts of these labels; the arrays are read-only copies.

        >>> c = Corruption.from_labels(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, "pair(rate=0.3)", 0.3, seed=0)
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
        return cls(frozen[0], frozen[1], kind, rate, measured, frozen[2], seed, label_hash(labels))

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.counts)

    @property
    def flipped(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mask of the labels that are known to be wrong."""
        wrong: np.ndarray[tuple[int], np.dtype[np.bool_]] = (self.clean >= 0) & (self.labels != self.clean)
        return wrong

    @property
    def transition(self) -> Matrix:
        """The measured P(given | true): `counts` with rows normalised; an absent class has 1 on the diagonal."""
        rows = self.counts.sum(axis=1, keepdims=True)
        measured: Matrix = np.where(rows > 0, self.counts / np.maximum(rows, 1), np.eye(self.num_classes))
        return measured

    def __repr__(self) -> str:
        wrong = int(self.counts.sum() - self.counts.trace())
        return f"Corruption({self.kind}, {len(self.labels)} labels, {wrong} wrong, hash={self.hash[:12]})"


def label_hash(labels: Labels) -> str:
    """Return the sha256 of labels as little-endian int64 bytes, the same on every machine.

    >>> label_hash(np.array([6, 9, 9]))[:12]
    'abbc703f913e'
    """
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes()).hexdigest()


def check_labels(labels: Any, num_classes: int | None = None, name: str = "labels") -> tuple[Labels, int]:
    """Return labels as an int64 vector, and the number of classes: `num_classes`, or the largest label + 1.

    >>> check_labels([0, 2, 1])
    (array([0, 2, 1]), 3)
    """
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; expected one label per example, at least one")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}; expected integers")
    if num_classes is not None and num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}; expected at least 1")
    limit = LARGEST_INFERRED if num_classes is None else num_classes
    bad = np.flatnonzero((array < 0) | (array >= limit))
    if bad.size:
        where = f"{name}[{bad[0]}] is {array[bad[0]]}; expected 0 to {limit - 1}"
        raise ValueError(where + (" (give num_classes if it is meant)" if num_classes is None else ""))
    return array.astype(np.int64), int(array.max()) + 1 if num_classes is None else num_classes


def check_rate(rate: float) -> float:
    """Return the rate as a float between 0 and 1.

    >>> check_rate(1)
    1.0
    """
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.integer | np.floating):
        raise TypeError(f"rate is {rate!r}; expected a number from 0 to 1")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate is {rate}; expected a number from 0 to 1")
    return float(rate)


def check_count(count: str) -> None:
    """Raise ValueError unless `count` is one of `COUNTS`."""
    if count not in COUNTS:
        raise ValueError(f"count is {count!r}; expected one of {', '.join(COUNTS)}")


def check_groups(groups: Sequence[int] | Labels, num_classes: int | None = None) -> Labels:
    """Return the group of every class; each group needs at least two classes."""
    array, _ = check_labels(groups, name="groups")
    if num_classes is not None and len(array) != num_classes:
        raise ValueError(f"groups has {len(array)} entries; expected one for each of {num_classes} classes")
    ids, sizes = np.unique(array, return_counts=True)
    if sizes.min() < 2:
        alone = ids[sizes.argmin()]
        raise ValueError(f"group {alone} has only class {np.flatnonzero(array == alone)[0]}; expected two or more")
    return array


def random_source(seed: Seed, stream: str = "noise") -> tuple[np.random.Generator, int | None]:
    """Return a generator and the seed to record, which is None for a caller's own generator."""
    if isinstance(seed, np.random.Generator):
        return seed, None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed is {seed!r}; expected an integer or a numpy.random.Generator")
    return numpy_generator(int(seed), stream), int(seed)


def quota(size: Any, rate: float) -> Any:
    """Return floor(rate * size), protected against rounding: 0.29 of 100 is 29 and not 28.

    >>> int(quota(100, 0.29)), int(quota(7, 0.5))
    (29, 3)
    """
    return np.floor(rate * np.asarray(size) + 1e-9).astype(np.int64)


def kind_text(name: str, **arguments: object) -> str:
    """Return a kind of noise as records have it, without the arguments at their defaults.

    >>> kind_text("symmetric", rate=0.4, count="per_class", include_true=True)
    'symmetric(rate=0.4, include_true=True)'
    """
    parts = (f"{key}={value!r}" for key, value in arguments.items() if DEFAULTS.get(key, ...) != value)
    return f"{name}({', '.join(parts)})"
