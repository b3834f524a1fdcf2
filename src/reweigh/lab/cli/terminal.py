"""Output of a command: results on standard output; progress and messages on standard error."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
WIDE = 200  # columns of a table in a file or pipe, where nothing needs folding
LINE_INTERVAL = 10.0  # seconds: the longest time without a plain progress line
BAR_INTERVAL = 0.05  # seconds between two updates of a progress bar


def console(stream: TextIO | None = None) -> Console:
    """Return a console on a stream (standard output) that prints text unchanged: no markup, no highlighting."""
    from rich.console import Console

    stream = stream or sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def printable(text: str) -> str:
    """Escape control characters, with which a file name or a record could control the terminal.

    >>> print(printable("runs/a\x1b[2J: no such folder"))
    runs/a\\x1b[2J: no such folder
    """
    return text.translate(_ESCAPED)


def echo(text: object = "") -> None:
    """Print a text on standard output, without control characters."""
    print(printable(str(text)))


def print_stderr(line: str) -> None:
    """Print a line on standard error, without control characters."""
    print(printable(line), file=sys.stderr, flush=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output; NaN and infinities become null."""
    from reweigh.lab.record.files import jsonable

    print(json.dumps(jsonable(value), allow_nan=False), flush=True)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1, header: bool = True
) -> RenderableType:
    """Return a plain table: the first `left` columns are aligned left, the others right."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=header)
    for i, column in enumerate(columns):
        drawn.add_column(printable(column), justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*map(format_value, row))
    return drawn


def format_value(value: object) -> str:
    """Format a value for people: four significant digits, a dash for None.

    >>> format_value(0.123456), format_value(1234567), format_value(None), format_value("text"), format_value(5e-7)
    ('0.1235', '1,234,567', '-', 'text', '5e-07')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def can_print(characters: str, stream: TextIO | None = None) -> bool:
    """Return whether the stream's encoding has these characters."""
    try:
        characters.encode((stream or sys.stdout).encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


class ShowProgress(Protocol):
    """Show how much is done; `line` stays on the screen, `state` until the next call and only on a terminal."""

    def __call__(self, done: int, total: int | None, *, line: str | None = None, state: str = "") -> None: ...


@contextmanager
def progress(unit: str) -> Iterator[ShowProgress]:
    """Show progress, counted in `unit` ("it", "B", ...): a bar on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        with _bar(unit) as show:
            yield show
    else:
        yield _lines(unit)


@contextmanager
def _bar(unit: str) -> Iterator[ShowProgress]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("amount", "speed", "state")]
    bar = Progress(columns[0], BarColumn(), *columns[1:], console=console(sys.stderr))
    pace, last = Pace(), 0.0
    task = bar.add_task("", total=None, amount="", speed="", state="")

    def show(done: int, total: int | None, *, line: str | None = None, state: str = "") -> None:
        nonlocal last
        if line is None and not state and done != total and time.monotonic() - last < BAR_INTERVAL:
            return
        last = time.monotonic()
        fields = {"amount": format_amount(done, total, unit), "speed": format_speed(pace(done, total), unit)}
        if state:
            fields["state"] = printable(state)
        bar.update(task, completed=done, total=total, **fields)  # type: ignore[arg-type]  # mypy takes fields for options
        if line is not None:
            bar.console.print(f"{format_amount(done, total, unit)}  {printable(line)}")

    with bar:
        yield show


def _lines(unit: str) -> ShowProgress:
    pace, last = Pace(), math.inf

    def show(done: int, total: int | None, *, line: str | None = None, state: str = "") -> None:
        nonlocal last
        speed, now = pace(done, total), time.monotonic()
        last = min(last, now)  # the first interval starts with the first call
        if line is not None or now - last > LINE_INTERVAL:
            last = now
            print_stderr("  ".join(filter(None, (format_amount(done, total, unit), format_speed(speed, unit), line))))

    return show


class Speed(NamedTuple):
    """Units per second and seconds left; None where unknown."""

    rate: float | None
    left: float | None


class Pace:
    """Rate and time left, measured from the first call.

    >>> seconds = iter([0.0, 2.0])
    >>> pace = Pace(clock=lambda: next(seconds))
    >>> pace(100, 400), pace(200, 400)
    (Speed(rate=None, left=None), Speed(rate=50.0, left=4.0))
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None

    def __call__(self, done: int, total: int | None) -> Speed:
        now = self._clock()
        if self._first is None:
            self._first = now, done
        since, start = self._first
        if now <= since or done <= start:
            return Speed(None, None)
        rate = (done - start) / (now - since)
        return Speed(rate, None if total is None else max(0, total - done) / rate)


def format_amount(done: int, total: int | None, unit: str) -> str:
    """Format the amount done, and the total where it is known.

    >>> format_amount(300, 1000, "it"), format_amount(3_200_000, None, "B")
    ('300/1000', '3.2 MB')
    """
    if unit != "B":
        return f"{done}/{total}" if total is not None else str(done)
    return f"{done / 1e6:.1f}/{total / 1e6:.1f} MB" if total is not None else f"{done / 1e6:.1f} MB"


def format_speed(speed: Speed, unit: str) -> str:
    """Format rate and time left.

    >>> format_speed(Speed(50.0, 3725.0), "it"), format_speed(Speed(None, None), "it")
    ('50.0 it/s, 1:02:05 left', '')
    """
    if speed.rate is None:
        return ""
    rate = f"{speed.rate / 1e6:.1f} MB/s" if unit == "B" else f"{speed.rate:.{1 if speed.rate < 100 else 0}f} {unit}/s"
    if speed.left is None:
        return rate
    minutes, seconds = divmod(round(speed.left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{rate}, {hours}:{minutes:02}:{seconds:02} left"
