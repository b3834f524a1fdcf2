"""Predict with a trained model; inputs are read, normalised and cropped as for evaluation during training.

predictions = predict("runs/.../model", "holiday-photos/")
[predictions.class_names[k] for k in predictions.classes]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data import npz
from reweigh.lab.data.dataset import Dataset, Inputs, Part
from reweigh.lab.data.folder import Skipped, files_below
from reweigh.lab.data.registry import TABLES
from reweigh.lab.data.source.columns import Table, read, require_columns
from reweigh.lab.data.source.images import Files
from reweigh.lab.data.source.text import read_lines
from reweigh.lab.data.table import are_numbers, encode, standardise
from reweigh.lab.features import extract, is_file
from reweigh.lab.nets.net import Net
from reweigh.lab.run.machine import autocast_of, device_of
from reweigh.lab.run.material import Material, readable
from reweigh.lab.run.memory import activations, evaluation_batch
from reweigh.lab.run.parts import batches_of
from reweigh.lab.spec import Run
from reweigh.lab.spec.checks import height_and_width
from reweigh.lab.train.model import Card, load_model

BATCH = 256


class Predictions(NamedTuple):
    """The predictions for N examples.

    Attributes:
        examples: N names: files relative to their folder, or row numbers from 1.
        classes: (N,) int64, the most probable class.
        probabilities: (N, C) float64.
        class_names: class id -> name.
        empty: places of empty texts, such as "line 3"; their predictions are those for no words at all.
        beside: what tells the examples apart: column -> N values, of the columns of a table that the model does not
            read, such as a key, and of texts.
    """

    examples: tuple[str, ...]
    classes: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    class_names: tuple[str, ...]
    empty: tuple[str, ...] = ()
    beside: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    @property
    def p(self) -> NDArray[np.float64]:
        """(N,) probabilities of the predicted classes."""
        best: NDArray[np.float64] = self.probabilities.max(axis=1)
        return best


def predict(
    model: str | os.PathLike[str],
    inputs: str | os.PathLike[str],
    which: Literal["final", "best"] = "final",
    *,
    device: str = "auto",
    own_code: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Predictions:
    """Return classes and probabilities for `inputs`.

    Args:
        model: directory of a model.
        inputs: a folder of images, at any depth, or one image; an `.npz` with one array of images or features; a
            `.csv`, `.tsv` or `.parquet` table with the columns of training, in any order and with others; for a model
            of texts also a `.txt` with one text per line. Empty texts are predicted and listed in the result; empty
            lines at the end of a `.txt`, and in a table, are skipped. For a model of a table, the features of an
            `.npz` are its columns in the order of training, and are standardised like them.
        which: the final model, or the best one if it was saved.
        device: "auto" is a GPU if there is one.
        own_code: execute the recorded code of an own net; read it first.
        progress: called with (examples done, examples).

    Raises:
        DataError: the model or an input cannot be read, an input does not fit the model, or its training diverged.
    """
    net, card = load_model(model, which, own_code=own_code)
    run = run_of(card)
    target = device_of(replace(run, device=device))
    examples, part, empty, beside = _read(Path(inputs), card, run)
    if run.features is not None and not is_file(run.features):
        part = Part(extract(part.inputs, part.kind, run.features), part.labels)
    part = readable(Dataset("inputs", part, part, card.class_names), run).train
    _check_shape(Path(inputs), part, card)
    probabilities = probabilities_of(net, card, part, target, which, progress)
    if not np.isfinite(probabilities).all():  # finite weights can still be too large
        raise DataError(f"{model}: outputs are not finite: training diverged, or numbers in {inputs} are too large")
    return Predictions(examples, probabilities.argmax(axis=1), probabilities, card.class_names, empty, beside)


def run_of(card: Card) -> Run:
    """Return the run of a model, or one that stands in for an unknown run: only its net is used."""
    return card.run or Run(data="inputs", net=card.net, weighting="CCE")


def probabilities_of(
    net: Net,
    card: Card,
    part: Part,
    device: torch.device,
    which: Literal["final", "best"] = "final",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.float64]:
    """Return the (N, C) probabilities of examples as loaded for training; the temperature is of the final model."""
    run, temperature = run_of(card), card.temperature if which == "final" else 1.0
    material = Material(Dataset("inputs", part, part, card.class_names), part, None, None, None, card.normalisation, "")
    batches = batches_of(run, part, material, device, order=None)
    net, autocast = net.to(device), autocast_of(run, device)
    rows: list[torch.Tensor] = []
    largest = activations(net, card.shape)[1]
    with torch.no_grad():
        for batch in batches.evaluation(evaluation_batch(largest, BATCH)):
            with autocast():
                logits = net(batch.inputs)
            rows.append((logits.double() / temperature).softmax(1).cpu())
            progress(sum(map(len, rows)), len(part))
    return torch.cat(rows).numpy()


_Beside = Mapping[str, tuple[str, ...]]


def _read(path: Path, card: Card, run: Run) -> tuple[tuple[str, ...], Part, tuple[str, ...], _Beside]:
    """Return the names of the examples, these as loaded for training, the places of empty texts, and `beside`."""
    inputs: Inputs
    empty: tuple[str, ...] = ()
    beside: _Beside = {}
    suffix = path.suffix.lower()
    if suffix == ".npz":
        inputs = _array(path, card)
    elif (suffix in TABLES or suffix == ".txt") and reads_text(run):
        inputs, empty, beside = _texts(path, run)
    elif suffix in TABLES or suffix == ".txt":
        inputs, beside = _columns(path, card)
    else:
        files = _files(path)
        as_files = card.kind == "files" or run.features is not None
        inputs = files if as_files else files.array(_image_size(path, card, run))
        if as_files:
            files.check()
        return files.names, _part(path, inputs), empty, beside
    return tuple(str(i + 1) for i in range(len(inputs))), _part(path, inputs), empty, beside


def _part(path: Path, inputs: Inputs) -> Part:
    if not len(inputs):
        raise DataError(f"{path}: no examples to predict")
    try:
        return Part(inputs, np.zeros(len(inputs), dtype=np.int64))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _files(path: Path) -> Files:
    if path.is_file():
        return Files(path.parent, (path.name,))
    if not path.is_dir():
        raise DataError(f"{path}: no such file or folder")
    skipped = Skipped(path)
    names = tuple(skipped.images(files_below(path, path)))
    if not names:
        raise DataError(f"{path}: no images in this folder")
    skipped.warn()
    return Files(path, names)


def _image_size(path: Path, card: Card, run: Run) -> tuple[int, int]:
    if card.kind == "images":
        return card.shape[1], card.shape[2]
    if run.image_size is not None:
        return height_and_width(run.image_size)
    raise DataError(f"{path}: images, but the model reads {card.shape[0]} features; expected a table or an .npz")


def _array(path: Path, card: Card) -> Inputs:
    """Return the only array of inputs in a file; arrays of labels and class names are ignored."""
    arrays = npz.read(path)
    known = {name for keys in npz.KEYS for name in (keys[0], keys[2])}
    found = [name for name in arrays if name in known] or [name for name in arrays if arrays[name].ndim > 1]
    if len(found) != 1:
        raise DataError(f"{path}: expected one array of inputs among {', '.join(arrays) or 'none'}, not {len(found)}")
    array = arrays[found[0]]
    if (
        card.columns is not None
        and are_numbers(card.columns)
        and array.dtype.kind in "biuf"
        and array.shape[1:] == (len(card.columns),)
    ):
        return standardise(array.astype(np.float64), card.columns)
    return npz.as_inputs(array, found[0])


def reads_text(run: Run) -> bool:
    """Return whether the model of a run reads texts."""
    return run.text_column is not None or (run.data == "imdb" and run.text_vectors == "hashed")


def _texts(path: Path, run: Run) -> tuple[tuple[str, ...], tuple[str, ...], _Beside]:
    """Return the texts, the places of empty ones, and `Predictions.beside`."""
    beside: _Beside
    if path.suffix.lower() == ".txt":
        texts = read_lines(path)
        empty, beside = [f"line {i + 1}" for i, text in enumerate(texts) if not text.strip()], {"text": tuple(texts)}
    else:
        table, column = read(path), run.text_column or "text"
        require_columns(table, column)
        texts = table.texts(column)
        empty = [table.place(i) for i, text in enumerate(texts) if not text.strip()]
        beside = _beside(table, table.names)
    if len(empty) == len(texts):
        raise DataError(f"{path}: nothing to predict: all texts are empty")
    return tuple(texts), tuple(empty), beside


def _beside(table: Table, names: Iterable[str]) -> _Beside:
    """Return columns as text, with nothing for a missing value, and without columns of lists and the like."""
    columns = {}
    for name in names:
        with suppress(DataError):
            columns[name] = tuple("" if value is None else str(value) for value in table.values(name))
    return columns


def _columns(path: Path, card: Card) -> tuple[NDArray[np.float32], _Beside]:
    if card.columns is None or path.suffix.lower() == ".txt":
        raise DataError(f"{path}: the model was not trained on {'texts' if path.suffix == '.txt' else 'a table'}")
    table = read(path)
    known = {column.name for column in card.columns}
    return encode(table, card.columns), _beside(table, (name for name in table.names if name not in known))


def _check_shape(path: Path, part: Part, card: Card) -> None:
    shape: tuple[Any, ...] | None = part.shape
    if shape is not None and len(shape) == 3:
        shape = shape[2], shape[0], shape[1]
    if part.kind != card.kind or (shape is not None and shape != card.shape):
        found = "x".join(map(str, shape or ()))
        expected = "x".join(map(str, card.shape))
        raise DataError(f"{path}: {part.kind} {found}, but the model reads {card.kind} {expected}")
