"""Ctrl-C and SIGTERM: in this process, and in one of its own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reweigh.lab.cli.stop import Stop
from reweigh.lab.record import read_rows, summarise


def test_the_first_signal_asks_and_a_second_ctrl_c_interrupts(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "again stops at once" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_in_the_middle_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raw(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            if not stop():
                signal.raise_signal(signal.SIGINT)
            return len(bytes(data))  # type: ignore[call-overload]  # a buffer

    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Raw()), line_buffering=True))
    with Stop() as stop:
        print("a line", file=sys.stderr, flush=True)
        assert stop()


def test_sigterm_only_asks() -> None:
    with Stop() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal == signal.SIGTERM
        signal.raise_signal(signal.SIGINT)  # the first one that came decides
        assert stop.signal == signal.SIGTERM


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 4), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_a_stopped_run_can_go_on(reweigh, tmp_path: Path, number: signal.Signals, code: int) -> None:
    fields = ["--data", "digits", "--net", "mlp-8", "--weighting", "CCE", "--device", "cpu"]
    length = ["--iterations", "400", "--evaluate-every", "50"]
    line = [sys.executable, "-m", "reweigh", "train", *fields, *length, "--runs", str(tmp_path)]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("50/400")  # it has begun
        process.send_signal(number)
        said = process.stderr.read()
        assert process.wait() == code
    assert "to go on: reweigh resume" in said
    assert "Traceback" not in said
    (folder,) = tmp_path.iterdir()
    assert summarise(folder).state == "resumable"
    stopped = read_rows(folder)

    ended = reweigh("resume", folder)
    assert ended.code == 0
    assert "resuming at iteration" in ended.stderr
    rows = read_rows(folder)
    assert [row["step"] for row in rows] == list(range(50, 401, 50))
    assert rows[: len(stopped)] == stopped


@pytest.mark.parametrize("command", ["suspects", "correct", "demo"])
def test_what_is_more_than_a_run_goes_on_by_its_own_command(
    reweigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text("a,label\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(20)))
    Path("decisions.csv").write_text("index,given,decision,label\n0,x,drop,x\n")
    small = ["--net", "linear", "--iterations", "20", "--batch-size", "8", "--device", "cpu"]
    line = {
        "suspects": ["mine.csv", *small, "--folds", "2", "-o", "suspects.csv"],
        "correct": ["mine.csv", *small, "--decisions", "decisions.csv", "-o", "new", "--retrain"],
        "demo": ["--seeds", "1", "--output", "demo"],
    }[command]
    with monkeypatch.context() as patched:
        patched.setattr("reweigh.lab.cli.stop.Stop.__call__", lambda self: True)  # Ctrl-C in the first iteration
        ended = reweigh(command, *line)
    assert ended.code == 130
    assert "; the same command goes on from there" in ended.stderr
    assert "resume" not in ended.stderr
    if command != "demo":  # which takes its time
        assert (again := reweigh(command, *line)).code == 0, again.stderr
        assert "resuming at iteration 1" in again.stderr
