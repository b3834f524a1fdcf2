"""CIFAR-10 and CIFAR-100, python and binary versions, and Vehicles-10, the ten vehicle classes of CIFAR-100.

An image is 3072 bytes: 1024 red, 1024 green, 1024 blue, each plane 32 x 32 row by row.

| version | folder | files | record |
|---|---|---|---|
| CIFAR-10 python | cifar-10-batches-py | data_batch_1..5, test_batch, batches.meta | pickles: data, labels |
| CIFAR-10 binary | cifar-10-batches-bin | the same with .bin, batches.meta.txt | label, image |
| CIFAR-100 python | cifar-100-python | train, test, meta | pickles: data, fine_labels, coarse_labels |
| CIFAR-100 binary | cifar-100-binary | train.bin, test.bin, *_label_names.txt | coarse, fine, image |

The numbers of images and classes are read from the files. The two versions may have different orders, so that label
files made for one, such as CIFAR-N's for the python version, do not fit the other.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Labels, Part
from reweigh.lab.data.source import unpickle
from reweigh.lab.data.source.text import decode, read_bytes, read_lines

Name = Literal["cifar10", "cifar100", "vehicles10"]

PIXELS = 3072

# fmt: off
SUPERCLASS = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15,
    0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17,
    10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19,
    18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)
"""CIFAR-100's superclass of each fine class, for classes without an example in the files."""
# fmt: on

VEHICLES = (
    "bicycle", "bus", "lawn_mower", "motorcycle", "pickup_truck",
    "rocket", "streetcar", "tank", "tractor", "train",
)  # fmt: skip
"""Vehicles-10: superclasses `vehicles_1` and `vehicles_2`, in the order of their fine ids (8, 13, 41, ..., 90)."""

MD5 = {
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-10-batches-py/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "cifar-100-python/meta": "7973b15100ade9c7d40fb424638fde48",
}
"""The digests of the official python versions; there are none for the binary ones."""


@dataclass(frozen=True)
class _Records:
    path: Path
    pixels: NDArray[np.uint8]
    labels: Labels
    coarse: Labels | None


@dataclass(frozen=True)
class _Version:
    folder: str
    train: tuple[str, ...]
    test: str
    names: str
    read: Callable[[Path], _Records]
    coarse_names: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """All files, in the order they are read."""
        coarse = () if self.coarse_names in (None, self.names) else (self.coarse_names,)
        return (*self.train, self.test, self.names, *coarse)


def load(root: str | os.PathLike[str], name: Name = "cifar10", verify: bool = False) -> Dataset:
    """Load CIFAR-10, CIFAR-100 (with superclasses as groups) or Vehicles-10 from the official files.

    Args:
        root: the folder that holds `cifar-10-batches-py` or the like, or that folder itself. If both versions
            exist, the python version is read.
        name: `"cifar10"`, `"cifar100"` or `"vehicles10"`.
        verify: check the md5 of every file first (python version only).
    """
    if name == "vehicles10":
        return vehicles(load(root, "cifar100", verify))
    if name not in _VERSIONS:
        raise ValueError(f"name must be 'cifar10', 'cifar100' or 'vehicles10', not {name!r}")
    version, folder = _find(Path(root), name)
    missing = [file for file in version.files if not (folder / file).is_file()]
    if missing:
        raise DataError(f"{folder}: {', '.join(missing)} missing; expected {', '.join(version.files)}")
    if verify:
        _verify(version, folder)
    class_names = _names(folder / version.names, "label_names", "fine_label_names")
    train = [version.read(folder / file) for file in version.train]
    test = [version.read(folder / version.test)]
    for records in (*train, *test):
        _check_range(records.path, "label", records.labels, len(class_names))
    groups = None
    if version.coarse_names is not None:
        superclasses = _names(folder / version.coarse_names, "coarse_label_names")
        groups = _groups([*train, *test], class_names, len(superclasses))
    return Dataset(name, _part(train), _part(test), class_names, groups)


def vehicles(cifar100: Dataset) -> Dataset:
    """Select Vehicles-10 from CIFAR-100: in file order, classes numbered as in `VEHICLES`, two groups."""
    absent = [name for name in VEHICLES if name not in cifar100.class_names]
    if absent or cifar100.groups is None:
        raise DataError(f"{cifar100.name}: no class {', '.join(absent)}; Vehicles-10 is a part of CIFAR-100")
    old = [cifar100.class_names.index(name) for name in VEHICLES]
    new = np.full(cifar100.num_classes, -1)
    new[old] = np.arange(len(old))

    def only(part: Part) -> Part:
        chosen = part.take(np.flatnonzero(new[part.labels] >= 0))
        return Part(chosen.inputs, new[chosen.labels])

    groups = [cifar100.groups[k] for k in old]
    numbers = tuple(sorted(set(groups)).index(group) for group in groups)
    return Dataset("vehicles10", only(cifar100.train), only(cifar100.test), VEHICLES, numbers)


def _find(root: Path, name: str) -> tuple[_Version, Path]:
    for version in _VERSIONS[name]:
        for folder in (root / version.folder, root):
            if (folder / version.names).is_file() or (folder.name == version.folder and folder.is_dir()):
                return version, folder
    folders = " or ".join(version.folder for version in _VERSIONS[name])
    raise DataError(f"{root}: no {name}; expected the folder {folders}, or the path of one")


