"""Ranks die and hang; the run gives identical results. 20 kills here, REWEIGH_RANK_KILLS=200 for more."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from reweigh.lab.train.supervisor import FOLDER, SupervisorResult, heartbeat, main, supervise

KILLS = int(os.environ.get("REWEIGH_RANK_KILLS", "20"))

TRAIN = """
import sys
from pathlib import Path
import torch
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
torch.set_num_threads(1)
run = Run(data="digits", net="mlp-16", weighting="DM(0.5, linear(2, 8))", noise="symmetric", rate=0.4,
          iterations=600, batch_size=33, evaluate_every=200, checkpoint_every=20, device="cpu", seed=int(sys.argv[2]))
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
    assert supervise(["-c", "pass"], 2) == SupervisorResult(0, 1, ())
    assert supervise(["-c", "raise SystemExit(3)"], 2) == SupervisorResult(3, 1, ())
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
    ended = supervise(["-c", program], 2, log=told.append)
    assert ended.code == 0
    assert ended.launches == 3
    assert all("rank 1 was killed by signal 9" in why for why in ended.failures)
    assert all("restarting" in line for line in told)


def test_folders_of_killed_supervisors_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    module, sleep = ["-m", "reweigh.lab.train.supervisor", "--ranks", "1", "--", "-c"], "import time; time.sleep(60)"
    commands = [[sys.executable, *module, sleep] for _ in range(2)]
    killed, working = (subprocess.Popen(command, start_new_session=True) for command in commands)
    try:
        while len(folders := set(tmp_path.iterdir())) < 2 or not all((folder / ".lock").exists() for folder in folders):
            time.sleep(0.02)
        killed.kill()
        killed.wait()
        assert supervise(["-c", "pass"], 1).code == 0
        (left,) = tmp_path.iterdir()
        assert left in folders, "the folder of the one that works stays"
    finally:
        for process in (killed, working):
            os.killpg(process.pid, signal.SIGKILL)  # with its rank
        working.wait()


def test_a_hang_is_a_failure_and_getting_nowhere_is_the_end(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, time
pathlib.Path(os.environ["{FOLDER}"], os.environ["RANK"]).write_text("5 1")
time.sleep(600)
"""
    ended = supervise(["-c", program], 1, patience=0.3, startup_patience=30.0, max_failures=2)
    assert ended.code == 1
    assert ended.launches == 3
    assert "no progress" in ended.failures[0]


def test_a_rank_that_waits_for_another_does_not_hang(tmp_path: Path) -> None:
    """As all ranks wait while the first evaluates, which may take longer than anybody's patience."""
    program = f"""
import os, pathlib, time
sign, done = pathlib.Path(os.environ["{FOLDER}"], os.environ["RANK"]), pathlib.Path({str(tmp_path / "done")!r})
count = 0
while not done.exists():
    if os.environ["RANK"] == "0" or count == 0:
        sign.write_text(f"5 {{count}}")
    count += 1
    time.sleep(0.1)
    if os.environ["RANK"] == "0" and count == 30:
        done.touch()
"""
    assert supervise(["-c", program], 2, patience=1.0, max_failures=1) == SupervisorResult(0, 1, ())


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

    assert supervise(["-c", program], 2, launched=launched) == SupervisorResult(4, 1, ())


class Killer:
    """Kills one rank of every launch: now while it starts, now soon after it has written a checkpoint."""

    def __init__(self, rng: random.Random, root: Path, most: int) -> None:
        self.rng, self.root, self.most = rng, root, most
        self.kills = 0
        self.longest = 0.0  # seconds from a kill to the next launch

    def __call__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        if self.kills:
            self.longest = max(self.longest, time.monotonic() - self.last)
        if self.kills < self.most:
            victim = self.rng.choice(processes)
            how = (self._while_starting, self._while_training)[self.rng.random() < 0.6]
            threading.Thread(target=how, args=(victim,), daemon=True).start()

    def _while_starting(self, victim: subprocess.Popen[bytes]) -> None:
        self._kill(victim, self.rng.uniform(0.0, 5.0))

    def _while_training(self, victim: subprocess.Popen[bytes]) -> None:
        before = self._saved()
        while victim.poll() is None and self._saved() == before:
            time.sleep(0.01)
        self._kill(victim, self.rng.uniform(0.0, 0.5))

    def _saved(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in self.root.glob("*/checkpoint.pt")]

    def _kill(self, victim: subprocess.Popen[bytes], after: float) -> None:
        time.sleep(after)
        if victim.poll() is None:
            self.kills, self.last = self.kills + 1, time.monotonic()
            victim.kill()


def weights(root: Path) -> bytes:
    (path,) = root.glob("*/model/model.safetensors")
    return path.read_bytes()


@pytest.mark.slow
def test_killed_ranks_leave_the_same_weights(tmp_path: Path) -> None:
    rng, kills, seed = random.Random(0), 0, 0
    while kills < KILLS:  # a run that ends before enough kills is followed by another
        plain, killed = tmp_path / f"plain {seed}", tmp_path / f"killed {seed}"
        assert supervise(["-c", TRAIN, str(plain), str(seed)], 2) == SupervisorResult(0, 1, ())
        killer = Killer(rng, killed, KILLS - kills)
        ended = supervise(["-c", TRAIN, str(killed), str(seed)], 2, max_failures=100, launched=killer)
        assert ended.code == 0
        assert weights(killed) == weights(plain)
        assert killer.longest < 60
        kills, seed = kills + killer.kills, seed + 1
