"""Progress on standard error: a bar with rate and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from reweigh.lab.cli.terminal import console, say

QUIET = 10.0  # seconds without a plain line after which one is due
BLINK = 0.05  # seconds between two looks of a bar


class Tell(Protocol):
    """How far something is; `line` is worth keeping, `state` only until the next, and only on a terminal."""

    def __call__(self, done: int, total: int | None, *, line: str | None = None, state: str = "") -> None: ...


class Pace:
    """Rate and time left since the first call, whatever was done before.

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


class Speed(NamedTuple):
    """Units per second, and seconds left; None where nothing is known yet."""

    rate: float | None
    left: float | None


@contextmanager
def progress(unit: str) -> Iterator[Tell]:
    """Tell the user how far something is, counted in `unit` ("it", "B", ...)."""
    if sys.stderr.isatty():
        with _bar(unit) as tell:
            yield tell
    else:
        yield _lines(unit)


@contextmanager
def _bar(unit: str) -> Iterator[Tell]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("amount", "speed", "state")]
    bar = Progress(columns[0], BarColumn(), *columns[1:], console=console(sys.stderr))
    pace, last = Pace(), 0.0
    task = bar.add_task("", total=None, amount="", speed="", state="")

    def tell(done: int, total: int | None, *, line: str | None = None, state: str = "") -> None:
        nonlocal last
        if line is None and not state and done != total and time.monotonic() - last < BLINK:
            return
        last = time.monotonic()
        fields = {"amount": amount(done, total, unit), "speed": speed(pace(done, total), unit)}
        if state:
            fields["state"] = state
        bar.update(task, completed=done, total=total, **fields)  # type: ignore[arg-type]  # mypy takes fields for options
        if line is not None:
            bar.console.print(f"{amount(done, total, unit)}  {line}")

    with bar:
        yield tell


def _lines(unit: str) -> Tell:
    pace, last = Pace(), math.inf

    def tell(done: int, total: int | None, *, line: str | None = None, state: str = "") -> None:
        nonlocal last
        found, now = pace(done, total), time.monotonic()
        last = min(last, now)  # silence begins with the first call
        if line is not None or now - last > QUIET:
            last = now
            say("  ".join(filter(None, (amount(done, total, unit), speed(found, unit), line))))

    return tell


def amount(done: int, total: int | None, unit: str) -> str:
    """How much of how much.

    >>> amount(300, 1000, "it"), amount(3_200_000, None, "B")
    ('300/1000', '3.2 MB')
    """
    if unit != "B":
        return f"{done}/{total}" if total is not None else str(done)
    return f"{done / 1e6:.1f}/{total / 1e6:.1f} MB" if total is not None else f"{done / 1e6:.1f} MB"


def speed(found: Speed, unit: str) -> str:
    """Rate and time left in words.

    >>> speed(Speed(50.0, 3725.0), "it"), speed(Speed(None, None), "it")
    ('50.0 it/s, 1:02:05 left', '')
    """
    if found.rate is None:
        return ""
    rate = f"{found.rate / 1e6:.1f} MB/s" if unit == "B" else f"{found.rate:.{1 if found.rate < 100 else 0}f} {unit}/s"
    if found.left is None:
        return rate
    minutes, seconds = divmod(round(found.left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{rate}, {hours}:{minutes:02}:{seconds:02} left"
