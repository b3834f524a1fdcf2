"""Load a CSV or Parquet table with a label column and either numeric features or one column of text."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError, DataWarning
from reweigh.lab.data.dataset import NOISY_HOLDOUT, TEST, Column, Dataset, Labels, Part
from reweigh.lab.data.source.columns import Table, read, require_columns
from reweigh.lab.data.split import HOLDOUT, Indices, class_names_of, noisy_holdout

Numbers = NDArray[np.float64]


def load(
    path: str | os.PathLike[str],
    label: str = "label",
    text: str | None = None,
    features: Sequence[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    seed: int = 0,
    holdout: float = HOLDOUT,
) -> Dataset:
    """Load the rows of `path` as a data set of standardised features or of texts.

    A feature x becomes (x - mean) / std with the mean and standard deviation of the training part; a column that
    is constant there becomes the difference from that constant. Missing values and features that are not finite numbers
    raise DataError with their lines. The distinct labels, sorted (as numbers if all are integers), are the class names;
    those that are probably not meant as classes cause a `DataWarning` (`label_doubts`).

    Args:
        path: `.csv`, `.tsv` or `.parquet`; see `reweigh.lab.data.source.columns.read`.
        label: the label column.
        text: the text column; all other columns are then ignored.
        features: the feature columns; by default all except the label.
        test: a second file with the same columns; without it a seeded fifth becomes the noisy hold-out.
        seed: the seed of that split.
        holdout: the fraction held out without a test file; 0 keeps all rows for training.
    """
    if text is not None and features is not None:
        raise ValueError("text and features are both passed; omit one of them")
    for name, chosen in (("text", [text]), ("features", features or [])):
        if label in chosen:
            raise ValueError(f"{name} includes the label column {label!r}, which the net is to predict; remove it")
    if test is not None and Path(path).exists() and Path(test).exists() and Path(test).samefile(path):
        raise DataError(f"{test}: is the training table itself; pass other test rows, or none to hold out a fifth")
    tables = [read(Path(file)) for file in (path, test) if file is not None]
    first = tables[0]
    columns = [text] if text is not None else features or [name for name in first.names if name != label]
    if not columns:
        raise DataError(f"{first.path}: no column except the label {label!r}")
    for table in tables:
        require_columns(table, label, *columns)
    class_names = _class_names(first, label)
    for doubt in label_doubts([value.strip() for value in first.strings(label)]):
        warnings.warn(f"{first.path}: column {label!r} has {doubt}", DataWarning, stacklevel=2)
    parts = [_labels(table, label, class_names) for table in tables]
    labels = np.concatenate(parts)
    raw = _texts(tables, text) if text is not None else _matrix(tables, columns)
    if test is None:
        kept, held = noisy_holdout(str(path), labels, seed, holdout)
    else:
        kept, held = np.split(np.arange(len(labels)), [len(parts[0])])
    kind = NOISY_HOLDOUT if test is None else TEST
    scaled = None if isinstance(raw, tuple) else _scales(first.path, columns, raw, kept)
    examples = Part(raw if isinstance(raw, tuple) else standardise(raw, scaled or ()), labels)
    return Dataset(first.path.stem, examples.take(kept), examples.take(held), class_names, holdout=kind, columns=scaled)


def standardise(values: Numbers, columns: Sequence[Column]) -> NDArray[np.float32]:
    """Standardise rows of numbers in float64, and return them in float32.

    >>> standardise(np.array([[1700000001.0]]), [Column("time", 1.7e9, 2.0)])
    array([[0.5]], dtype=float32)
    """
    mean, std = np.array([c.mean for c in columns]), np.array([c.std for c in columns])
    with np.errstate(over="ignore"):  # too large values become infinite, for which `Part` raises DataError
        scaled: NDArray[np.float32] = ((values - mean) / std).astype(np.float32)
    return scaled


def _class_names(table: Table, label: str) -> tuple[str, ...]:
    names = {value.strip() for value in table.strings(label)}
    if len(names) < 2:
        raise DataError(f"{table.path}: column {label!r} holds only {names}; expected two classes or more")
    return class_names_of(names)


def _labels(table: Table, label: str, class_names: tuple[str, ...]) -> Labels:
    number = {name: k for k, name in enumerate(class_names)}
    values = [value.strip() for value in table.strings(label)]
    for row, value in enumerate(values):
        if value not in number:
            raise DataError(f"{table.path}: {table.place(row)}: label {value!r} is not a training class")
    return np.array([number[value] for value in values], dtype=np.int64)


def _texts(tables: Sequence[Table], column: str) -> tuple[str, ...]:
    return tuple(value for table in tables for value in table.strings(column))


def _matrix(tables: Sequence[Table], columns: Sequence[str]) -> Numbers:
    """Return the numbers of the columns, with the rows of all tables."""
    return np.concatenate([np.column_stack([_numbers(table, name) for name in columns]) for table in tables])


def _numbers(table: Table, name: str) -> Numbers:
    try:
        return table.numbers(name)
    except DataError as error:
        hint = "choose a column of texts by text (--text-column), and write categories as numbers"
        raise DataError(f"{error}; {hint}") from None


def _scales(path: Path, columns: Sequence[str], values: Numbers, kept: Indices) -> tuple[Column, ...]:
    """Return mean and standard deviation over the rows `kept`; the deviation of a constant column is 1."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean, std = values[kept].mean(axis=0), values[kept].std(axis=0)
        constant = values[kept].min(axis=0) == values[kept].max(axis=0)  # rounding may leave std > 0
        std = np.where(constant, 1.0, std)
        good = np.isfinite(((values - mean) / std).astype(np.float32)).all(axis=0) & np.isfinite(std)
    for name, fits, spread in zip(columns, good, std, strict=True):
        if not fits:
            how = "too close together" if spread == 0 else "too large"
            raise DataError(f"{path}: column {name!r} has values {how} to standardise")
    return tuple(Column(*column) for column in zip(columns, mean.tolist(), std.tolist(), strict=True))


MISSING = frozenset(("na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "?"))
"""Spellings of a missing value in tables, in lower case."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_MAX_SHOWN = 5


def label_doubts(labels: Sequence[str]) -> list[str]:
    """Return a sentence for every suspicious label: spellings of a missing value, and one number spelt in two ways.

    >>> for doubt in label_doubts(["1", "1", "1.0", "2", "NA"]):
    ...     print(doubt)
    'NA' in 1 row, a common spelling of a missing value: kept as a class; remove these rows if they have no label
    '1' in 2 rows, '1.0' in 1 row, the same number: kept as different classes; spell it in one way if they are one class
    """
    counts = Counter(labels)
    doubts = []
    if missing := [label for label in counts if label.lower() in MISSING]:
        doubts.append(
            f"{_counted(missing, counts)}, a common spelling of a missing value: kept as a class; remove these rows if "
            "they have no label"
        )
    numbers: dict[Decimal, list[str]] = {}
    for label in counts:
        if _NUMBER.fullmatch(label):
            numbers.setdefault(Decimal(label), []).append(label)
    for same in [same for same in numbers.values() if len(same) > 1][:_MAX_SHOWN]:
        doubts.append(
            f"{_counted(same, counts)}, the same number: kept as different classes; spell it in one way if they are "
            "one class"
        )
    return doubts


def _counted(labels: Sequence[str], counts: Counter[str]) -> str:
    return ", ".join(f"{label!r} in {counts[label]:,} row{'s' if counts[label] > 1 else ''}" for label in labels)
