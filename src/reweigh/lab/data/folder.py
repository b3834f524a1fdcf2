"""A folder of images, one subfolder per class, or with a table of labels."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from reweigh.errors import DataError, DataWarning
from reweigh.lab.data.dataset import Dataset, Inputs, Part
from reweigh.lab.data.source.columns import read
from reweigh.lab.data.source.images import MAX_PIXELS, SUFFIXES, Files, check_inside
from reweigh.lab.data.split import HOLDOUT, TEST_NAMES, assemble, class_names_of

FILE_COLUMNS = ("file", "filename", "file_name", "path", "image", "image_name", "image_path", "name", "id")
"""Names, in lower case, of the column of a table of labels that holds files; else it is the first without labels."""

_MAX_SHOWN = 5


def load(
    root: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    seed: int = 0,
    check: bool = True,
    max_pixels: int = MAX_PIXELS,
    labels: str | os.PathLike[str] | None = None,
    label: str | None = None,
    holdout: float = HOLDOUT,
) -> Dataset:
    """Load the images below `root`, with the sorted names of their folders as classes.

    Layouts: `root/train/<class>/*` and `root/test/<class>/*` (or the first of `val`, `valid`, `validation`), in any
    case, `root/<class>/*`, or any with a table of `labels`. Without a test folder, a seeded stratified fifth becomes
    the noisy hold-out. Subfolders of a class belong to it, including links. Names that begin with a dot are ignored;
    other files without the suffix of an image, and classes without an image, are skipped with one `DataWarning`. All
    images that cannot be decoded are reported together. DataError is also raised for fewer than two classes, a test
    class that is not a training class, a folder that is unreadable or linked twice, parts whose names differ only in
    case, and a `train` folder next to others that are not test folders.

    Args:
        root: the folder.
        size: decode all images now and resize them to (height, width), as kind `"images"`; otherwise they are
            `"files"`, decoded on access, and their sizes may differ.
        seed: the seed of the split without a test folder.
        check: decode every file once to find the unreadable ones.
        max_pixels: see `reweigh.lab.data.source.images.decode`.
        labels: a table with the name of a file, relative to `root` and with or without its suffix, and its label; the
            names of folders then mean nothing.
        label: the label column of that table (`"label"`).
        holdout: the fraction held out without a test folder; 0 keeps all images for training.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: {'is not a folder' if root.exists() else 'no such folder'}")
    skipped = Skipped(root)
    test_labels: list[int] | None = None
    if labels is not None:
        names, train_labels, class_names = _listed(root, Path(labels), label or "label", skipped)
    else:
        train_root, test_root = _layout(root)
        seen: dict[str, str] = {}
        found = _classes(root, train_root, seen, skipped)
        if len(found) < 2:
            raise DataError(_too_few(train_root, found, skipped))
        class_names = tuple(found)
        names, train_labels = _flattened(found, class_names)
        if test_root is not None:
            tested = _classes(root, test_root, seen, skipped)
            for name in tested:
                if name not in found:
                    raise DataError(
                        f"{test_root}: class {name!r} is not among the training classes {', '.join(class_names)}"
                    )
            if not tested:
                raise DataError(
                    f"{test_root}: no class folder with an image; empty: {_first(skipped.folders) or 'none'}"
                )
            test_names, test_labels = _flattened(tested, class_names)
            names += test_names
    skipped.warn()
    cut = len(train_labels)
    files = Files(root, tuple(names), max_pixels)
    inputs: Inputs = files if size is None else files.array(size)
    if size is None and check:
        files.check()
    examples = Part(inputs, np.array(train_labels + (test_labels or []), dtype=np.int64))
    test = None if test_labels is None else examples.take(range(cut, len(examples)))
    return assemble(root.resolve().name, examples.take(range(cut)), test, class_names, seed, holdout)


class Skipped:
    """The files and folders below a root that are not read, to be reported in one warning."""

    def __init__(self, root: Path) -> None:
        self.root, self.files, self.folders = root, list[str](), list[str]()
        self.unlisted = 0

    def images(self, names: list[str]) -> list[str]:
        """Return the names with the suffix of an image, and note the others."""
        self.files += [name for name in names if Path(name).suffix.lower() not in SUFFIXES]
        return [name for name in names if Path(name).suffix.lower() in SUFFIXES]

    def warn(self) -> None:
        """Warn of everything that was skipped, with counts and the first names."""
        parts = [
            f"{what}: {len(names)} ({_first(names)})"
            for names, what in ((self.files, "files that are not images"), (self.folders, "folders without an image"))
            if names
        ]
        if self.unlisted:
            parts.append(f"images without a label: {self.unlisted}")
        if parts:
            warnings.warn(f"{self.root}: skipped {', '.join(parts)}", DataWarning, stacklevel=3)


