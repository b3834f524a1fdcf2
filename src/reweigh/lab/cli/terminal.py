"""Where a command speaks: results on standard output, all else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDE = 200  # columns of a table in a file or pipe, where nothing need be folded


def console(stream: TextIO | None = None) -> Console:
    """A console on a stream (standard output), which prints text as it is: no markup, no colours of its own."""
    from rich.console import Console

    stream = stream or sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def say(sentence: str) -> None:
    """A line on standard error."""
    print(sentence, file=sys.stderr, flush=True)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on standard output; NaN and infinities become null."""
    from reweigh.lab.record.files import jsonable

    print(json.dumps(jsonable(value), allow_nan=False), flush=True)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1, header: bool = True
) -> RenderableType:
    """A table without frills: the first `left` columns are text, the others numbers, set to the right."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=header)
    for i, column in enumerate(columns):
        drawn.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*map(number, row))
    return drawn


def number(value: object) -> str:
    """A value for people: four significant digits, a dash for what is not there.

    >>> number(0.123456), number(1234567), number(None), number("text"), number(5e-7)
    ('0.1235', '1,234,567', '-', 'text', '5e-07')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def can_print(characters: str, stream: TextIO | None = None) -> bool:
    """Whether the stream's encoding has these characters."""
    try:
        characters.encode((stream or sys.stdout).encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
