"""The list of suspects as a CSV file.

suspects.csv    one line per training example, most suspicious first, UTF-8, strings in quotes

index           row in the training part, counted from 0
source          a file, the line of a table and the beginning of its text, or the row as a string
given           the given label
suggested       the label that the model suggests; the given one where it agrees
score           in [0, 1], higher is more suspicious
issue           true if the label is classified as wrong, else false
p_given, p_suggested   the model's probability of each label
how             how the score was computed
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.csv_text import csv_text, original
from reweigh.lab.data.source.columns import Table, read, require_columns
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.labels.suspects import Suspects

COLUMNS = ("index", "source", "given", "suggested", "score", "issue", "p_given", "p_suggested", "how")


def suspects_to_csv(suspects: Suspects) -> str:
    """Format suspects as the content of suspects.csv; numbers keep all their digits."""
    names = suspects.class_names
    rows = [
        (
            int(suspects.index[i]),
            suspects.sources[i],
            names[suspects.given[i]],
            names[suspects.suggested[i]],
            float(suspects.score[i]),
            "true" if suspects.issue[i] else "false",
            float(suspects.p_given[i]),
            float(suspects.p_suggested[i]),
            suspects.description,
        )
        for i in suspects.ranked().tolist()
    ]
    return csv_text(COLUMNS, rows, quoted=True)


def write_csv(path: str | os.PathLike[str], suspects: Suspects) -> None:
    """Write suspects.csv atomically; its folder is created if needed."""
    path, content = Path(path), suspects_to_csv(suspects).encode()
    make_folder(path.parent)
    replace_file(path, lambda file: file.write(content))


def read_csv(path: str | os.PathLike[str], class_names: Sequence[str] | None = None) -> Suspects:
    """Read the suspects of a file, in its order; rows may be missing or sorted differently.

    Args:
        path: the file.
        class_names: class id -> name; by default the names in the file, sorted.

    Raises:
        DataError: a column is missing, a value or class is invalid, or a row occurs twice; the message names the line.
    """
    table = read(Path(path))
    require_columns(table, *COLUMNS)
    # a class name may be empty
    given, suggested = ([original(name) for name in table.texts(column)] for column in ("given", "suggested"))
    names = tuple(class_names) if class_names is not None else tuple(sorted({*given, *suggested}))
    return Suspects(
        index=_rows(table),
        given=_ids(table, "given", given, names),
        suggested=_ids(table, "suggested", suggested, names),
        score=_fractions(table, "score"),
        issue=_booleans(table, "issue"),
        p_given=_fractions(table, "p_given"),
        p_suggested=_fractions(table, "p_suggested"),
        class_names=names,
        sources=tuple(map(original, table.strings("source"))),
        description=original(table.strings("how")[0]),
        noise=None,
    )


def _rows(table: Table) -> NDArray[np.int64]:
    numbers = table.numbers("index")
    _refuse(table, "index", "an integer, 0 or more", (numbers < 0) | (numbers != np.floor(numbers)), numbers)
    index = numbers.astype(np.int64)
    repeated = np.ones(len(index), bool)
    repeated[np.unique(index, return_index=True)[1]] = False
    _refuse(table, "index", "unique", repeated, index)
    return index


def _ids(table: Table, column: str, values: list[str], names: tuple[str, ...]) -> NDArray[np.int64]:
    known = {name: k for k, name in enumerate(names)}
    ids = np.array([known.get(value, -1) for value in values], dtype=np.int64)
    _refuse(table, column, f"one of {len(names)} class names", ids < 0, values)
    return ids


def _fractions(table: Table, column: str) -> NDArray[np.float64]:
    values = table.numbers(column)
    _refuse(table, column, "a number from 0 to 1", (values < 0) | (values > 1), values)
    return values


def _booleans(table: Table, column: str) -> NDArray[np.bool_]:
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
