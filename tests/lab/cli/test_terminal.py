from __future__ import annotations

import io
import sys

import pytest

from reweigh.lab.cli.terminal import Pace, progress


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("it") as show:
        show(1, 100)
        show(10, 100, line="loss 0.5", state="only for terminals")
        show(20, 100, state="only for terminals")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("10/100")
    assert line.endswith("loss 0.5")


def test_silence_is_broken_after_a_while(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 1000, 4))
    monkeypatch.setattr("reweigh.lab.cli.terminal.time.monotonic", lambda: float(next(seconds)))
    with progress("B") as show:
        for i in range(6):
            show(i * 1_000_000, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert len(lines) < 6
    assert all("MB" in line for line in lines)


class Terminal(io.StringIO):
    """A terminal that remembers."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_bar_with_rate_and_time_left_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr("reweigh.lab.cli.terminal.time.monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("it") as show:
        show(100, 1000)
        show(200, 1000, state="loss 0.25")
        show(300, 1000, line="a line [that] stays")
    shown = sys.stderr.getvalue()
    assert "300/1000" in shown
    assert "it/s" in shown
    assert "left" in shown
    assert "loss 0.25" in shown
    assert "a line [that] stays" in shown


def test_a_resumed_run_has_the_pace_of_now() -> None:
    seconds = iter([0.0, 10.0])
    pace = Pace(clock=lambda: next(seconds))
    pace(900, 1000)
    assert pace(950, 1000) == (5.0, 10.0)
