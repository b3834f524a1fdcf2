"""Read CSV and Parquet tables as named columns of numbers or strings; errors name the line of a bad value."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from types import NoneType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError, require
from reweigh.lab.data.source.text import MAX_BYTES, read_text

_MAX_SHOWN = 10
_WORDS = "strings or integers"
_CSV_LIMIT = Lock()
_TEXT = {"string", "large_string", "string_view"}  # names of Arrow types
_READ = {
    *_TEXT,
    *("null", "bool", "halffloat", "float", "double"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


class Table(Protocol):
    """Rows of named columns; DataError for a missing or wrong value names its place."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""

    def place(self, row: int) -> str:
        """The place of row number `row` in the file."""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as finite numbers."""

    def strings(self, name: str) -> list[str]:
        """A column as non-empty strings."""

    def texts(self, name: str) -> list[str]:
        """A column as strings, empty for missing values."""


def read(path: Path, max_bytes: int = MAX_BYTES) -> Table:
    """Read a `.csv`, `.tsv` or `.parquet` file (the last with extra `tables`).

    A CSV is UTF-8 with a header line, separated by commas (`.tsv`: by tabs) and quoted as in RFC 4180; empty lines are
    ignored. Columns of a Parquet file that hold neither strings nor numbers raise DataError on access.
    """
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path, max_bytes)
    return _read_csv(path, "\t" if path.suffix.lower() == ".tsv" else ",", max_bytes)


def require_columns(table: Table, *names: str) -> None:
    """Raise DataError if a table lacks one of these columns."""
    present = frozenset(table.names)
    for name in names:
        if name not in present:
            if other := _other_separator(table.names):
                raise DataError(f"{table.path}: no column {name!r}; {other}")
            close = difflib.get_close_matches(name, table.names, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise DataError(f"{table.path}: no column {name!r}{hint}; there are {', '.join(map(repr, table.names))}")


def _refuse(table: Table, name: str, expected: str, bad: Iterable[tuple[int, object]]) -> None:
    """Raise DataError if there is any bad (row, value), showing the first few."""
    wrong = list(bad)
    if wrong:
        shown = ", ".join(f"{table.place(row)} ({value!r:.40})" for row, value in wrong[:_MAX_SHOWN])
        more = f" and {len(wrong) - _MAX_SHOWN} more" if len(wrong) > _MAX_SHOWN else ""
        raise DataError(f"{table.path}: column {name!r} must hold {expected}: {shown}{more}")


@dataclass(frozen=True)
class _Csv:
    path: Path
    names: tuple[str, ...]
    lines: tuple[int, ...]
    rows: tuple[list[str], ...]

    @cached_property
    def columns(self) -> dict[str, int]:
        """Name -> index in a row; a dict, as tables may have tens of thousands of columns."""
        return {name: k for k, name in enumerate(self.names)}

    def place(self, row: int) -> str:
        return f"line {self.lines[row]}"

    def strings(self, name: str) -> list[str]:
        values = self.texts(name)
        _refuse(self, name, "a value", ((i, value) for i, value in enumerate(values) if not value.strip()))
        return values

    def texts(self, name: str) -> list[str]:
        k = self.columns[name]
        return [row[k] for row in self.rows]

    def numbers(self, name: str) -> NDArray[np.float64]:
        k = self.columns[name]
        values = np.array([_number(row[k]) for row in self.rows], dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        _refuse(self, name, "finite numbers", ((int(i), self.rows[i][k]) for i in bad))
        return values


def _number(text: str) -> float:
    """Convert with `float`, except 1_000, which only Python reads as a number; NaN if it fails."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _read_csv(path: Path, delimiter: str, max_bytes: int) -> Table:
    text = read_text(path, max_bytes=max_bytes)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}: line {line}: a zero byte; expected a text file")
    records = _records(path, text, delimiter)
    if len(records) < 2:
        raise DataError(f"{path}: {'a header but no rows' if records else 'empty'}")
    names = _header(path, *records[0])
    for line, row in records:
        if len(row) != len(names):
            other = f"; {hint}" if (hint := _other_separator(names)) else ""
            raise DataError(f"{path}: line {line}: {len(row)} fields; the header has {len(names)}{other}")
    return _Csv(path, names, tuple(line for line, _ in records[1:]), tuple(row for _, row in records[1:]))


def _other_separator(names: Sequence[str]) -> str | None:
    """Return a hint if the header seems to be separated by something else than commas."""
    for mark in ";\t|":
        if len(names) == 1 and mark in names[0]:
            return f"fields seem to be separated by {mark!r}; expected commas (or tabs, in a .tsv file)"
    return None


