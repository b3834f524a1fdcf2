"""Read CSV, Parquet and Excel tables as named columns; errors name the line of a bad value."""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from types import NoneType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError, DataWarning, require
from reweigh.lab.data.source.text import MAX_BYTES, decode, read_bytes

_MAX_SHOWN = 10
_WORDS = "strings or integers"
_CSV_LIMIT = Lock()
_TEXT = {"string", "large_string", "string_view"}  # names of Arrow types
_READ = {
    *_TEXT,
    *("null", "bool", "halffloat", "float", "double"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_DATES = ("date32", "date64", "timestamp")


class Table(Protocol):
    """Rows of named columns; DataError for a missing or wrong value names its place."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in order."""

    @property
    def decimal_comma(self) -> bool:
        """Whether a comma in a number is a decimal point, as usual where semicolons separate fields."""

    def place(self, row: int) -> str:
        """The place of row number `row` in the file."""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as finite numbers."""

    def strings(self, name: str) -> list[str]:
        """A column as non-empty strings."""

    def texts(self, name: str) -> list[str]:
        """A column as strings, empty for missing values."""

    def values(self, name: str) -> list[Any]:
        """A column as it is stored: strings, and in Parquet and Excel also numbers, dates and None."""


def read(path: Path, max_bytes: int = MAX_BYTES) -> Table:
    """Read a `.csv`, `.tsv`, `.parquet` or `.xlsx` file (the last two with extra `tables`).

    A CSV has a header line and is quoted as in RFC 4180; empty lines are ignored. The separator is the one among comma,
    semicolon, tab and | that occurs most in the header. Text is UTF-8 or UTF-16 with a byte order mark; other text is
    read as Latin-1 with a `DataWarning`. A column without a name, such as the index that pandas writes, is named
    "Unnamed: 0". Of an Excel file the first sheet is read. Columns of a Parquet file that hold neither strings, numbers
    nor dates raise DataError on access.
    """
    readers = {".parquet": _read_parquet, ".xlsx": _read_excel}
    return readers.get(path.suffix.lower(), _read_csv)(path, max_bytes)


def require_columns(table: Table, *names: str) -> None:
    """Raise DataError if a table lacks one of these columns."""
    present = frozenset(table.names)
    for name in names:
        if name not in present:
            close = difflib.get_close_matches(name, table.names, n=1)
            hint = f" (did you mean {close[0]!r:.60}?)" if close else ""
            raise DataError(f"{table.path}: no column {name!r}{hint}; there are {shown(table.names)}")


def shown(names: Iterable[str]) -> str:
    """Return the first names, each shortened, and the number of the others."""
    every = list(names)
    more = f" and {len(every) - _MAX_SHOWN} more" if len(every) > _MAX_SHOWN else ""
    return ", ".join(f"{name!r:.60}" for name in every[:_MAX_SHOWN]) + more


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
    decimal_comma: bool = False

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

    def values(self, name: str) -> list[Any]:
        return list(self.texts(name))


def _number(text: str) -> float:
    """Convert with `float`, except 1_000, which only Python reads as a number; NaN if it fails."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _read_csv(path: Path, max_bytes: int) -> Table:
    text = _decoded(path, max_bytes)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}: line {line}: a zero byte; expected a text file")
    header = next((line for line in text.splitlines() if line.strip()), "")
    unquoted = re.sub(r'"[^"]*"', "", header)
    delimiter = max("\t,;|" if path.suffix.lower() == ".tsv" else ",;\t|", key=unquoted.count)
    records = _records(path, text, delimiter)
    if len(records) < 2:
        raise DataError(f"{path}: {'a header but no rows' if records else 'empty'}")
    names = _header(path, *records[0])
    ragged = [f"line {line} ({len(row)} fields)" for line, row in records if len(row) != len(names)]
    if ragged:
        more = f" and {len(ragged) - _MAX_SHOWN} more" if len(ragged) > _MAX_SHOWN else ""
        raise DataError(f"{path}: the header has {len(names)} fields, but not {', '.join(ragged[:_MAX_SHOWN])}{more}")
    return _Csv(
        path, names, tuple(line for line, _ in records[1:]), tuple(row for _, row in records[1:]), delimiter == ";"
    )


def _decoded(path: Path, max_bytes: int) -> str:
    """Return the text of a file in UTF-8, in UTF-16 with a byte order mark, or else in Latin-1, with a warning."""
    raw = read_bytes(path, max_bytes)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return decode(raw, path, "utf-16")
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        where = f"{path}: line {line} is not UTF-8; the file is read as Latin-1"
        warnings.warn(f"{where} (if accents look wrong, save it as UTF-8)", DataWarning, stacklevel=4)
    try:
        return raw.decode("cp1252")  # Latin-1 as Windows writes it
    except UnicodeDecodeError:
        return raw.decode("latin-1")


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
    names = tuple(name.strip() or f"Unnamed: {k}" for k, name in enumerate(row))
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"{path}: line {line}: column {name!r} occurs twice")
    return names


