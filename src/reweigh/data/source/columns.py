"""CSV and Parquet tables as named columns of numbers or strings, with the line of every bad value."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reweigh.data.source.text import MAX_BYTES, read_text
from reweigh.errors import DataError, require

_SHOWN = 10


class Table(Protocol):
    """Rows of named columns; both readers refuse a missing or wrong value with its place."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""

    def place(self, row: int) -> str:
        """Where row number `row` stands in the file."""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as finite numbers."""

    def strings(self, name: str) -> list[str]:
        """A column as strings, none of them empty."""


def read(path: Path, max_bytes: int = MAX_BYTES) -> Table:
    """A `.csv`, `.tsv` or `.parquet` file (the last with extra `tables`).

    A CSV is UTF-8 with a header line, separated by commas (`.tsv`: by tabs), quoted as RFC 4180 says; empty
    lines are passed over.
    """
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path, max_bytes)
    return _read_csv(path, "\t" if path.suffix.lower() == ".tsv" else ",", max_bytes)


def _refuse(table: Table, name: str, expected: str, bad: Iterable[tuple[int, object]]) -> None:
    """Raise when `bad` names any (row, value), showing the first few."""
    found = list(bad)
    if found:
        shown = ", ".join(f"{table.place(row)} ({value!r:.40})" for row, value in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise DataError(f"{table.path}: column {name!r} must hold {expected}: {shown}{more}")


@dataclass(frozen=True)
class _Csv:
    path: Path
    names: tuple[str, ...]
    lines: tuple[int, ...]
    rows: tuple[list[str], ...]

    def place(self, row: int) -> str:
        return f"line {self.lines[row]}"

    def strings(self, name: str) -> list[str]:
        k = self.names.index(name)
        values = [row[k] for row in self.rows]
        _refuse(self, name, "a value", ((i, value) for i, value in enumerate(values) if not value.strip()))
        return values

    def numbers(self, name: str) -> NDArray[np.float64]:
        k = self.names.index(name)
        values = np.array([_number(row[k]) for row in self.rows], dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        _refuse(self, name, "finite numbers", ((int(i), self.rows[i][k]) for i in bad))
        return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _read_csv(path: Path, delimiter: str, max_bytes: int) -> Table:
    text = read_text(path, max_bytes=max_bytes)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}: line {line}: a zero byte; this is not a text file")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: tuple[str, ...] | None = None
    lines: list[int] = []
    rows: list[list[str]] = []
    while True:
        line = reader.line_num + 1  # where the record begins: a quoted field may hold line ends
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise DataError(f"{path}: line {line}: {error}") from error
        if not row:
            continue
        if names is None:
            names = _header(path, line, row)
        elif len(row) != len(names):
            raise DataError(f"{path}: line {line}: {len(row)} fields; the header has {len(names)}")
        else:
            lines.append(line)
            rows.append(row)
    if names is None or not rows:
        raise DataError(f"{path}: {'empty' if names is None else 'a header but no rows'}")
    return _Csv(path, names, tuple(lines), tuple(rows))


def _header(path: Path, line: int, row: list[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in row)
    for name in names:
        if not name:
            raise DataError(f"{path}: line {line}: a column without a name")
        if names.count(name) > 1:
            raise DataError(f"{path}: line {line}: column {name!r} occurs twice")
    return names


@dataclass(frozen=True)
class _Parquet:
    path: Path
    names: tuple[str, ...]
    columns: dict[str, list[Any]]

    def place(self, row: int) -> str:
        return f"row {row + 1}"

    def strings(self, name: str) -> list[str]:
        values = self.columns[name]
        ok = (str, int, bool)
        bad = ((i, v) for i, v in enumerate(values) if not isinstance(v, ok) or not str(v).strip())
        _refuse(self, name, "strings or integers", bad)
        return [str(value) for value in values]

    def numbers(self, name: str) -> NDArray[np.float64]:
        values = self.columns[name]
        bad = [(i, v) for i, v in enumerate(values) if not isinstance(v, (int, float)) or not math.isfinite(v)]
        _refuse(self, name, "finite numbers", bad)
        return np.array(values, dtype=np.float64)


def _read_parquet(path: Path, max_bytes: int) -> Table:
    parquet = require("pyarrow.parquet", extra="tables")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with parquet.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            size = sum(file.metadata.row_group(i).total_byte_size for i in groups)
            if size > max_bytes:
                raise DataError(f"{path}: {size} bytes unpacked, more than the limit of {max_bytes}")
            table = file.read()
        names = tuple(str(name) for name in table.column_names)
        columns = {name: table.column(k).to_pylist() for k, name in enumerate(names)}
    except DataError:
        raise
    except Exception as error:  # Arrow has its own family of errors, and a broken file can raise any of them
        raise DataError(f"{path}: not a readable Parquet file: {error}") from error
    if len(columns) != len(names):
        raise DataError(f"{path}: a column name occurs twice: {', '.join(names)}")
    if not table.num_rows:
        raise DataError(f"{path}: no rows")
    return _Parquet(path, names, columns)
