"""A folder of images, one subfolder per class."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from reweigh.data.dataset import Dataset, Inputs, Part
from reweigh.data.source.images import MAX_PIXELS, SUFFIXES, Files
from reweigh.data.split import assemble
from reweigh.errors import DataError

TEST_FOLDERS = ("test", "val", "validation")


def load(
    root: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    seed: int = 0,
    check: bool = True,
    max_pixels: int = MAX_PIXELS,
) -> Dataset:
    """The images below `root`, with the sorted names of their folders as classes.

    Layouts: `root/train/<class>/*` beside `root/test/<class>/*` (or `val`, `validation`), or `root/<class>/*`.
    Where there is no test folder, a seeded stratified fifth becomes the noisy hold-out. Subfolders of a class
    belong to it. Names that begin with a dot are passed over; every other file must be an image: those that
    cannot be decoded are reported all at once, and nothing is loaded. Refused as well: fewer than two classes, a
    class without a file, a test class that is not a training class.

    Args:
        root: the folder.
        size: decode all images now and resize them to (height, width), giving `"images"`; without it they are
            `"files"`, decoded when asked for, and their sizes may differ.
        seed: of the split where there is no test folder.
        check: decode every file once to find the unreadable ones; False looks at the names' endings only.
        max_pixels: see `reweigh.data.source.images.decode`.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: {'is not a folder' if root.exists() else 'no such folder'}")
    train_root, test_root = _layout(root)
    classes = _subfolders(train_root)
    if len(classes) < 2:
        raise DataError(f"{train_root}: {len(classes)} class folder(s); expected two or more, one per class")
    names, labels = _examples(root, train_root, classes)
    cut = len(names)
    if test_root is not None:
        more_names, more_labels = _examples(root, test_root, classes)
        names, labels = names + more_names, labels + more_labels
    files = Files(root, tuple(names), max_pixels)
    inputs: Inputs = files if size is None else files.array(size)
    if size is None and check:
        files.check()
    elif size is None:
        _check_endings(root, names)
    whole = Part(inputs, np.array(labels, dtype=np.int64))
    test = whole.take(range(cut, len(whole))) if test_root is not None else None
    name = root.resolve().name
    return assemble(name, whole.take(range(cut)), test, tuple(classes), seed)


def _layout(root: Path) -> tuple[Path, Path | None]:
    """(training folder, test folder or None); a folder `train` that holds no folders is a class of that name."""
    train = root / "train"
    if not train.is_dir() or not _subfolders(train):
        return root, None
    return train, next((root / name for name in TEST_FOLDERS if (root / name).is_dir()), None)


def _subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _examples(root: Path, folder: Path, classes: list[str]) -> tuple[list[str], list[int]]:
    names: list[str] = []
    labels: list[int] = []
    for name in _subfolders(folder):
        if name not in classes:
            raise DataError(f"{folder}: class {name!r} is not among the training classes {', '.join(classes)}")
        found = _files(root, folder / name)
        if not found:
            raise DataError(f"{folder / name}: the class has no image")
        names += found
        labels += [classes.index(name)] * len(found)
    if not names:
        raise DataError(f"{folder}: no class folder")
    return names, labels


def _files(root: Path, folder: Path) -> list[str]:
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = Path(place).relative_to(root)
        found += [(here / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(found)


def _check_endings(root: Path, names: list[str]) -> None:
    strange = [name for name in names if Path(name).suffix.lower() not in SUFFIXES]
    if strange:
        raise DataError(f"{root}: {len(strange)} files are not images by their names: {', '.join(strange)}")
