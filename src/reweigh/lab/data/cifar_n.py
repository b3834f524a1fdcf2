"""CIFAR-10N and CIFAR-100N: human labels of CIFAR's training images (Wei et al., 2022).

`CIFAR-10_human.pt` and `CIFAR-100_human.pt` are zip archives with one pickle, `<name>/data.pkl`, of a dictionary:

| file | labels | clean labels |
|---|---|---|
| CIFAR-10N | aggre_label, random_label1, random_label2, random_label3, worse_label | clean_label |
| CIFAR-100N | noisy_label; of superclasses: noisy_coarse_label | clean_label; clean_coarse_label |

They are in the order of CIFAR's python version. `*_human_ordered.npy` holds the same labels in the order of another
library and is refused, as it would silently give wrong labels. Labels of superclasses belong to a data set of
superclasses; a run on cifar100 has 100 classes and uses `noisy`.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Labels
from reweigh.lab.data.source import unpickle
from reweigh.lab.data.source.archive import open_member

FILES = {"cifar10": "CIFAR-10_human.pt", "cifar100": "CIFAR-100_human.pt"}
FOLDERS = (".", "data", "cifar-n", "cifar-10-100n/data")

MAX_BYTES = 2**28
MAX_LABELS = 2**25  # a small pickle can repeat the same labels many times


def load(root: str | os.PathLike[str], name: Literal["cifar10", "cifar100"], key: str, clean: Labels) -> Labels:
    """Return the labels `key` for a training part with the clean labels `clean`.

    Args:
        root: the folder of `CIFAR-10_human.pt` (or one that has it in one of `FOLDERS`), or that file.
        name: `"cifar10"` or `"cifar100"`.
        key: as in the table above; the suffix `_label` may be omitted (`"worse"`).
        clean: the data set's own labels, in its order; must equal the file's `clean_label`.
    """
    if name not in FILES:
        raise ValueError(f"name must be 'cifar10' or 'cifar100', not {name!r}")
    path = _find(Path(root), FILES[name])
    vectors = read(path)
    full = key if key in vectors else f"{key}_label"
    if full not in vectors:
        raise ValueError(f"key must be one of {', '.join(sorted(vectors))} in {path}, not {key!r}")
    truth = "clean_coarse_label" if "coarse" in full else "clean_label"
    if truth not in vectors:
        raise DataError(f"{path}: no {truth} to compare with the labels of the data set")
    own = vectors[truth]
    if len(own) != len(clean) or (own != clean).any():
        if truth != "clean_label" and np.array_equal(vectors.get("clean_label", own), clean):
            raise DataError(f"{path}: {full} holds superclasses, but the data set has classes; use noisy_label")
        raise DataError(
            f"{path}: {truth} ({len(own)}) differs from the labels of the data set ({len(clean)}); "
            "use the python version of CIFAR, in its order"
        )
    labels = vectors[full]
    bad = np.flatnonzero((labels < 0) | (labels > clean.max()))
    if len(labels) != len(clean) or len(bad):
        place = f"label {labels[bad[0]]} at index {bad[0]} is out of range" if len(bad) else f"{len(labels)} labels"
        raise DataError(f"{path}: {full}: {place}; expected {len(clean)} labels from 0 to {clean.max()}")
    return labels


def read(path: Path) -> dict[str, Labels]:
    """Return the label vectors of a `.pt` file by key, without running anything in it."""
    if path.suffix == ".npy":
        raise DataError(
            f"{path}: these labels are in another library's order, in a pickled object; "
            "use the .pt file of the same name, in the order of CIFAR's python version"
        )
    content = unpickle.loads(_member(path), str(path))
    vectors, total = {}, 0
    for key, value in content.items():
        total += value.size if isinstance(value, np.ndarray) else len(value) if isinstance(value, list) else 0
        if total > MAX_LABELS:
            raise DataError(f"{path}: more than {MAX_LABELS} labels in all")
        if isinstance(value, list) and all(type(v) is int and abs(v) < 2**31 for v in value):
            value = np.array(value, dtype=np.int64)
        if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
            raise DataError(f"{path}: {key!r} is not a vector of integers")
        vectors[key] = value.astype(np.int64)
    return vectors


def _find(root: Path, file: str) -> Path:
    if root.suffix in (".pt", ".npy"):
        return root
    for folder in FOLDERS:
        if (root / folder / file).is_file():
            return root / folder / file
    raise DataError(f"{root}: no {file}, nor in {', '.join(FOLDERS[1:])}")


def _member(path: Path) -> bytes:
    try:
        with zipfile.ZipFile(path) as pack:
            found = [info for info in pack.infolist() if info.filename.rpartition("/")[2] == "data.pkl"]
            if len(found) != 1:
                raise DataError(f"{path}: {len(found)} members data.pkl; expected one")
            if found[0].file_size > MAX_BYTES:
                raise DataError(f"{path}: data.pkl claims {found[0].file_size} bytes; the limit is {MAX_BYTES}")
            with open_member(path, pack, found[0]) as file:
                return file.read(found[0].file_size)
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except Exception as error:  # zipfile and zlib raise many types
        raise DataError(f"{path}: not a readable .pt archive: {str(error) or type(error).__name__}") from error
