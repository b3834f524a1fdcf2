"""Read the arrays of other libraries: tensors of any type and device, columns of data frames, labels as strings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Labels = NDArray[np.int64]


def to_array(values: Any) -> NDArray[Any]:
    """Return a numpy array of a tensor (any type and device), a data frame's column, or anything numpy reads.

    A column of Python objects that are all integers or all floats becomes numeric.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)
    array = np.asarray(values)
    if array.dtype == object and array.size:
        kinds = {type(value) for value in array.flat}
        for kind, dtype in ((int, np.int64), (float, np.float64)):
            if all(issubclass(each, kind) or np.issubdtype(each, dtype) for each in kinds) and bool not in kinds:
                return array.astype(dtype)
    return array


def read_labels(
    labels: ArrayLike, num_classes: int | None = None, class_names: Sequence[str] | None = None
) -> tuple[Labels, tuple[str, ...]]:
    """Return (N,) class ids and the names of the classes.

    Integers are class ids. Strings are class names: their ids are their places in `class_names`, by default in the
    sorted distinct labels, as scikit-learn orders the columns of `predict_proba`.

    Args:
        labels: (N,) integers, booleans or strings.
        num_classes: C; by default the number of class names, of distinct strings, or the largest id + 1.
        class_names: class id -> name.

    Raises:
        ValueError: a label is missing, unknown or out of range; the message names its row.

    >>> read_labels(["dog", "cat", "dog"])
    (array([1, 0, 1]), ('cat', 'dog'))
    """
    array = to_array(labels)
    if array.ndim == 1 and array.dtype.kind == "b":
        array = array.astype(np.int64)
    if array.ndim == 1 and array.dtype.kind in "OUST" and len(array):
        return _read_names(array, num_classes, class_names)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"labels must be (N,) integers or strings, not {array.shape} of {array.dtype}")
    if not len(array):
        raise ValueError("labels has 0 entries; expected 1 or more")
    if num_classes is None:
        num_classes = int(array.max()) + 1 if class_names is None else len(class_names)
    check_rows("labels", f"from 0 to {num_classes - 1}", (array < 0) | (array >= num_classes))
    return array.astype(np.int64), names_of("class_names", class_names, num_classes, "classes")


def _read_names(
    array: NDArray[Any], num_classes: int | None, class_names: Sequence[str] | None
) -> tuple[Labels, tuple[str, ...]]:
    values = array.tolist()
    check_rows("labels", "all strings or all integers", np.array([not isinstance(value, str) for value in values]))
    names = tuple(sorted(set(values))) if class_names is None else tuple(class_names)
    if num_classes is not None and len(names) != num_classes:
        kind = "distinct labels" if class_names is None else "class names"
        raise ValueError(f"there are {len(names)} {kind} for {num_classes} classes; pass class_names, one per class")
    known = {name: k for k, name in enumerate(names)}
    ids = np.array([known.get(value, -1) for value in values], dtype=np.int64)
    check_rows("labels", "among class_names", ids < 0)
    return ids, names


def check_rows(name: str, expected: str, invalid: NDArray[np.bool_] | np.bool_) -> None:
    """Raise ValueError that names the first invalid row and their number."""
    if invalid.any():
        row, count = int(invalid.argmax()), int(invalid.sum())
        raise ValueError(f"{name} must be {expected}; row {row} is not ({count} such rows)")


def names_of(name: str, values: Sequence[str] | None, count: int, kind: str) -> tuple[str, ...]:
    """Return `values` as strings, by default numbers; ValueError if there are not `count`."""
    if values is None:
        return tuple(map(str, range(count)))
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries for {count} {kind}")
    return tuple(str(value) for value in values)
