"""IMDB reviews (aclImdb, Maas et al. 2011): positive or negative.

    aclImdb/
      train/pos  train/neg  train/unsup  test/pos  test/neg      <id>_<rating>.txt, one UTF-8 review each
      train/labeledBow.feat ...                                  the same as word counts, svmlight lines

Ratings are 7 to 10 in pos, 1 to 4 in neg and 0 in unsup. Reviews are in the byte order of their file names, positive
ones first (0_9, 10000_8, 10001_10, ...), as in all derived files.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Labels, Part
from reweigh.lab.data.source.text import decode, read_lines

CLASS_NAMES = ("neg", "pos")
RATINGS = {"pos": range(7, 11), "neg": range(1, 5), "unsup": range(1)}
NAME = re.compile(r"(\d+)_(\d+)\.txt", re.ASCII)
MARKS = re.compile(r'([.",()!?;:])')


def load(root: str | os.PathLike[str]) -> Dataset:
    """Load the labelled reviews as written; class 1 is positive, and positive ones are first."""
    folder = find_root(root)
    return Dataset("imdb", _part(folder / "train"), _part(folder / "test"), CLASS_NAMES)


def load_unlabelled(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Load the reviews of train/unsup."""
    return read_reviews(find_root(root) / "train" / "unsup")


def read_reviews(folder: Path) -> tuple[str, ...]:
    """Return all reviews of a folder pos, neg or unsup, in the byte order of their names.

    Raises DataError for a file with a wrong name or rating, an empty one, and one that is not UTF-8.
    """
    ratings = RATINGS[folder.name]
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
    if not names:
        raise DataError(f"{folder}: no reviews; expected files <id>_<rating>.txt")
    reviews: list[str] = []
    owner: dict[str, str] = {}
    for name in names:
        path = folder / name
        match = NAME.fullmatch(name)
        if match is None:
            raise DataError(f"{path}: expected a name <id>_<rating>.txt")
        if int(match[2]) not in ratings:
            raise DataError(f"{path}: rating {match[2]}; expected {ratings[0]} to {ratings[-1]} in {folder.name}")
        if match[1] in owner:
            raise DataError(f"{path}: the number {match[1]} is also used by {owner[match[1]]}")
        owner[match[1]] = name
        text = decode(_bytes(path), path)
        if not text.strip():
            raise DataError(f"{path}: empty; expected a review")
        reviews.append(text)
    return tuple(reviews)


def normalise(text: str) -> str:
    """Normalise a text as mesnilgr/iclr15 does: lower case, `<br />` to a space, spaces around . " , ( ) ! ? ; :

    Apostrophes stay inside words. `str.split` then gives the words.

    >>> normalise("It's <br />GREAT, really.")
    "it's  great ,  really . "
    """
    return MARKS.sub(r" \1 ", text.lower().replace("<br />", " "))


@dataclass(frozen=True, eq=False)
class Sparse:
    """Rows of an svmlight file: row i has values[k] in column columns[k] for k in bounds[i]:bounds[i + 1]."""

    labels: NDArray[np.float64]
    bounds: Labels
    columns: Labels
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.labels)

    def dense(self, width: int | None = None, first: int = 0) -> NDArray[np.float32]:
        """Return an (N, width) array that starts at column `first` of the file (0 or 1)."""
        last = int(self.columns.max(initial=first)) - first
        width = last + 1 if width is None else width
        if last >= width or self.columns.min(initial=first) < first:
            raise ValueError(f"columns reach from {self.columns.min()} to {last + first}; width is {width}")
        rows = np.zeros((len(self), width), dtype=np.float32)
        rows[np.repeat(np.arange(len(self)), np.diff(self.bounds)), self.columns - first] = self.values
        return rows


def read_svmlight(path: str | os.PathLike[str]) -> Sparse:
    """Read lines `<label> <column>:<value> ...` with increasing columns; `#` starts a comment.

    In labeledBow.feat the label is the rating and a column is a line of imdb.vocab, from 0.
    """
    file = Path(path)
    labels, bounds, columns, values = [], [0], [], []
    for line, text in enumerate(read_lines(file), start=1):
        label, *pairs = text.partition("#")[0].split() or [""]
        labels.append(_number(label, f"{file}: line {line}: label"))
        before = -1
        for pair in pairs:
            column, _, value = pair.partition(":")
            if not (column.isascii() and column.isdigit()) or len(column) > 9 or int(column) <= before:
                raise DataError(f"{file}: line {line}: {pair[:40]!r}; expected <column>:<value>, columns increasing")
            before = int(column)
            columns.append(before)
            values.append(_number(value, f"{file}: line {line}: value of column {column}"))
        bounds.append(len(columns))
    if not labels:
        raise DataError(f"{file}: empty; expected lines <label> <column>:<value> ...")
    return Sparse(
        np.array(labels, dtype=np.float64),
        np.array(bounds, dtype=np.int64),
        np.array(columns, dtype=np.int64),
        np.array(values, dtype=np.float64),
    )


def find_root(root: str | os.PathLike[str]) -> Path:
    """Return the data folder: `root` itself, or aclImdb/ in it."""
    folder = Path(root)
    for candidate in (folder, folder / "aclImdb"):
        if (candidate / "train").is_dir():
            return candidate
    raise DataError(f"{folder}: no train/, nor aclImdb/train/")


def _part(folder: Path) -> Part:
    positive, negative = read_reviews(folder / "pos"), read_reviews(folder / "neg")
    labels = np.repeat(np.array([1, 0], dtype=np.int64), [len(positive), len(negative)])
    return Part(positive + negative, labels)


def _bytes(path: Path) -> bytes:
    """Read a review without checking its size and type first, which is slow for 100,000 small files."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _number(word: str, place: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{place}: {word[:40]!r}; expected a number")
    return value
