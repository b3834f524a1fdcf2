"""Load a data set by name, such as `"cifar10"`, or by the path of a file or folder."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset
from reweigh.lab.data.source.images import Files
from reweigh.lab.data.split import HOLDOUT

VARIABLE = "REWEIGH_DATA"
"""The environment variable with the path of the data folder."""

TABLES = (".csv", ".tsv", ".parquet", ".xlsx")

FILES = ("mars", "tracklets", "clothing1m")
"""The named data sets of image files."""


def load(
    spec: str,
    root: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    label: str | None = None,
    text: str | None = None,
    only: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    size: tuple[int, int] | None = None,
    labels: str | os.PathLike[str] | None = None,
    check: bool = True,
    holdout: float = HOLDOUT,
) -> Dataset:
    """Load a data set by name or path.

    A name of `NAMES` is read from the data folder; one of `FILES` may include its own folder, as in `tracklets:videos`.
    Anything else is a path: an `.npz` file, a `.csv`, `.tsv` or `.parquet` table, or a folder of images by class (write
    `./cifar10` for a folder of that name).

    Args:
        spec: the name or the path.
        root: for names, the data folder, by default the environment variable REWEIGH_DATA; for relative paths, the
            folder they start from, by default the working directory.
        seed: the seed of the split of data without a test part.
        label: the label column (`"label"`) of a table, or of `labels`.
        text: for a table, the text column.
        only: for a table, the columns to use.
        drop: for a table, columns not to use.
        test: for a table, the file with the test rows.
        size: for a folder or a data set of `FILES`, resize all images to (height, width) and keep them in memory.
        labels: for a folder, a table with the name and the label of each file.
        check: for a folder, decode every file once to find the unreadable ones.
        holdout: the fraction of a user's data that is held out if there is no test part; 0 keeps all for training.
    """
    table_options: dict[str, object] = {"label": label, "text": text, "only": only, "drop": drop, "test": test}
    spec, root = with_root(spec, root)
    if spec in NAMES:
        table_options["labels"] = labels
        _refuse_options(spec, table_options | ({} if spec in FILES else {"size": size}))
        data = NAMES[spec](folder_of(spec, root))
        return data if size is None else decoded(data, size)
    path = path_of(spec, root)
    test = None if test is None else path_of(test, root)
    if path.is_dir():
        _refuse_options(spec, table_options | ({} if labels is None else {"label": None}))
        from reweigh.lab.data import folder

        labels = None if labels is None else path_of(labels, root)
        return folder.load(path, size=size, seed=seed, check=check, labels=labels, label=label, holdout=holdout)
    suffix = path.suffix.lower()
    table_options["labels"] = labels
    if suffix == ".npz":
        _refuse_options(spec, table_options | {"size": size})
        from reweigh.lab.data import npz

        return npz.load(path, seed=seed, holdout=holdout)
    if suffix in TABLES:
        _refuse_options(spec, {"size": size, "labels": labels})
        from reweigh.lab.data import table

        return table.load(path, label or "label", text, only, drop or (), test, seed, holdout)
    if path.exists() or suffix or path.parent != Path():
        state = "expected a folder or one of" if path.exists() else "no such folder; expected one or a file of"
        raise DataError(f"{path}: {state} .npz, {', '.join(TABLES)}")
    here = sorted(file.name for file in Path(root or ".").glob("*") if not file.name.startswith("."))
    close = difflib.get_close_matches(spec, [*NAMES, *here], n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the data sets are {', '.join(NAMES)}"
    raise ValueError(f"data is {spec!r}: no such folder or file, and no data set of that name; {hint}")


def _refuse_options(spec: str, options: dict[str, object]) -> None:
    in_a_run = {"label": "label_column", "text": "text_column", "test": "test_data", "size": "image_size"}
    in_a_run |= {"only": "only_columns", "drop": "drop_columns"}
    for option, value in options.items():
        if value is not None:
            other = f" ({in_a_run[option]} of a run)" if option in in_a_run else ""
            raise ValueError(f"{option}{other} does not apply to {spec}")


def with_root(spec: str, root: str | os.PathLike[str] | None = None) -> tuple[str, str | os.PathLike[str] | None]:
    """Split a spec with its own folder into name and folder.

    >>> with_root("tracklets:my/videos"), with_root("mars", "data"), with_root("a:b")
    (('tracklets', 'my/videos'), ('mars', 'data'), ('a:b', None))
    """
    name, _, own = spec.partition(":")
    if name not in FILES or not own:
        return spec, root
    if root is not None:
        raise ValueError(f"root is {root}, but {spec} includes a folder; pass one of them")
    return name, own


def path_of(spec: str | os.PathLike[str], root: str | os.PathLike[str] | None) -> Path:
    """Return the path of a user's file or folder; a relative one starts from `root`."""
    return Path(root or "", spec)


def decoded(data: Dataset, size: tuple[int, int]) -> Dataset:
    """Return a data set of files with all images in memory, resized to (height, width)."""
    train, test = (replace(part, inputs=cast(Files, part.inputs).array(size)) for part in (data.train, data.test))
    return replace(data, train=train, test=test)


def folder_of(spec: str, root: str | os.PathLike[str] | None) -> Path:
    """Return the folder from which a named data set is read."""
    if root is not None:
        return Path(root)
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    if spec == "digits":
        return Path()
    raise DataError(f"{spec}: no data folder; set the environment variable {VARIABLE}, or pass root")


def _digits(_root: Path) -> Dataset:
    from reweigh.lab.data import digits

    return digits.load()


def _tin100(root: Path) -> Dataset:
    """Load 100 classes of Tiny-ImageNet at 32 x 32, in 20 groups of five consecutive classes."""
    from reweigh.lab.data import npz

    data = npz.load(root / "tin100.npz")
    return replace(data, groups=tuple(k // 5 for k in range(data.num_classes)))


def _cifar(name: str) -> Callable[[Path], Dataset]:
    def load_cifar(root: Path) -> Dataset:
        from reweigh.lab.data import cifar

        return cifar.load(root, cast(cifar.Name, name))

    return load_cifar


def _module(name: str) -> Callable[[Path], Dataset]:
    """Return `load(root)` of the module `reweigh.lab.data.<name>`, imported on first call."""
    return lambda root: cast(Dataset, import_module(f"reweigh.lab.data.{name}").load(root))


NAMES: dict[str, Callable[[Path], Dataset]] = {
    "cifar10": _cifar("cifar10"),
    "cifar100": _cifar("cifar100"),
    "vehicles10": _cifar("vehicles10"),
    "tin100": _tin100,
    "digits": _digits,
    "imdb": _module("imdb"),
    "clothing1m": _module("clothing1m"),
    "mars": _module("mars"),
    "tracklets": _module("tracklets"),
}
"""The named data sets."""
