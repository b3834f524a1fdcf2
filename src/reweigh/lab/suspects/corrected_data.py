"""Write a user's data with corrected labels, in the form in which they came. The originals are only read.

a table          data.csv (or .tsv, .parquet; .csv for Excel): all rows but dropped ones, all columns; the label column
                 is corrected, and the column LABEL_before next to it has the old labels
arrays           data.npz: the same arrays without dropped rows, corrected labels, and the old ones as LABELS_before
a folder         images/: a tree of hard links (copies on other file systems), one subfolder per corrected class
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.data import npz
from reweigh.lab.data.dataset import NOISY_HOLDOUT, Dataset
from reweigh.lab.data.registry import NAMES, TABLES, path_of, with_root
from reweigh.lab.data.source.columns import read
from reweigh.lab.data.source.images import Files
from reweigh.lab.data.table import BEFORE
from reweigh.lab.features import is_file
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.lab.run.material import Material, load
from reweigh.lab.spec import Run
from reweigh.lab.suspects.examples import rows_in_file

NAME, IMAGES = "data", "images"

Labels = NDArray[np.int64]


def write_data(
    folder: Path, run: Run, material: Material, labels: Labels, keep: NDArray[np.bool_]
) -> tuple[Path, dict[str, str]] | None:
    """Write the data of a run with corrected labels; None for a named data set, noise or imbalance that a run added.

    Args:
        folder: an existing folder.
        run, material: the run and its data.
        labels: (N,) corrected labels of `material.train`.
        keep: (N,) False for dropped examples.

    Returns:
        the file or folder, and the fields of a run that trains on it.
    """
    if with_root(run.data)[0] in NAMES or run.noise is not None or material.rows is None or run.labels is not None:
        return None
    if run.features is not None and is_file(run.features):  # its rows would no longer be those of the data
        return None
    path = path_of(run.data, run.data_root)
    dataset = load(replace(run, image_size=None), check=False)
    if len(material.train) != len(dataset.train):  # an imbalance leaves examples out
        return None
    if path.is_dir():
        target = folder / IMAGES
        _write_images(target, dataset, labels, keep)
        return target, _options(run, "features", "image_size")
    rows = rows_in_file(run, dataset)[material.rows]
    if path.suffix.lower() in TABLES:
        target = folder / f"{NAME}{'.csv' if path.suffix.lower() == '.xlsx' else path.suffix.lower()}"
        _write_table(target, path, run.label_column or "label", dataset.class_names, rows, labels, keep)
        return target, _options(
            run, "label_column", "text_column", "only_columns", "drop_columns", "test_data", "features"
        )
    target = folder / f"{NAME}.npz"
    _write_arrays(target, path, rows, labels, keep)
    return target, _options(run, "features")


def _options(run: Run, *names: str) -> dict[str, str]:
    """Return those fields that are set; a path starts from the working directory, as that of the new data does."""
    options = {name: str(getattr(run, name)) for name in names if getattr(run, name) is not None}
    if "test_data" in options:
        options["test_data"] = path_of(options["test_data"], run.data_root).as_posix()
    return options


def is_data(name: str) -> bool:
    """Return whether `write_data` may have written a file or folder of this name."""
    return name == IMAGES or (name.startswith(f"{NAME}.") and name.count(".") == 1)


def _write_table(
    target: Path,
    path: Path,
    label: str,
    class_names: Sequence[str],
    rows: Labels,
    labels: Labels,
    keep: NDArray[np.bool_],
) -> None:
    """Write all rows of a table that are not dropped; those that were not judged keep their labels."""
    table = read(path)
    before = table.texts(label)
    after, kept = list(before), np.ones(len(before), bool)
    kept[rows] = keep
    for row, new in zip(rows.tolist(), labels.tolist(), strict=True):
        if class_names[new] != before[row].strip():
            after[row] = class_names[new]
    old = label + BEFORE
    if path.suffix.lower() == ".parquet":
        _write_parquet(target, path, label, old, after, kept)
        return
    names = [name for name in table.names if name != old]
    places = names.index(label) + 1
    columns = {name: table.texts(name) for name in names} | {label: after}
    # labels that were corrected twice keep the oldest
    columns[old] = table.texts(old) if old in table.names else before
    names.insert(places, old)
    text = io.StringIO(newline="")
    writer = csv.writer(
        text, delimiter="\t" if target.suffix == ".tsv" else ";" if table.decimal_comma else ",", lineterminator="\n"
    )
    writer.writerow(names)
    for i in np.flatnonzero(kept).tolist():
        writer.writerow([columns[name][i] for name in names])
    replace_file(target, lambda file: file.write(text.getvalue().encode()))


def _write_parquet(target: Path, path: Path, label: str, old: str, after: list[str], kept: NDArray[np.bool_]) -> None:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(path)
    place = table.column_names.index(label)
    column = table.column(label)
    corrected = pyarrow.array(after).cast(column.type)
    if old not in table.column_names:
        table = table.add_column(place + 1, old, column)
    table = table.set_column(place, label, corrected).filter(pyarrow.array(kept))
    replace_file(target, lambda file: parquet.write_table(table, file))


def _write_arrays(target: Path, path: Path, rows: Labels, labels: Labels, keep: NDArray[np.bool_]) -> None:
    arrays = npz.read(path)
    x, y = next((x, y) for x, y, *_ in npz.KEYS if x in arrays and y in arrays)
    kept, corrected = np.ones(len(arrays[y]), bool), arrays[y].copy()
    kept[rows] = keep
    corrected.reshape(-1)[rows] = labels
    old = arrays.get(y + BEFORE, arrays[y])
    written = arrays | {x: arrays[x][kept], y: corrected[kept], y + BEFORE: old[kept]}
    replace_file(target, lambda file: np.savez(file, **written))  # type: ignore[arg-type]


def _write_images(target: Path, dataset: Dataset, labels: Labels, keep: NDArray[np.bool_]) -> None:
    """Write the tree of a folder: with `train` and `test` if it has its own test part."""
    part = dataset.train
    assert isinstance(part.inputs, Files)
    parts = [("" if dataset.holdout == NOISY_HOLDOUT else "train", part.inputs, labels, keep)]
    if len(dataset.test):  # also what was held out, with its labels as they are
        assert isinstance(dataset.test.inputs, Files)
        name = parts[0][0] and "test"
        parts.append((name, dataset.test.inputs, dataset.test.labels, np.ones(len(dataset.test), bool)))
    used: set[Path] = set()
    for name, files, classes, kept in parts:
        for i in np.flatnonzero(kept).tolist():
            source = files.root / files.names[i]
            place = target / name / dataset.class_names[classes[i]]
            wanted, number = place / source.name, 1
            while wanted in used:  # files of other classes may have the same name
                number += 1
                wanted = place / f"{source.stem}-{number}{source.suffix}"
            used.add(wanted)
            make_folder(place)
            _link(source, wanted)


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        replace_file(target, lambda file: shutil.copyfileobj(source.open("rb"), file))
