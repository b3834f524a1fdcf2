"""Clothing1M: a million photographs of online shops in 14 classes, labelled by the surrounding text.

    clothing1M/
      category_names_eng.txt                        one name per line, line number = class id
      noisy_label_kv.txt  clean_label_kv.txt        "<image path> <label>" per line
      noisy_train_key_list.txt  clean_{train,val,test}_key_list.txt      one path per line
      images/0/00/<name>.jpg ...

The text files may be in `annotations/`, and the image folders directly in the root, without `images/`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Labels, Part
from reweigh.lab.data.source.images import Files, Listing, check_inside, refuse_missing
from reweigh.lab.data.source.text import read_lines
from reweigh.noise import Corruption, given

Split: TypeAlias = Literal["noisy_train", "clean_train", "clean_val", "clean_test"]
Source: TypeAlias = Literal["noisy", "clean"]
SPLITS: tuple[Split, ...] = ("noisy_train", "clean_train", "clean_val", "clean_test")
IMAGES = "images/"


@dataclass(frozen=True, eq=False)
class Listed:
    """The images of one list, in its order, with their labels."""

    keys: tuple[str, ...]
    labels: Labels


def load(root: str | os.PathLike[str], train: Split | None = None) -> Dataset:
    """Load the noisy million for training and the clean test list for testing.

    Args:
        root: the data folder, or its parent.
        train: the training list; by default noisy_train if it exists, else clean_train.

    Validation images are `load_part(root, "clean_val")`.
    """
    folder = find_root(root)
    if train is None:
        train = "noisy_train" if _exists(folder, _list_name("noisy_train")) else "clean_train"
    return Dataset(
        name="clothing1m" if train == "noisy_train" else f"clothing1m-{train}",
        train=load_part(folder, train),
        test=load_part(folder, "clean_test"),
        class_names=class_names(folder),
    )


def load_part(root: str | os.PathLike[str], split: Split) -> Part:
    """Load the images of one list; each must exist, under the listed path or without its `images/`."""
    folder = find_root(root)
    listed = load_labels(folder, split)
    present = Listing(folder)
    names, missing = [], []
    for key in listed.keys:
        name = next((name for name in (key, key.removeprefix(IMAGES)) if name in present), None)
        names.append(name or key)
        if name is None:
            missing.append(key)
    refuse_missing(folder, missing, len(names))
    return Part(Files(folder, tuple(names)), listed.labels)


def load_labels(root: str | os.PathLike[str], split: Split) -> Listed:
    """Load the keys and labels of one list, without its images.

    Labels of noisy_train are read from noisy_label_kv.txt, those of the clean lists from clean_label_kv.txt; a missing
    key raises DataError.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; expected one of {', '.join(SPLITS)}")
    folder = find_root(root)
    path = _text(folder, _list_name(split))
    keys = tuple(read_lines(path))
    if not keys:
        raise DataError(f"{path}: empty; expected one image path per line")
    check_inside(keys, path)
    check_inside((key.removeprefix(IMAGES) for key in keys), path)  # as `load_part` may read them
    source: Source = "noisy" if split == "noisy_train" else "clean"
    labels = read_kv(folder, source)
    seen: dict[str, int] = {}
    chosen = np.empty(len(keys), dtype=np.int64)
    for line, key in enumerate(keys, start=1):
        if key in seen:
            raise DataError(f"{path}: line {line}: {key!r} is also in line {seen[key]}")
        if key not in labels:
            raise DataError(f"{path}: line {line}: {key!r} has no label in {source}_label_kv.txt")
        seen[key] = line
        chosen[line - 1] = labels[key]
    return Listed(keys, chosen)


def read_kv(root: str | os.PathLike[str], source: Source) -> dict[str, int]:
    """Return all labels of noisy_label_kv.txt or clean_label_kv.txt: path -> class id.

    Lines are split at the last space: names may contain commas and spaces.
    """
    folder = find_root(root)
    classes = len(class_names(folder))
    path = _text(folder, f"{source}_label_kv.txt")
    labels: dict[str, int] = {}
    for line, text in enumerate(read_lines(path), start=1):
        key, _, word = text.rpartition(" ")
        if not key or not (word.isascii() and word.isdigit()) or len(word) > 9:
            raise DataError(f"{path}: line {line}: {text[:80]!r}; expected '<image path> <label>'")
        label = int(word)
        if label >= classes:
            raise DataError(f"{path}: line {line}: label {word}; expected 0 to {classes - 1}")
        if key in labels:
            raise DataError(f"{path}: line {line}: {key!r} also has a label in an earlier line")
        labels[key] = label
    return labels


def overlap(root: str | os.PathLike[str]) -> tuple[tuple[str, ...], Corruption]:
    """Return the images with both a noisy and a clean label, and the noise measured on them (officially 38 %)."""
    folder = find_root(root)
    noisy, clean = read_kv(folder, "noisy"), read_kv(folder, "clean")
    keys = tuple(key for key in noisy if key in clean)
    if not keys:
        raise DataError(f"{folder}: no image has both a noisy and a clean label")
    classes = len(class_names(folder))
    return keys, given([noisy[key] for key in keys], [clean[key] for key in keys], num_classes=classes)


def class_names(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the English names, in class order."""
    path = _text(find_root(root), "category_names_eng.txt")
    names = tuple(line.strip() for line in read_lines(path))
    for line, name in enumerate(names, start=1):
        if not name or name in names[: line - 1]:
            raise DataError(f"{path}: line {line}: {name!r}; expected a distinct name for every class")
    if len(names) < 2:
        raise DataError(f"{path}: {len(names)} names; expected one per class, two or more")
    return names


def find_root(root: str | os.PathLike[str]) -> Path:
    """Return the data folder: `root` itself, or clothing1M/ in it."""
    folder = Path(root)
    for candidate in (folder, folder / "clothing1M"):
        if _exists(candidate, "category_names_eng.txt"):
            return candidate
    raise DataError(f"{folder}: no category_names_eng.txt, nor in annotations/ or clothing1M/")


def _list_name(split: Split) -> str:
    return f"{split}_key_list.txt"


def _text(folder: Path, name: str) -> Path:
    """Return the path of a text file."""
    inner = folder / "annotations" / name
    return inner if inner.is_file() else folder / name


def _exists(folder: Path, name: str) -> bool:
    return _text(folder, name).is_file()
