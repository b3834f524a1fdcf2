"""Material that threads gather before its run has its turn."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

from finished import learnt
from reweigh.errors import DataError
from reweigh.lab.run import Speed, execute
from reweigh.lab.run.ahead import Ahead
from reweigh.lab.run.jobs import in_turns
from reweigh.lab.run.material import Material, gather
from reweigh.lab.spec import Run

RUN = Run(data="digits", net="mlp-8", weighting="CCE", iterations=4, batch_size=32, evaluate_every=2, device="cpu")


def test_another_thread_gathers_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by = []

    def noted(run: Run) -> Material:
        by.append((run.seed, threading.current_thread() is threading.main_thread()))
        return gather(run)

    monkeypatch.setattr("reweigh.lab.run.ahead.gather", noted)
    with Ahead(tmp_path) as ahead:
        ahead.begin(RUN)
        ahead.begin(RUN)
        found, other = ahead.material(RUN)(), ahead.material(replace(RUN, seed=1))()
    assert by == [(0, False), (1, False)]
    assert found.data_hash == other.data_hash == gather(RUN).data_hash


def test_what_is_wrong_comes_to_who_asks(tmp_path: Path) -> None:
    with Ahead(tmp_path) as ahead:
        asked = ahead.material(replace(RUN, data=str(tmp_path / "none.npz")))
        with pytest.raises(DataError, match=r"none\.npz"):
            asked()


def test_nothing_is_gathered_for_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(RUN, tmp_path)
    asked = []
    monkeypatch.setattr("reweigh.lab.run.ahead.gather", asked.append)
    with Ahead(tmp_path) as ahead:
        ahead.begin(RUN)
        time.sleep(0.05)
    assert asked == []


def test_runs_in_turns_read_ahead_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is none: where the runs are told to be, but not where they are."""
    runs = {seed: replace(RUN, seed=seed) for seed in range(3)}
    runs[3] = replace(RUN, data=str(tmp_path / "none.npz"))
    alone = [learnt(execute(runs[seed], tmp_path / "alone")) for seed in range(3)]
    monkeypatch.setattr("reweigh.lab.run.jobs.device_of", lambda run: torch.device("cuda"))
    monkeypatch.setattr("reweigh.lab.run.jobs._stream", lambda device: nullcontext)
    monkeypatch.setattr(import_module("reweigh.lab.run.execute"), "gather", None)  # nobody else gathers
    outcomes = in_turns(runs, tmp_path / "runs", 2, lambda n, u: None, lambda: False, Speed(False, False, False))
    assert [learnt(outcomes[seed].folder) for seed in range(3)] == alone
    assert isinstance(outcomes[3].error, DataError)


def test_a_process_ends_while_a_thread_gathers(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from reweigh.lab.run import ahead
from reweigh.lab.spec import Run
ahead.gather = lambda run: time.sleep(60)
with ahead.Ahead(Path(sys.argv[1])) as reading:
    reading.begin(Run(data="digits", net="mlp-8", weighting="CCE"))
print("over")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "over\n"
