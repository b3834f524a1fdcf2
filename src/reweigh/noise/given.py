"""Existing labels, from arrays or from files with one label per example."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reweigh.errors import DataError
from reweigh.noise.corruption import LARGEST_INFERRED, Corruption, Labels, check_labels, kind_text

MAX_BYTES = 2**30
SUFFIXES = (".npy", ".npz", ".txt", ".csv")


def given(
    source: npt.ArrayLike | str | os.PathLike[str],
    clean: npt.ArrayLike | None = None,
    *,
    num_classes: int | None = None,
    key: str | None = None,
) -> Corruption:
    """Use existing labels, from an array or a file (see `read_labels`), and measure them where the truth is known.

    Args:
        source: the labels, or the file.
        clean: the true labels; -1 for an example whose truth is not known, None for all of them.
        num_classes: C; by default the largest label + 1.
        key: the array of an .npz or the column of a .csv.

    Both rates are the measured one.

    >>> given([0, 1, 1, 0], clean=[0, 0, 1, -1]).measured
    0.3333333333333333
    """
    kind = "given()"
    if isinstance(source, str | os.PathLike):
        kind = kind_text("given", file=Path(source).name, key=key)
        labels = read_labels(source, num_classes=num_classes, key=key)
    else:
        labels, _ = check_labels(source, num_classes, name="source")
    truth = np.full(len(labels), -1) if clean is None else np.asarray(clean)
    if truth.shape != labels.shape:
        place = os.fspath(source) if isinstance(source, str | os.PathLike) else "source"
        raise DataError(f"{place}: {len(labels)} labels; expected {truth.size}, one for each example")
    known = truth[truth >= 0]
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    if known.size:
        classes = max(classes, check_labels(known, num_classes, name="clean")[1])
    truth = np.maximum(truth.astype(np.int64), -1)  # in this order: unsigned integers have no -1
    result = Corruption.from_labels(labels, truth, classes, kind, float("nan"), None)
    return replace(result, rate=result.measured)


def read_labels(path: str | os.PathLike[str], *, num_classes: int | None = None, key: str | None = None) -> Labels:
    """Read one label per example from a file.

    .npy  a vector of integers, never unpickled
    .npz  the same under the name `key`, or the only array
    .txt  one integer per line
    .csv  one integer per line, a header that is not a number is allowed; `key` names the column of a file with several

    Empty lines at the end are ignored.
    """
    file = Path(path)
    if file.suffix not in SUFFIXES:
        raise DataError(f"{file}: suffix {file.suffix!r}; expected one of {', '.join(SUFFIXES)}")
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    limit = LARGEST_INFERRED if num_classes is None else num_classes
    if file.suffix in (".npy", ".npz"):
        return _from_array(file, raw, key, limit)
    try:
        text = raw.decode("utf-8-sig").rstrip()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: byte {error.start} is not UTF-8; expected text") from error
    lines = _csv_column(file, text, key) if file.suffix == ".csv" else _lines(text)
    labels = [_label(file, number, word, limit) for number, word in lines]
    if not labels:
        raise DataError(f"{file}: no labels; expected one per line")
    return np.array(labels, dtype=np.int64)


def _from_array(file: Path, raw: bytes, key: str | None, limit: int) -> Labels:
    try:
        loaded = np.load(io.BytesIO(raw), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            array = loaded
        else:
            name = key if key is not None else _only(file, loaded.files)
            if name not in loaded.files:
                raise DataError(f"{file}: no array {name!r}; it has {', '.join(loaded.files)}")
            if (size := sum(member.file_size for member in loaded.zip.infolist())) > MAX_BYTES:
                raise DataError(f"{file}: unpacks to {size} bytes, more than the limit of {MAX_BYTES}")
            array = np.asarray(loaded[name])
    except DataError:
        raise
    except Exception as error:  # a broken archive or header can raise nearly anything
        raise DataError(f"{file}: not a plain numpy file of integers: {error}") from error
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise DataError(f"{file}: {array.dtype} of shape {array.shape}; expected a vector of integers")
    bad = np.flatnonzero((array < 0) | (array >= limit))
    if bad.size:
        raise DataError(f"{file}: record {bad[0]}: label {array[bad[0]]}; expected 0 to {limit - 1}")
    return array.astype(np.int64)


def _only(file: Path, names: list[str]) -> str:
    if len(names) != 1:
        raise DataError(f"{file}: holds {', '.join(names) or 'no arrays'}; choose one with key=...")
    return names[0]


def _lines(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.splitlines(), start=1))


def _csv_column(file: Path, text: str, key: str | None) -> list[tuple[int, str]]:
    """Return (line number, word) for the label column, without the header."""
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise DataError(f"{file}: line {reader.line_num}: {error}") from error
    if not rows:
        return []
    header = [name.strip() for name in rows[0][1]]
    if key is not None:
        if key not in header:
            raise DataError(f"{file}: line 1: no column {key!r}; it has {', '.join(header)}")
        column, rows = header.index(key), rows[1:]
    elif len(header) == 1:
        column = 0
        if not _is_number(header[0]):
            rows = rows[1:]
    else:
        raise DataError(f"{file}: line 1: {len(header)} columns; choose one with key=...")
    for number, row in rows:
        if len(row) != len(header):
            raise DataError(f"{file}: line {number}: {len(row)} fields; expected {len(header)}")
    return [(number, row[column]) for number, row in rows]


def _label(file: Path, number: int, word: str, limit: int) -> int:
    if not _is_integer(word):
        raise DataError(f"{file}: line {number}: {word.strip()[:40]!r}; expected an integer label")
    value = int(word)
    if not 0 <= value < limit:
        raise DataError(f"{file}: line {number}: label {value}; expected 0 to {limit - 1}")
    return value


def _is_integer(word: str) -> bool:
    """Accept ASCII digits with an optional sign; int() alone accepts 1_000 and digits of other scripts."""
    digits = word.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20


def _is_number(word: str) -> bool:
    """Return whether a word is a number, even if not a label: 1.0 and +3 are not headers."""
    try:
        float(word)
    except ValueError:
        return False
    return True
