"""A folder of images, one subfolder per class."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Inputs, Part
from reweigh.lab.data.source.images import MAX_PIXELS, SUFFIXES, Files
from reweigh.lab.data.split import TEST_NAMES, assemble


def load(
    root: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    seed: int = 0,
    check: bool = True,
    max_pixels: int = MAX_PIXELS,
) -> Dataset:
    """Load the images below `root`, with the sorted names of their folders as classes.

    Layouts: `root/train/<class>/*` and `root/test/<class>/*` (or the first of `val`, `valid`, `validation`), in any
    case, or `root/<class>/*`. Without a test folder, a seeded stratified fifth becomes the noisy hold-out. Subfolders
    of a class belong to it, including links. Names that begin with a dot are ignored; every other file must be an
    image, and all that cannot be decoded are reported together. DataError is also raised for fewer than two classes, a
    class without a file, a test class that is not a training class, a folder that is unreadable or linked twice, parts
    whose names differ only in case, and a `train` folder next to others that are not test folders.

    Args:
        root: the folder.
        size: decode all images now and resize them to (height, width), as kind `"images"`; otherwise they are
            `"files"`, decoded on access, and their sizes may differ.
        seed: the seed of the split without a test folder.
        check: decode every file once to find the unreadable ones; False checks only the suffixes.
        max_pixels: see `reweigh.lab.data.source.images.decode`.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: {'is not a folder' if root.exists() else 'no such folder'}")
    train_root, test_root = _layout(root)
    classes = _subfolders(train_root)
    if len(classes) < 2:
        raise DataError(f"{train_root}: {len(classes)} class folder(s); expected two or more, one per class")
    seen: dict[str, str] = {}
    names, labels = _examples(root, train_root, classes, seen)
    cut = len(names)
    if test_root is not None:
        more_names, more_labels = _examples(root, test_root, classes, seen)
        names, labels = names + more_names, labels + more_labels
    files = Files(root, tuple(names), max_pixels)
    inputs: Inputs = files if size is None else files.array(size)
    if size is None and check:
        files.check()
    elif size is None:
        _check_suffixes(root, names)
    examples = Part(inputs, np.array(labels, dtype=np.int64))
    test = examples.take(range(cut, len(examples))) if test_root is not None else None
    name = root.resolve().name
    return assemble(name, examples.take(range(cut)), test, tuple(classes), seed)


def _layout(root: Path) -> tuple[Path, Path | None]:
    """Return (training folder, test folder or None); a folder `train` without subfolders is a class."""
    folders = _subfolders(root)
    found = {name.lower(): name for name in folders}
    if "train" not in found or not _subfolders(root / found["train"]):
        return root, None
    for part in ("train", *TEST_NAMES):
        same = [name for name in folders if name.lower() == part]
        if len(same) > 1:
            raise DataError(f"{root}: {' and '.join(same)} differ only in case; keep one of them")
    train, test = found.pop("train"), next((found[name] for name in TEST_NAMES if name in found), None)
    if test is None and found:
        raise DataError(
            f"{root}: next to {train} there is {', '.join(found.values())}; expected only a test folder "
            f"({', '.join(TEST_NAMES)}); names that begin with a dot are ignored"
        )
    return root / train, None if test is None else root / test


def _subfolders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as listed:
            entries = [entry for entry in listed if not entry.name.startswith(".")]
    except OSError as error:
        raise _unreadable(error) from error
    for entry in entries:
        if not Path(entry).exists():
            raise DataError(f"{entry.path}: a broken link")
    return sorted(entry.name for entry in entries if entry.is_dir())


def _examples(root: Path, folder: Path, classes: list[str], seen: dict[str, str]) -> tuple[list[str], list[int]]:
    names: list[str] = []
    labels: list[int] = []
    for name in _subfolders(folder):
        if name not in classes:
            raise DataError(f"{folder}: class {name!r} is not among the training classes {', '.join(classes)}")
        found = files_below(root, folder / name, seen)
        if not found:
            raise DataError(f"{folder / name}: the class has no image")
        names += found
        labels += [classes.index(name)] * len(found)
    if not names:
        raise DataError(f"{folder}: no class folder")
    return names, labels


def files_below(root: Path, folder: Path, seen: dict[str, str] | None = None) -> list[str]:
    """Return the sorted names, relative to `root`, of all files below a folder, without hidden ones.

    Args:
        root: the folder that names are relative to.
        folder: `root` or a folder below it.
        seen: folders that were read before, to which those read now are added.

    Raises:
        DataError: a folder is unreadable, or reached twice by links.
    """
    found: list[str] = []
    seen = {} if seen is None else seen  # links may form a cycle, or lead to images already read
    for path, folders, files in os.walk(folder, onerror=_raise_unreadable, followlinks=True):
        first = seen.setdefault(os.path.realpath(path), path)
        if first != path:
            raise DataError(f"{path}: a link to the folder {first}, which is already read")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        relative = Path(path).relative_to(root)
        found += [(relative / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(found)


def _raise_unreadable(error: OSError) -> None:
    raise _unreadable(error) from error


def _unreadable(error: OSError) -> DataError:
    return DataError(f"{error.filename}: the folder cannot be read: {error.strerror}")


def _check_suffixes(root: Path, names: list[str]) -> None:
    others = [name for name in names if Path(name).suffix.lower() not in SUFFIXES]
    if others:
        raise DataError(f"{root}: {len(others)} files do not have the suffix of an image: {', '.join(others)}")