def _verify(version: _Version, folder: Path) -> None:
    for file in version.files:
        expected = MD5.get(f"{version.folder}/{file}")
        if expected is None:
            raise DataError(f"{folder / file}: the binary version has no official md5")
        found = hashlib.md5(read_bytes(folder / file), usedforsecurity=False).hexdigest()
        if found != expected:
            raise DataError(f"{folder / file}: md5 {found}, but the official file has {expected}")


def _names(path: Path, *keys: str) -> tuple[str, ...]:
    """Return the lines of a text file, or the list under the first of `keys` in a pickle."""
    if path.suffix == ".txt":
        names = tuple(read_lines(path))
    else:
        content = unpickle.load(path)
        listed = next((content[key] for key in keys if key in content), None)
        if not isinstance(listed, list) or not all(isinstance(name, (str, bytes)) for name in listed):
            raise DataError(f"{path}: expected a list of names under {' or '.join(map(repr, keys))}")
        names = tuple(name if isinstance(name, str) else decode(name, path) for name in listed)
    if len(names) < 2 or len(set(names)) < len(names) or "" in names:
        raise DataError(f"{path}: {len(names)} names; expected two or more, distinct and not empty")
    return names


def _read_pickle(path: Path) -> _Records:
    content = unpickle.load(path)
    pixels = content.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        found = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise DataError(f"{path}: 'data' must be uint8 (n, {PIXELS}), not {found}")
    labels = _integers(path, content, "labels" if "labels" in content else "fine_labels", len(pixels))
    coarse = _integers(path, content, "coarse_labels", len(pixels)) if "coarse_labels" in content else None
    return _Records(path, pixels, labels, coarse)


def _integers(path: Path, content: Mapping[str, object], key: str, count: int) -> Labels:
    values = content.get(key)
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu":
        values = values.tolist()
    if not isinstance(values, list) or not all(type(v) is int and abs(v) < 2**31 for v in values):
        raise DataError(f"{path}: {key!r} must be a list of integers")
    if len(values) != count or not values:
        raise DataError(f"{path}: {len(values)} {key} for {count} images")
    return np.array(values, dtype=np.int64)


def _read_binary(label_bytes: int) -> Callable[[Path], _Records]:
    record = label_bytes + PIXELS

    def read(path: Path) -> _Records:
        raw = np.frombuffer(read_bytes(path), dtype=np.uint8)
        count, rest = divmod(len(raw), record)
        if rest or not count:
            raise DataError(
                f"{path}: {len(raw)} bytes are not a multiple of the {record} bytes of a record: "
                f"record {count} has {rest}"
            )
        table = raw.reshape(count, record)
        coarse = table[:, 0].astype(np.int64) if label_bytes == 2 else None
        return _Records(path, table[:, label_bytes:], table[:, label_bytes - 1].astype(np.int64), coarse)

    return read


def _check_range(path: Path, what: str, values: Labels, count: int) -> None:
    bad = np.flatnonzero((values < 0) | (values >= count))
    if len(bad):
        raise DataError(f"{path}: record {bad[0]}: {what} {values[bad[0]]} is out of range for {count} classes")


def _groups(batches: list[_Records], class_names: tuple[str, ...], superclasses: int) -> tuple[int, ...]:
    """Return the superclass of each fine class, from the pairs of labels in the records."""
    groups = list(SUPERCLASS) if len(class_names) == len(SUPERCLASS) else [-1] * len(class_names)
    seen: dict[int, int] = {}
    for batch in batches:
        if batch.coarse is None:
            raise DataError(f"{batch.path}: no coarse labels")
        _check_range(batch.path, "coarse label", batch.coarse, superclasses)
        pairs = np.unique(np.stack([batch.labels, batch.coarse], axis=1), axis=0)
        for fine, coarse in pairs.tolist():
            if seen.setdefault(fine, coarse) != coarse:
                name = class_names[fine]
                raise DataError(f"{batch.path}: class {name!r} is in superclasses {seen[fine]} and {coarse}")
            groups[fine] = coarse
    if -1 in groups:
        raise DataError(f"{batches[0].path}: no example shows the superclass of {class_names[groups.index(-1)]!r}")
    return tuple(groups)


def _part(batches: list[_Records]) -> Part:
    labels = np.concatenate([batch.labels for batch in batches])
    images = np.empty((len(labels), PIXELS // 3, 3), dtype=np.uint8)
    start = 0
    for batch in batches:
        end = start + len(batch.labels)
        for channel, plane in enumerate(np.split(batch.pixels, 3, axis=1)):  # three times faster than transpose
            images[start:end, :, channel] = plane
        start = end
    return Part(images.reshape(-1, 32, 32, 3), labels)


_BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))
_BINARIES = tuple(f"{batch}.bin" for batch in _BATCHES)

_VERSIONS = {
    "cifar10": (
        _Version("cifar-10-batches-py", _BATCHES, "test_batch", "batches.meta", _read_pickle),
        _Version("cifar-10-batches-bin", _BINARIES, "test_batch.bin", "batches.meta.txt", _read_binary(1)),
    ),
    "cifar100": (
        _Version("cifar-100-python", ("train",), "test", "meta", _read_pickle, "meta"),
        _Version(
            "cifar-100-binary",
            ("train.bin",),
            "test.bin",
            "fine_label_names.txt",
            _read_binary(2),
            "coarse_label_names.txt",
        ),
    ),
}
