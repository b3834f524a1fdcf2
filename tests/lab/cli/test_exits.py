"""Exit codes, messages of errors, and clean stops on Ctrl-C and SIGTERM."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reweigh.errors import DataError, MissingExtraError
from reweigh.lab.cli.exits import ExitError, Stop, exit_for
from reweigh.lab.record import RecordError, read_rows, summarise


def test_the_first_signal_stops_and_a_second_ctrl_c_interrupts(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert "again to stop at once" in capfd.readouterr().err
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


def test_sigterm_never_interrupts() -> None:
    with Stop() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal == signal.SIGTERM
        signal.raise_signal(signal.SIGINT)  # the first one received decides
        assert stop.signal == signal.SIGTERM


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 4), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_a_stopped_run_can_be_resumed(reweigh, tmp_path: Path, number: signal.Signals, code: int) -> None:
    fields = ["--data", "digits", "--net", "mlp-8", "--weighting", "CCE", "--device", "cpu"]
    length = ["--iterations", "400", "--evaluate-every", "50", "--lr", "0.05"]
    line = [sys.executable, "-m", "reweigh", "train", *fields, *length, "--runs", str(tmp_path)]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("50/400")  # it has begun
        process.send_signal(number)
        output = process.stderr.read()
        assert process.wait() == code
    assert "to resume: reweigh resume" in output
    assert "Traceback" not in output
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
def test_a_command_of_several_runs_is_resumed_by_itself(
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
        patched.setattr("reweigh.lab.cli.exits.Stop.__call__", lambda self: True)  # Ctrl-C in the first iteration
        ended = reweigh(command, *line)
    assert ended.code == 130
    assert "; run the same command to resume" in ended.stderr
    assert "reweigh resume" not in ended.stderr
    if command != "demo":  # which is slow
        assert (again := reweigh(command, *line)).code == 0, again.stderr
        assert "resuming at iteration 1" in again.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ExitError(4, "stopped"), 4, "stopped"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (DataError("a.csv: empty"), 3, "a.csv: empty"),
        (ValueError("lam is -1"), 2, "lam is -1"),
        (MissingExtraError("no pyarrow"), 1, "no pyarrow"),
        (RecordError("runs/a is finished"), 1, "runs/a is finished"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), 1, "a/b: No space left on device"),
        (MemoryError("buffer"), 1, "not enough memory: buffer"),
        *(
            (RuntimeError(f"{text}\nframe #0"), 1, f"not enough memory; try a smaller batch or net: {text}")
            for text in (
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes.",
                "CUDA error: out of memory",
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            )
        ),
    ],
)
def test_expected_errors_have_an_exit_code_and_a_message(error: BaseException, code: int, message: str) -> None:
    assert exit_for(error) == (code, message)


@pytest.mark.parametrize("error", [BrokenPipeError(), RuntimeError("a bug"), AssertionError(), SystemExit(3)])
def test_unexpected_errors_keep_their_traceback(error: BaseException) -> None:
    assert exit_for(error) is None


def test_out_of_device_memory_has_a_message() -> None:
    import torch

    found = exit_for(torch.OutOfMemoryError("tried to allocate 2 GiB"))
    assert found is not None
    assert found.code == 1
    assert "smaller batch" in found.message
