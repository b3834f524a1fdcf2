"""Name and load the training examples of a run for people: files, texts and table rows, not the net's inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.data import npz
from reweigh.lab.data.dataset import NOISY_HOLDOUT, Column, Dataset, Part
from reweigh.lab.data.digits import as_images
from reweigh.lab.data.registry import NAMES, TABLES, path_of
from reweigh.lab.data.source.columns import read
from reweigh.lab.data.source.images import Files
from reweigh.lab.data.split import noisy_holdout
from reweigh.lab.run.material import Material, gather, load
from reweigh.lab.spec import Run

LENGTH = 200  # characters of a text


class Original(NamedTuple):
    """The training examples of a run in its order, with their labels before any noise; of a table, its columns."""

    part: Part
    columns: tuple[Column, ...] | None


def original(run: Run) -> Original:
    """Load the training examples as they are: files at full size, images with all channels, texts not hashed.

    The digits, whose features are pixels, are images.
    """
    dataset = load(replace(run, image_size=None, text_vectors="hashed"))
    part = dataset.train
    if run.imbalance is not None or run.validation > 0 or run.fold is not None:  # only some rows are trained on
        part = part.take(cast("NDArray[np.int64]", gather(run).rows))
    if run.data == "digits":
        part = as_images(part)
    return Original(part, dataset.columns)


def sources_of(run: Run, material: Material) -> tuple[str, ...]:
    """Return a name for each example of `material.train`, in its order.

    Files are named by path. Rows of a user's table are named by the line where they start, counted from 1 (in Parquet,
    by row), with an excerpt if they are texts. Other texts are named by an excerpt, and anything else by its row in
    the array or training set, counted from 0.
    """
    rows = cast("NDArray[np.int64]", material.rows)
    dataset = load(replace(run, image_size=None))  # with an image size, files would be loaded as an array without names
    inputs = dataset.train.inputs
    if isinstance(inputs, Files):
        return tuple(_printable(str(inputs.root / inputs.names[i])) for i in rows.tolist())
    if run.data in NAMES:
        texts = inputs if isinstance(inputs, tuple) else [""] * len(dataset.train)
        return tuple(excerpt(texts[i]) or str(i) for i in rows.tolist())
    path = path_of(run.data, run.data_root)
    numbers = rows_in_file(run, dataset)[rows]
    if path.suffix.lower() not in TABLES:
        return tuple(map(str, numbers))
    places = tuple(map(read(path).place, numbers.tolist()))
    if isinstance(inputs, tuple):
        return tuple(f"{place}: {excerpt(inputs[i])}" for place, i in zip(places, rows.tolist(), strict=True))
    return places


def excerpt(text: str, length: int = LENGTH) -> str:
    """Return the beginning of a text on one line.

    >>> excerpt("A film\\nabout nothing at all", 12)
    'A film about…'
    """
    words = " ".join(_printable(text[: 4 * length]).split())
    return words if len(words) <= length else f"{words[:length].rstrip()}…"


def rows_in_file(run: Run, dataset: Dataset) -> NDArray[np.int64]:
    """Return the row of each training example in the table or array of a run; the noisy hold-out has other rows."""
    if dataset.rows is not None:
        return dataset.rows
    if dataset.holdout != NOISY_HOLDOUT:
        return np.arange(len(dataset.train))
    arrays = npz.read(path_of(run.data, run.data_root))
    labels = next(arrays[y] for x, y, *_ in npz.KEYS if x in arrays and y in arrays).reshape(-1).astype(np.int64)
    return noisy_holdout(dataset.name, labels, fraction=run.holdout)[0]


def _printable(text: str) -> str:
    """Replace characters that a UTF-8 file cannot hold or its readers reject."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")
