"""The list of suspects: every training example with its labels and score, as arrays and as a CSV file.

suspects.csv    one line per training example, the most suspicious first, UTF-8, texts in quotes

index           row in the training part, counted from 0
source          what it is: a file, the line in a table and the beginning of a text, or the row as a word
given           the label it has
suggested       the label it should perhaps have; the same where the model agrees
score           in [0, 1], higher is more suspicious
issue           true where the label is called wrong, else false
p_given, p_suggested   the model's probability of either
how             how the score was found
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.source.columns import Table, read, require_columns
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.labels.suspects import Suspects

COLUMNS = ("index", "source", "given", "suggested", "score", "issue", "p_given", "p_suggested", "how")


def to_csv(suspects: Suspects) -> str:
    """The file's content; numbers are written so that reading gives back the same bits."""
    text = io.StringIO(newline="")
    # Texts are quoted all: older versions of the csv module leave a lone carriage return bare otherwise.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    text.write(",".join(COLUMNS) + "\n")
    names = suspects.class_names
    for i in suspects.ranked().tolist():
        writer.writerow(
            [
                int(suspects.index[i]),
                suspects.sources[i],
                names[suspects.given[i]],
                names[suspects.suggested[i]],
                float(suspects.score[i]),
                "true" if suspects.issue[i] else "false",
                float(suspects.p_given[i]),
                float(suspects.p_suggested[i]),
                suspects.method,
            ]
        )
    return text.getvalue()


def write_csv(path: str | os.PathLike[str], suspects: Suspects) -> None:
    """Write `path` anew, as a whole or not at all; its folder is made where it is missing."""
    path, content = Path(path), to_csv(suspects).encode()
    make_folder(path.parent)
    replace_file(path, lambda file: file.write(content))


def read_csv(path: str | os.PathLike[str], class_names: Sequence[str] | None = None) -> Suspects:
    """The suspects in a file, in its order; rows may have been left out or sorted in another way.

    Args:
        path: the file.
        class_names: class id -> name; without them ids count the names in the file, sorted.

    Raises:
        DataError: a column is missing, a number is none, a class is not known, or a row is there twice; with its line.
    """
    table = read(Path(path))
    require_columns(table, *COLUMNS)
    given, suggested = table.texts("given"), table.texts("suggested")  # a class may be called nothing
    names = tuple(class_names) if class_names is not None else tuple(sorted({*given, *suggested}))
    return Suspects(
        index=_rows(table),
        given=_ids(table, "given", given, names),
        suggested=_ids(table, "suggested", suggested, names),
        score=_shares(table, "score"),
        issue=_truths(table, "issue"),
        p_given=_shares(table, "p_given"),
        p_suggested=_shares(table, "p_suggested"),
        class_names=names,
        sources=tuple(table.strings("source")),
        method=table.strings("how")[0],
        noise=None,
    )


def _rows(table: Table) -> NDArray[np.int64]:
    numbers = table.numbers("index")
    _refuse(table, "index", "a whole number, 0 or more", (numbers < 0) | (numbers != np.floor(numbers)), numbers)
    index = numbers.astype(np.int64)
    repeated = np.ones(len(index), bool)
    repeated[np.unique(index, return_index=True)[1]] = False
    _refuse(table, "index", "every row once", repeated, index)
    return index


def _ids(table: Table, column: str, values: list[str], names: tuple[str, ...]) -> NDArray[np.int64]:
    known = {name: k for k, name in enumerate(names)}
    ids = np.array([known.get(value, -1) for value in values], dtype=np.int64)
    _refuse(table, column, f"one of {len(names)} class names", ids < 0, values)
    return ids


def _shares(table: Table, column: str) -> NDArray[np.float64]:
    values = table.numbers(column)
    _refuse(table, column, "a number from 0 to 1", (values < 0) | (values > 1), values)
    return values


def _truths(table: Table, column: str) -> NDArray[np.bool_]:
    values = [value.lower() for value in table.strings(column)]
    _refuse(table, column, "true or false", np.array([v not in ("true", "false") for v in values]), values)
    return np.array([value == "true" for value in values])


def _refuse(
    table: Table, column: str, expected: str, bad: NDArray[np.bool_], values: Sequence[object] | object
) -> None:
    if bad.any():
        row = int(bad.argmax())
        value = values[row] if isinstance(values, list | np.ndarray) else values
        raise DataError(f"{table.path}, {table.place(row)}: {column} must be {expected}, not {str(value)!r:.60}")
