"""Ranks die and hang; the run ends as if they had not. 20 kills here, REWEIGH_RANK_KILLS=200 for more."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from reweigh.train.supervisor import FOLDER, FRUITLESS, Ended, heartbeat, main, supervise

KILLS = int(os.environ.get("REWEIGH_RANK_KILLS", "20"))

TRAIN = """
import sys
from pathlib import Path
import torch
from reweigh.run import execute
from reweigh.spec import Run
torch.set_num_threads(1)
run = Run(data="digits", net="mlp-16", weighting="DM(0.5, linear(2, 8))", noise="symmetric", rate=0.4,
          iterations=int(sys.argv[2]), batch_size=33, evaluate_every=200, checkpoint_every=20, device="cpu")
execute(run, Path(sys.argv[1]))
"""


def test_a_heartbeat_moves_even_when_the_step_does_not(tmp_path: Path) -> None:
    beat = heartbeat({FOLDER: str(tmp_path), "RANK": "3"}, interval=0.0)
    beat(7)
    first = (tmp_path / "3").read_text()
    beat(7)
    assert first.split()[0] == (tmp_path / "3").read_text().split()[0] == "7"
    assert first != (tmp_path / "3").read_text()
    heartbeat({})(1)  # nobody watches: nothing happens


def test_success_and_hopeless_failures_end_at_once(tmp_path: Path) -> None:
    assert supervise(["-c", "pass"], 2) == Ended(0, 1, ())
    assert supervise(["-c", "raise SystemExit(3)"], 2) == Ended(3, 1, ())
    assert main(["--ranks", "1", "--", "-c", "raise SystemExit(2)"]) == 2


def test_a_failure_is_followed_by_a_fresh_start(tmp_path: Path) -> None:
    program = f"""
import os, pathlib
path = pathlib.Path({str(tmp_path)!r}) / f"{{os.environ['RANK']}} {{os.environ['MASTER_PORT']}}"
path.touch()
done = len(list(path.parent.glob(os.environ["RANK"] + " *")))
if os.environ["RANK"] == "1" and done < 3:
    os.kill(os.getpid(), 9)
"""
    told: list[str] = []
    ended = supervise(["-c", program], 2, tell=told.append)
    assert ended.code == 0
    assert ended.launches == 3
    assert all("rank 1 was killed by signal 9" in why for why in ended.failures)
    assert all("starting again" in line for line in told)


def test_a_hang_is_a_failure_and_getting_nowhere_is_the_end(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, time
pathlib.Path(os.environ["{FOLDER}"], os.environ["RANK"]).write_text("5 1")
time.sleep(600)
"""
    ended = supervise(["-c", program], 1, patience=0.3, patience_to_start=30.0)
    assert ended.code == 1
    assert ended.launches == FRUITLESS + 1
    assert "no progress" in ended.failures[0]


def test_sigterm_is_passed_on(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
pathlib.Path({str(tmp_path)!r}, os.environ["RANK"]).touch()
time.sleep(600)
"""

    def launched(processes: list[subprocess.Popen[bytes]]) -> None:
        def terminate() -> None:
            while len(list(tmp_path.iterdir())) < 2:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=terminate).start()

    assert supervise(["-c", program], 2, launched=launched) == Ended(4, 1, ())


def kill_randomly(rng: random.Random, most: int, longest: float) -> tuple[list[int], list[float], object]:
    """A callback that kills one rank of every launch after a while, `most` times in all, and notes the moments."""
    killed: list[int] = []
    moments: list[float] = []

    def launched(processes: list[subprocess.Popen[bytes]]) -> None:
        moments.append(time.monotonic())
        if len(killed) < most:
            rank, delay = rng.randrange(len(processes)), rng.uniform(0.0, longest)

            def kill() -> None:
                time.sleep(delay)
                if processes[rank].poll() is None:
                    killed.append(rank)
                    processes[rank].kill()

            threading.Thread(target=kill, daemon=True).start()

    return killed, moments, launched


def weights(root: Path) -> bytes:
    (path,) = root.glob("*/model/model.safetensors")
    return path.read_bytes()


@pytest.mark.slow
def test_killed_ranks_leave_the_same_weights(tmp_path: Path) -> None:
    iterations = str(KILLS * 200)
    ended = supervise(["-c", TRAIN, str(tmp_path / "unbroken"), iterations], 2)
    assert ended == Ended(0, 1, ())
    killed, moments, launched = kill_randomly(random.Random(0), KILLS, 9.0)
    ended = supervise(["-c", TRAIN, str(tmp_path / "killed"), iterations], 2, launched=launched)  # type: ignore[arg-type]
    assert ended.code == 0
    assert len(killed) >= min(KILLS, ended.launches - 1)
    assert weights(tmp_path / "killed") == weights(tmp_path / "unbroken")
    assert all(later - earlier < 60 for earlier, later in pairwise(moments))
