"""What each training example is called: its file, its line in a table, the beginning of its text, or its row."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.data import npz
from reweigh.lab.data.dataset import NOISY_HOLDOUT, Dataset
from reweigh.lab.data.registry import NAMES, TABLES, path_of
from reweigh.lab.data.source.columns import Table, read
from reweigh.lab.data.source.images import Files
from reweigh.lab.data.split import noisy_holdout
from reweigh.lab.run.material import Material, load
from reweigh.lab.spec import Run

LENGTH = 200  # characters of a text


def sources_of(run: Run, material: Material) -> tuple[str, ...]:
    """A name for every example of `material.train`, in its order.

    Files by their path; rows of a user's table by the line that they begin on in the file, counted from 1 as editors
    do (in Parquet, by the row), and texts there by that and their beginning; other texts by their beginning; anything
    else by the row, counted from 0, of the array or the data set's training part.
    """
    rows = cast("NDArray[np.int64]", material.rows)
    dataset = load(replace(run, image_size=None))  # at a size, pictures are an array that has no names
    inputs = dataset.train.inputs
    if isinstance(inputs, Files):
        return tuple(_printable(str(inputs.root / inputs.names[i])) for i in rows.tolist())
    if run.data in NAMES:
        beginnings = inputs if isinstance(inputs, tuple) else [""] * len(dataset.train)
        return tuple(excerpt(beginnings[i]) or str(i) for i in rows.tolist())
    path = path_of(run.data, run.data_root)
    if path.suffix.lower() in TABLES:
        table = read(path)
        places = tuple(map(table.place, _in_file(dataset, _labels(table, run, dataset))[rows].tolist()))
        if isinstance(inputs, tuple):
            return tuple(f"{place}: {excerpt(inputs[i])}" for place, i in zip(places, rows.tolist(), strict=True))
        return places
    arrays = npz.read(path)
    labels = next(arrays[y] for x, y, *_ in npz.KEYS if x in arrays and y in arrays)
    return tuple(map(str, _in_file(dataset, labels.reshape(-1).astype(np.int64))[rows].tolist()))


def excerpt(text: str, length: int = LENGTH) -> str:
    """The beginning of a text on one line.

    >>> excerpt("A film\\nabout nothing at all", 12)
    'A film about…'
    """
    words = " ".join(_printable(text[: 4 * length]).split())
    return words if len(words) <= length else f"{words[:length].rstrip()}…"


def _in_file(dataset: Dataset, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the file that became the training part: all, or what was left when the noisy hold-out was split off."""
    if dataset.holdout != NOISY_HOLDOUT:
        return np.arange(len(dataset.train))
    return noisy_holdout(dataset.name, labels)[0]


def _labels(table: Table, run: Run, dataset: Dataset) -> NDArray[np.int64]:
    number = {name: k for k, name in enumerate(dataset.class_names)}
    values = table.strings(run.label_column or "label")
    return np.array([number[value.strip()] for value in values], dtype=np.int64)


def _printable(text: str) -> str:
    """The text without what a UTF-8 file cannot hold, or its readers refuse."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")