def _first(names: list[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + (", ..." if len(names) > _MAX_SHOWN else "")


def _too_few(folder: Path, found: dict[str, list[str]], skipped: Skipped) -> str:
    """Return the message for a folder with fewer than two classes, with the likely cause."""
    expected = "expected one subfolder per class, or a table of names and labels (--labels labels.csv)"
    if len(found) == 1:
        inner = folder / next(iter(found))
        within = _subfolders(inner)
        hint = f"; if the classes are {_first(within)}, use {inner}" if len(within) > 1 else ""
        empty = f" ({_first(skipped.folders)} without an image)" if skipped.folders else ""
        return f"{folder}: 1 class ({next(iter(found))}){empty}, but two or more are needed: {expected}{hint}"
    images = [entry.name for entry in os.scandir(folder) if Path(entry.name).suffix.lower() in SUFFIXES]
    empty = f"; {_first(skipped.folders)} without an image" if skipped.folders else ""
    what = f"{len(images)} images without a folder per class" if images else f"no images in folders{empty}"
    return f"{folder}: {what}; {expected}"


def _listed(root: Path, path: Path, label: str, skipped: Skipped) -> tuple[list[str], list[int], tuple[str, ...]]:
    """Return the files of a table of labels, their labels and the class names."""
    table = read(path)
    if label not in table.names or len(table.names) < 2:
        columns = ", ".join(map(repr, table.names))
        raise DataError(f"{path}: the columns are {columns}; expected names of files and a column {label!r}")
    column = next((name for name in table.names if name.lower() in FILE_COLUMNS), None)
    column = column or next(name for name in table.names if name != label)
    present = skipped.images([name for name in files_below(root, root) if (root / name).resolve() != path.resolve()])
    by_name: dict[str, list[str]] = {}
    for name in present:
        for short in {name, name.rpartition("/")[2], name.rpartition(".")[0], Path(name).stem}:
            by_name.setdefault(short, []).append(name)
    names, given, missing, double = list[str](), list[str](), list[str](), list[str]()
    listed = [value.strip() for value in table.texts(column)]
    check_inside(listed, path, table.place)
    for row, (name, value) in enumerate(zip(listed, table.texts(label), strict=True)):
        files = [name] if name in by_name.get(name, ()) else by_name.get(name.removeprefix("./"), [])
        if not value.strip():
            continue
        if len(files) != 1:
            (double if files else missing).append(f"{table.place(row)} ({name})")
            continue
        names.append(files[0])
        given.append(value.strip())
    twice = [name for name, count in Counter(names).items() if count > 1]
    problems = [
        f"{len(rows)} {what}: {_first(rows)}"
        for rows, what in (
            (missing, f"names of no image in {root}"),
            (double, f"names of several images in {root}; write their folders too"),
            (twice, "images listed more than once"),
        )
        if rows
    ]
    if problems:
        raise DataError(f"{path}: " + "; ".join(problems))
    class_names = class_names_of(given)
    if len(class_names) < 2:
        raise DataError(f"{path}: column {label!r} has {len(class_names)} class(es); expected two or more")
    skipped.unlisted = len(present) - len(names)
    number = {name: k for k, name in enumerate(class_names)}
    return names, [number[value] for value in given], class_names


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


def _classes(root: Path, folder: Path, seen: dict[str, str], skipped: Skipped) -> dict[str, list[str]]:
    """Return class name -> its images, for every subfolder with an image."""
    found = {}
    for name in _subfolders(folder):
        images = skipped.images(files_below(root, folder / name, seen))
        if images:
            found[name] = images
        else:
            skipped.folders.append((folder / name).relative_to(root).as_posix())
    return found


def _flattened(found: dict[str, list[str]], class_names: tuple[str, ...]) -> tuple[list[str], list[int]]:
    names = [name for images in found.values() for name in images]
    return names, [class_names.index(kind) for kind, images in found.items() for _ in images]


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
