"""Load an `.npz` of inputs and labels, without pickle and with every array's size checked against its file."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Inputs, Labels, Part
from reweigh.lab.data.source.archive import open_member
from reweigh.lab.data.split import HOLDOUT, TEST_NAMES, assemble

Arrays = Mapping[str, NDArray[Any]]

KEYS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("train_data", "train_labels", "test_data", "test_labels"),
    ("X_train", "y_train", "X_test", "y_test"),
    ("x", "y", "x_test", "y_test"),
    ("X", "y", "X_test", "y_test"),
    ("images", "labels", "test_images", "test_labels"),
    ("features", "labels", "test_features", "test_labels"),
    ("data", "labels", "test_data", "test_labels"),
    ("data", "target", "test_data", "test_target"),
)
"""Names of (inputs, labels, test inputs, test labels), tried in this order; the test pair may be missing, or
have `val`, `valid` or `validation` in place of `test`."""

NAME_KEYS = ("class_names", "label_names", "target_names")

GROUPS = "class_groups"

MAX_BYTES = 2**32


def load(path: str | os.PathLike[str], seed: int = 0, max_bytes: int = MAX_BYTES, holdout: float = HOLDOUT) -> Dataset:
    """Load the data set in an `.npz` file; without a test pair a seeded fifth becomes the noisy hold-out.

    Inputs are images, uint8 as (N, H, W), (N, H, W, C) or, with C = 1 or 3, (N, C, H, W), or features, (N, F) of
    any real type, converted to float32. Labels are integers 0 to C-1, as (N,) or (N, 1); every
    class needs a training example unless the names are given by an array of strings `class_names`,
    `label_names` or `target_names`. An array of integers `class_groups`, one for each class, groups the classes
    (superclasses).

    Args:
        path: the file; see `KEYS` for the names of its arrays.
        seed: the seed of the split without a test pair.
        max_bytes: the largest total size of the arrays.
        holdout: the fraction held out without a test pair; 0 keeps all rows for training.
    """
    path = Path(path)
    arrays = read(path, max_bytes)
    keys = next((row for row in KEYS if row[0] in arrays and row[1] in arrays), None)
    if keys is None:
        pairs = ", ".join(f"{x} + {y}" for x, y, *_ in KEYS)
        raise DataError(f"{path}: has the arrays {', '.join(arrays) or 'none'}; expected a pair of {pairs}")
    x, y, *held = keys
    train = _part(path, arrays, x, y)
    pairs_held = ([name.replace("test", word) for name in held] for word in TEST_NAMES)
    found = next((pair for pair in pairs_held if not arrays.keys().isdisjoint(pair)), None)
    test = None if found is None else _part(path, arrays, *found)
    names = _class_names(path, arrays, y, train.labels)
    try:
        return replace(assemble(path.stem, train, test, names, seed, holdout), groups=_groups(arrays))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def read(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """Return all arrays of an `.npz` file by name; raise DataError for arrays of objects, which hold pickles."""
    try:
        with zipfile.ZipFile(path) as pack:
            members = pack.infolist()
            total = sum(member.file_size for member in members)
            if total > max_bytes:
                raise DataError(f"{path}: {total} bytes unpacked, more than the limit of {max_bytes}")
            arrays: dict[str, NDArray[Any]] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in arrays:
                    raise DataError(f"{path}: array {name!r} occurs twice")
                arrays[name] = _read_array(path, name, pack, member)
            return arrays
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except Exception as error:  # zipfile, zlib and numpy raise many types
        raise DataError(f"{path}: not a readable .npz: {str(error) or type(error).__name__}") from error


def _read_array(path: Path, name: str, pack: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with open_member(path, pack, member) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version in ((2, 0), (3, 0)):  # they differ only in field names, which plain arrays lack
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise DataError(f"{path}: array {name!r} is in the unknown format version {version}")
        if dtype.hasobject:
            raise DataError(f"{path}: array {name!r} holds Python objects; only plain arrays are read")
        expected = math.prod(shape) * dtype.itemsize
        actual = member.file_size - file.tell()
        if expected != actual or min(shape, default=0) < 0:
            raise DataError(f"{path}: array {name!r} {shape} of {dtype} needs {expected} bytes but has {actual}")
        raw = file.read(expected)  # a member may hold more than its header says
    flat = np.frombuffer(raw, dtype) if raw else np.empty(math.prod(shape), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _part(path: Path, arrays: Arrays, x: str, y: str) -> Part:
    for name in (x, y):
        if name not in arrays:
            raise DataError(f"{path}: array {name!r} is missing")
    try:
        return Part(as_inputs(arrays[x], x), _labels(arrays[y], y))
    except (DataError, TypeError) as error:
        raise DataError(f"{path}: {x} and {y}: {error}") from error


def as_inputs(array: NDArray[Any], name: str) -> Inputs:
    if array.ndim == 2 and array.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise DataError(
            f"{name!r} is {array.dtype} {array.shape}; expected images of uint8 (N, H, W[, C]) or features (N, F)"
        )
    if array.ndim == 3:
        return array[..., np.newaxis]
    if array.shape[3] not in (1, 3) and array.shape[1] in (1, 3):
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    return array


def _labels(array: NDArray[Any], name: str) -> Labels:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"{name!r} is {array.dtype} {array.shape}; expected integers (N,)")
    return array.astype(np.int64)


def _groups(arrays: Arrays) -> tuple[int, ...] | None:
    if GROUPS not in arrays:
        return None
    array = arrays[GROUPS]
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise DataError(f"{GROUPS!r} is {array.dtype} {array.shape}; expected integers, one for each class")
    return tuple(array.tolist())


def _class_names(path: Path, arrays: Arrays, y: str, labels: Labels) -> tuple[str, ...]:
    for key in NAME_KEYS:
        if key in arrays:
            if arrays[key].ndim != 1 or arrays[key].dtype.kind != "U":
                raise DataError(f"{path}: {key!r} is {arrays[key].dtype}; expected a list of strings")
            return tuple(str(name) for name in arrays[key])
    present = np.unique(labels)
    gap = np.flatnonzero(present != np.arange(len(present)))
    if len(gap):
        raise DataError(f"{path}: {y!r} skips class {gap[0]}: labels must be 0 to C-1, each with an example")
    return tuple(map(str, present))