def _records(path: Path, text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the first line and the fields of every non-empty record."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records: list[tuple[int, list[str]]] = []
    with _long_fields(len(text)):
        while True:
            line = reader.line_num + 1  # a quoted field may contain newlines
            try:
                row = next(reader)
            except StopIteration:
                return records
            except csv.Error as error:
                raise DataError(f"{path}: line {line}: {error}") from error
            if row:
                records.append((line, row))


@contextmanager
def _long_fields(limit: int) -> Iterator[None]:
    """Allow fields of up to `limit` characters; the csv module has one limit (131,072) for the process."""
    with _CSV_LIMIT:
        before = csv.field_size_limit(limit)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _header(path: Path, line: int, row: list[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in row)
    for name, count in Counter(names).items():
        if not name:
            raise DataError(f"{path}: line {line}: a column without a name")
        if count > 1:
            raise DataError(f"{path}: line {line}: column {name!r} occurs twice")
    return names


@dataclass(frozen=True)
class _Parquet:
    path: Path
    names: tuple[str, ...]
    columns: dict[str, list[Any]]  # those of strings and numbers
    types: dict[str, str]  # of all

    def place(self, row: int) -> str:
        return f"row {row + 1}"

    def strings(self, name: str) -> list[str]:
        bad = ((i, v) for i, v in enumerate(self._column(name, _WORDS)) if v is None or not str(v).strip())
        _refuse(self, name, _WORDS, bad)
        return self.texts(name)

    def texts(self, name: str) -> list[str]:
        values = self._column(name, _WORDS)
        bad = ((i, v) for i, v in enumerate(values) if not isinstance(v, (str, int, bool, NoneType)))
        _refuse(self, name, _WORDS, bad)
        return ["" if value is None else str(value) for value in values]

    def numbers(self, name: str) -> NDArray[np.float64]:
        values = self._column(name, "finite numbers")
        bad = [(i, v) for i, v in enumerate(values) if not isinstance(v, (int, float)) or not math.isfinite(v)]
        _refuse(self, name, "finite numbers", bad)
        return np.array(values, dtype=np.float64)

    def _column(self, name: str, expected: str) -> list[Any]:
        if name not in self.columns:
            raise DataError(f"{self.path}: column {name!r} must hold {expected}, not {self.types[name]}")
        return self.columns[name]


def _read_parquet(path: Path, max_bytes: int) -> Table:
    arrow, parquet = require("pyarrow", extra="tables"), require("pyarrow.parquet", extra="tables")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with parquet.ParquetFile(path) as file:
            fields, metadata = list(file.schema_arrow), file.metadata
        value_types = (
            field.type.value_type if arrow.types.is_dictionary(field.type) else field.type for field in fields
        )
        types = {field.name: str(kind) for field, kind in zip(fields, value_types, strict=True)}
        chosen = [name for name, kind in types.items() if kind in _READ]
        leaves = [metadata.schema.column(k).path for k in range(metadata.num_columns)]
        if len(types) < len(fields) or len(set(leaves)) < len(leaves):
            raise DataError(f"{path}: a column name occurs twice: {', '.join(field.name for field in fields)}")
        size = sum(_size(metadata, k) for k, name in enumerate(leaves) if types.get(name) in _READ)
        if size > max_bytes:
            raise DataError(f"{path}: {size} bytes unpacked, more than the limit of {max_bytes}")
        # as dictionaries, where equal strings are stored once: otherwise a file of a kilobyte can exhaust memory
        with parquet.ParquetFile(path, read_dictionary=[name for name in chosen if types[name] in _TEXT]) as file:
            table = file.read(columns=chosen)
        columns = {name: _values(table.column(name)) for name in chosen}
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise any of Arrow's errors
        raise DataError(f"{path}: not a readable Parquet file: {error}") from error
    if not metadata.num_rows:
        raise DataError(f"{path}: no rows")
    return _Parquet(path, tuple(types), columns, types)


def _size(metadata: Any, column: int) -> int:
    """Estimate the bytes of a column in memory: eight per value, or the size of its pages if larger."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [(max(group.num_rows, group.column(column).num_values), group.column(column)) for group in groups]
    return sum(max(8 * count, int(chunk.total_uncompressed_size)) for count, chunk in chunks)


def _values(column: Any) -> list[Any]:
    """Convert an Arrow column to Python objects, sharing the entries of dictionaries."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            entries = chunk.dictionary.to_pylist()
            values += [None if i is None else entries[i] for i in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values