@dataclass(frozen=True)
class _Typed:
    """A table of a format with types of its own: Parquet or Excel."""

    path: Path
    names: tuple[str, ...]
    columns: dict[str, list[Any]]  # those of strings, numbers and dates
    types: dict[str, str]  # of all
    first: int = 1  # number of the first row
    decimal_comma: bool = False

    def place(self, row: int) -> str:
        return f"row {row + self.first}"

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

    def values(self, name: str) -> list[Any]:
        return self._column(name, "strings, numbers or dates")

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
        chosen = [name for name, kind in types.items() if kind in _READ or kind.startswith(_DATES)]
        leaves = [metadata.schema.column(k).path for k in range(metadata.num_columns)]
        if len(types) < len(fields) or len(set(leaves)) < len(leaves):
            raise DataError(f"{path}: a column name occurs twice: {shown(field.name for field in fields)}")
        size = sum(_size(metadata, k) for k, name in enumerate(leaves) if name in chosen)
        if size > max_bytes:
            raise DataError(f"{path}: {size} bytes unpacked, more than the limit of {max_bytes}")
        # as dictionaries, where equal strings are stored once: otherwise a file of a kilobyte can exhaust memory
        with parquet.ParquetFile(path, read_dictionary=[name for name in chosen if types[name] in _TEXT]) as file:
            table = file.read(columns=chosen)
        text = sum(_text_size(table.column(name)) for name in chosen if types[name] in _TEXT)
        if text > max_bytes:  # one long value in many rows: whoever changes each makes a copy of it
            raise DataError(f"{path}: {text} characters of text, more than the limit of {max_bytes}")
        columns = {name: _values(table.column(name)) for name in chosen}
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise any of Arrow's errors
        raise DataError(f"{path}: not a readable Parquet file: {error}") from error
    if not metadata.num_rows:
        raise DataError(f"{path}: no rows")
    return _Typed(path, tuple(types), columns, types)


def _read_excel(path: Path, max_bytes: int) -> Table:
    excel = require("openpyxl", extra="tables")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with zipfile.ZipFile(path) as pack:
            size = sum(member.file_size for member in pack.infolist())
        if size > max_bytes:
            raise DataError(f"{path}: {size} bytes unpacked, more than the limit of {max_bytes}")
        book = excel.load_workbook(path, read_only=True, data_only=True)
        rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
        book.close()
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise any error of zipfile, its XML parser and openpyxl
        raise DataError(f"{path}: not a readable Excel file: {error}") from error
    while rows and all(value is None for value in rows[-1]):
        rows.pop()
    if len(rows) < 2:
        raise DataError(f"{path}: {'a header but no rows' if rows else 'empty'}")
    names = _header(path, 1, ["" if name is None else str(name) for name in rows[0]])
    padded = [row + [None] * (len(names) - len(row)) for row in rows[1:]]
    columns = {name: [row[k] for row in padded] for k, name in enumerate(names)}
    return _Typed(path, names, columns, {}, first=2)


def _size(metadata: Any, column: int) -> int:
    """Estimate the bytes of a column in memory: eight per value, or the size of its pages if larger."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [(max(group.num_rows, group.column(column).num_values), group.column(column)) for group in groups]
    return sum(max(8 * count, int(chunk.total_uncompressed_size)) for count, chunk in chunks)


def _text_size(column: Any) -> int:
    """Return the characters of all strings of an Arrow column of dictionaries, counted as often as they occur."""
    size = 0
    for chunk in column.chunks:
        lengths = np.array([0 if entry is None else len(entry) for entry in chunk.dictionary.to_pylist()], np.int64)
        size += int(lengths[chunk.indices.drop_null().to_numpy()].sum())
    return size


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
