"""`Dataset`, which every loader returns: two parts, class names, groups, and a hash of the content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.source.images import Files

Labels: TypeAlias = NDArray[np.int64]
Inputs: TypeAlias = NDArray[np.uint8] | NDArray[np.float32] | Files | tuple[str, ...]
Kind: TypeAlias = Literal["images", "files", "features", "text"]

TEXT_WIDTH = 512
"""Features of a column of texts next to others."""

TEST = "test"
NOISY_HOLDOUT = "noisy hold-out"
"""A test part split off the user's own data: its labels are as noisy as the training labels."""

MAX_NAME = 1000  # characters of the name of a class


@dataclass(frozen=True, eq=False)
class Part:
    """Examples and their labels; arrays become read-only views.

    Args:
        inputs: images (N, H, W, C) uint8, features (N, F) float32 and finite, lazily decoded `Files`, or a
            tuple of texts.
        labels: (N,) int64, not negative.

    >>> part = Part(np.zeros((2, 3), np.float32), np.array([1, 0]))
    >>> part.kind, len(part), part.take([1]).labels
    ('features', 2, array([0]))
    """

    inputs: Inputs
    labels: Labels

    def __post_init__(self) -> None:
        labels = self.labels
        if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype != np.int64:
            raise TypeError(f"labels must be a one-dimensional int64 array, not {_describe(labels)}")
        if len(labels) and labels.min() < 0:
            i = int(np.argmax(labels < 0))
            raise DataError(f"labels: {labels[i]} at index {i} is negative")
        object.__setattr__(self, "labels", _frozen(labels))
        if isinstance(self.inputs, np.ndarray):
            _check_array(self.inputs)
            object.__setattr__(self, "inputs", _frozen(self.inputs))
        elif not isinstance(self.inputs, Files) and not (
            isinstance(self.inputs, tuple) and all(isinstance(text, str) for text in self.inputs)
        ):
            raise TypeError(f"inputs must be an array, Files or a tuple of str, not {_describe(self.inputs)}")
        if len(self.inputs) != len(labels):
            raise DataError(f"{len(self.inputs)} inputs but {len(labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) if self.shape else ""
        return f"Part({len(self)} {self.kind}{' ' + shape if shape else ''})"

    @property
    def kind(self) -> Kind:
        """`"images"`, `"features"`, `"files"` or `"text"`."""
        if isinstance(self.inputs, np.ndarray):
            return "images" if self.inputs.ndim == 4 else "features"
        return "files" if isinstance(self.inputs, Files) else "text"

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of one example, or None if examples differ (files, text)."""
        return self.inputs.shape[1:] if isinstance(self.inputs, np.ndarray) else None

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Part:
        """Return the examples at `indices`, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        inputs: Inputs
        if isinstance(self.inputs, tuple):
            inputs = tuple(self.inputs[i] for i in chosen.tolist())
        elif isinstance(self.inputs, Files):
            inputs = self.inputs.take(chosen)
        else:
            inputs = self.inputs[chosen]
        return Part(inputs, self.labels[chosen])

    def digest(self) -> bytes:
        """Return the SHA-256 over kind, shape, inputs and labels; for `Files` see `Files.digest`."""
        digest = hashlib.sha256(f"{self.kind} {len(self)} {self.shape}\n".encode())
        if isinstance(self.inputs, tuple):
            for text in self.inputs:
                raw = text.encode("utf-8", "surrogatepass")
                digest.update(f"{len(raw)}:".encode() + raw)
        elif isinstance(self.inputs, Files):
            digest.update(self.inputs.digest())
        else:
            digest.update(_little_endian(self.inputs).data)
        digest.update(_little_endian(self.labels).data)
        return digest.digest()


class Column(NamedTuple):
    """A column of a table, and how `reweigh.lab.data.table.encode` converts it to features.

    Attributes:
        name: its name.
        mean, std: of a number, or of a date in days since 1970: the feature is (x - mean) / std.
        kind: "number", "date", "category" or "text".
        categories: of a category: one feature each.
        form: of a date: "iso", or a format of `strptime`.
        flags_missing: whether a feature says which values are missing.
    """

    name: str
    mean: float = 0.0
    std: float = 1.0
    kind: Literal["number", "date", "category", "text"] = "number"
    categories: tuple[str, ...] = ()
    form: str = ""
    flags_missing: bool = False

    @property
    def width(self) -> int:
        """The number of features."""
        own = {"number": 1, "date": 5, "category": len(self.categories), "text": TEXT_WIDTH}[self.kind]
        return own + self.flags_missing


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification data set: a training part, a test part, and the names of the classes.

    Args:
        name: the name in records and tables, e.g. `"cifar10"`.
        train: the training part; not empty.
        test: the test part, of the same kind and example shape; may be empty.
        class_names: label id -> name; two or more, distinct, in UTF-8, without control characters, and not longer than
            `MAX_NAME`.
        groups: class id -> group id (superclasses), or None.
        holdout: `"test"`, or `"noisy hold-out"` for a test part split off the user's data.
        columns: the columns of a table that are features; else None.
        rows: of a table, the row in its file of each training example, from 0; else None.

    >>> part = Part(np.zeros((2, 8, 8, 3), np.uint8), np.array([1, 0]))
    >>> Dataset("toy", part, part, ("cat", "dog"))
    Dataset('toy', images 8x8x3, 2 classes, 2 train + 2 test)
    """

    name: str
    train: Part
    test: Part
    class_names: tuple[str, ...]
    groups: tuple[int, ...] | None = None
    holdout: str = TEST
    columns: tuple[Column, ...] | None = None
    rows: Labels | None = None

    def __post_init__(self) -> None:
        names = self.class_names
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"class_names must be a tuple of str, not {_describe(names)}")
        if len(names) < 2:
            raise DataError(f"{self.name}: {len(names)} class(es); a data set needs two or more")
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{self.name}: class name {twice!r:.60} occurs more than once")
        for name in names:
            if len(name) > MAX_NAME:
                length = f"{len(name):,} characters; at most {MAX_NAME:,}"
                raise DataError(f"{self.name}: class name {name!r:.60} has {length}")
            if not _is_text(name):
                raise DataError(f"{self.name}: class name {name!r} is not valid UTF-8; rename it")
            if any(category(letter) == "Cc" for letter in name):
                raise DataError(f"{self.name}: class name {name!r} holds a control character; rename it")
        if self.holdout not in (TEST, NOISY_HOLDOUT):
            raise ValueError(f"holdout must be {TEST!r} or {NOISY_HOLDOUT!r}, not {self.holdout!r}")
        if self.groups is not None and (len(self.groups) != len(names) or min(self.groups) < 0):
            raise DataError(f"{self.name}: groups must hold one id >= 0 for each of the {len(names)} classes")
        if not len(self.train):
            raise DataError(f"{self.name}: the training part is empty")
        for part, role in ((self.train, "train"), (self.test, self.holdout)):
            self._check_labels(part, role)
        if (self.train.kind, self.train.shape) != (self.test.kind, self.test.shape):
            raise DataError(f"{self.name}: the parts differ in kind or shape: {self.train} and {self.test}")

    def _check_labels(self, part: Part, role: str) -> None:
        if len(part) and part.labels.max() >= self.num_classes:
            i = int(np.argmax(part.labels >= self.num_classes))
            raise DataError(
                f"{self.name}: {role} label {part.labels[i]} at index {i} is out of range "
                f"for {self.num_classes} classes"
            )

    def __repr__(self) -> str:
        shape = " " + "x".join(map(str, self.train.shape)) if self.train.shape else ""
        groups = f" in {len(set(self.groups))} groups" if self.groups is not None else ""
        return (
            f"Dataset({self.name!r}, {self.kind}{shape}, {self.num_classes} classes{groups}, "
            f"{len(self.train)} train + {len(self.test)} {self.holdout})"
        )

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def kind(self) -> Kind:
        """`"images"`, `"features"`, `"files"` or `"text"`."""
        return self.train.kind

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) over both parts and the class names; computed on first use."""
        digest = hashlib.sha256(self.train.digest() + self.test.digest())
        digest.update("\n".join(self.class_names).encode())
        return digest.hexdigest()


def _is_text(name: str) -> bool:
    """Return whether a name can be encoded; file systems may return bytes in another encoding."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _frozen(array: NDArray[np.generic]) -> NDArray[np.generic]:
    view = array.view()
    view.setflags(write=False)
    return view


def _check_array(inputs: NDArray[np.generic]) -> None:
    if inputs.ndim in (2, 4) and 0 in inputs.shape[1:]:
        raise DataError(f"inputs: examples of shape {inputs.shape[1:]} are empty")
    if inputs.ndim == 4 and inputs.dtype == np.uint8:
        return
    if inputs.ndim != 2 or inputs.dtype != np.float32:
        raise TypeError(f"inputs must be (N, H, W, C) uint8 or (N, F) float32, not {_describe(inputs)}")
    # one sum detects any NaN or infinity without a temporary array
    with np.errstate(invalid="ignore"):
        suspicious = inputs.size and not np.isfinite(inputs.sum(dtype=np.float64))
    if suspicious:
        row, column = np.argwhere(~np.isfinite(inputs))[0]
        raise DataError(f"inputs: {inputs[row, column]} at example {row}, feature {column} is not finite")


def _little_endian(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    return type(value).__name__
