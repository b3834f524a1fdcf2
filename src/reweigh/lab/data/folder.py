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
    """The images below `root`, with the sorted names of their folders as classes.

    Layouts: `root/train/<class>/*` beside `root/test/<class>/*` (or `val`, `valid`, `validation`, of which the first is
    read), or `root/<class>/*`; `Train` and `TEST` do as well. Where there is no test folder, a seeded stratified fifth
    becomes the noisy hold-out. Subfolders of a class belong to it, also those that are links. Names that begin with a
    dot are passed over; every other file must be an image: those that cannot be decoded are reported all at once, and
    nothing is loaded. Refused as well: fewer than two classes, a class without a file, a test class that is not a
    training class, a folder that cannot be read or that links bring in twice, parts whose names differ in case only,
    and `train` with classes beside other folders of which none is a test folder.

    Args:
        root: the folder.
        size: decode all images now and resize them to (height, width), giving `"images"`; without it they are
            `"files"`, decoded when asked for, and their sizes may differ.
        seed: of the split where there is no test folder.
        check: decode every file once to find the unreadable ones; False looks at the names' endings only.
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
        _check_endings(root, names)
    whole = Part(inputs, np.array(labels, dtype=np.int64))
    test = whole.take(range(cut, len(whole))) if test_root is not None else None
    name = root.resolve().name
    return assemble(name, whole.take(range(cut)), test, tuple(classes), seed)


def _layout(root: Path) -> tuple[Path, Path | None]:
    """(training folder, test folder or None); a folder `train` that holds no folders is a class of that name."""
    folders = _subfolders(root)
    found = {name.lower(): name for name in folders}
    if "train" not in found or not _subfolders(root / found["train"]):
        return root, None
    for part in ("train", *TEST_NAMES):
        same = [name for name in folders if name.lower() == part]
        if len(same) > 1:
            raise DataError(f"{root}: {' and '.join(same)} are the same part but for their case; expected one of them")
    train, test = found.pop("train"), next((found[name] for name in TEST_NAMES if name in found), None)
    if test is None and found:
        raise DataError(
            f"{root}: {train} holds classes, and beside it lies {', '.join(found.values())}; expected a test folder "
            f"({', '.join(TEST_NAMES)}) or nothing; a name that begins with a dot is passed over"
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
            raise DataError(f"{entry.path}: a link to what is not there")
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
    """The sorted names, from `root` on, of all files in a folder and its subfolders; none that begin with a dot.

    Args:
        root: where names begin.
        folder: below it, or it.
        seen: folders that were read before, which must not be read again; those read now are added to it.

    Raises:
        DataError: a folder cannot be read, or is reached twice by links.
    """
    found: list[str] = []
    seen = {} if seen is None else seen  # a link may lead in a circle, or to pictures that are already there
    for place, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        first = seen.setdefault(os.path.realpath(place), place)
        if first != place:
            raise DataError(f"{place}: the same folder as {first}, by a link")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(place).relative_to(root)
        found += [(here / name).as_posix() for name in files if not name.startswith(".")]
    return sorted(found)


def _refuse(error: OSError) -> None:
    raise _unreadable(error) from error


def _unreadable(error: OSError) -> DataError:
    return DataError(f"{error.filename}: the folder cannot be read: {error.strerror}")


def _check_endings(root: Path, names: list[str]) -> None:
    strange = [name for name in names if Path(name).suffix.lower() not in SUFFIXES]
    if strange:
        raise DataError(f"{root}: {len(strange)} files are not images by their names: {', '.join(strange)}")
