"""CSV for people: a cell that a spreadsheet would run as a formula gets an apostrophe in front, which readers remove.

Such a cell begins with `=`, `+`, `-`, `@`, a tab or a carriage return, and is no number. A class name or a file name in
somebody else's data may be one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # also behind apostrophes, so that `original` is exact
_QUOTED = re.compile(r'[,"\r\n]')
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], *, quoted: bool = False) -> str:
    """Return the content of a CSV file; if `quoted`, all strings below the header are in quotes."""
    lines = [
        ",".join(_cell(name, False) for name in columns),
        *(",".join(_cell(c, quoted) for c in row) for row in rows),
    ]
    return "".join(f"{line}\n" for line in lines)


def _cell(value: object, quoted: bool) -> str:
    """Format a cell; the csv module of Python before 3.13 does not quote a lone carriage return."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = neutral(value)
    return '"{}"'.format(text.replace('"', '""')) if quoted or _QUOTED.search(text) else text


def neutral(text: str) -> str:
    """Return the text of a cell that no spreadsheet runs; `original` is the inverse.

    >>> neutral("=1+1"), neutral("cat"), neutral("-0.5"), neutral("'=1")
    ("'=1+1", 'cat', '-0.5', "''=1")
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def original(cell: str) -> str:
    """Return the text that `neutral` was called with.

    >>> original("'=1+1"), original("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
