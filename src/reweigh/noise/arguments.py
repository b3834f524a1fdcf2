"""What every kind of noise asks of its arguments, refused in one voice."""

from __future__ import annotations

from collections.abc import Sequence
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

# Beyond this a class id is more likely a broken file than a class, and C x C counts would fill the memory.
LARGEST_INFERRED = 10_000


def check_labels(labels: Any, num_classes: int | None = None, name: str = "labels") -> tuple[Labels, int]:
    """The labels as int64 vector, and the number of classes: the one given, else the largest label + 1.

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
    """The rate as a float between 0 and 1.

    >>> check_rate(1)
    1.0
    """
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.integer | np.floating):
        raise TypeError(f"rate is {rate!r}; expected a number from 0 to 1")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate is {rate}; expected a number from 0 to 1")
    return float(rate)


def check_count(count: str) -> None:
    """Refuse a way of counting that does not exist."""
    if count not in COUNTS:
        raise ValueError(f"count is {count!r}; expected one of {', '.join(COUNTS)}")


def check_groups(groups: Sequence[int] | Labels, num_classes: int | None = None) -> Labels:
    """The group of every class, each group with at least two classes."""
    array, _ = check_labels(groups, name="groups")
    if num_classes is not None and len(array) != num_classes:
        raise ValueError(f"groups has {len(array)} entries; expected one for each of {num_classes} classes")
    ids, sizes = np.unique(array, return_counts=True)
    if sizes.min() < 2:
        alone = ids[sizes.argmin()]
        raise ValueError(f"group {alone} has only class {np.flatnonzero(array == alone)[0]}; expected two or more")
    return array


def random_source(seed: Seed, stream: str = "noise") -> tuple[np.random.Generator, int | None]:
    """The generator of that seed and the seed to record; a caller's own generator has none."""
    if isinstance(seed, np.random.Generator):
        return seed, None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed is {seed!r}; expected an integer or a numpy.random.Generator")
    return numpy_generator(int(seed), stream), int(seed)


def quota(size: Any, rate: float) -> Any:
    """How many of `size` examples a rate means: floor(rate * size), but 0.29 of 100 is 29 and not 28.

    >>> int(quota(100, 0.29)), int(quota(7, 0.5))
    (29, 3)
    """
    return np.floor(rate * np.asarray(size) + 1e-9).astype(np.int64)


def expression(name: str, **arguments: object) -> str:
    """A kind of noise as it is written in records: arguments at their defaults are left out.

    >>> expression("symmetric", rate=0.4, count="per_class", include_true=True)
    'symmetric(rate=0.4, include_true=True)'
    """
    told = (f"{key}={value!r}" for key, value in arguments.items() if DEFAULTS.get(key, ...) != value)
    return f"{name}({', '.join(told)})"
