"""kill -9 at random moments: the finished run is byte-identical to one that was never killed.

50 kills here; `REWEIGH_KILLS=1000 make test-kill` for more.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from finished import contents
from reweigh.lab.record import summarise

KILLS = int(os.environ.get("REWEIGH_KILLS", "50"))
PROGRAM = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
run = Run(data="digits", net="mlp-32", dropout=0.1, weighting="DM(0.5, linear(2, 8))", noise="symmetric", rate=0.4,
          iterations=600, batch_size=50, evaluate_every=40, checkpoint_every=9, record_p=True, seed=int(sys.argv[2]))
print(run.folder_name(), flush=True)
execute(run, Path(sys.argv[1]))
"""


def start(root: Path, seed: int) -> subprocess.Popen[str]:
    """The run in a process of its own, past its imports; its folder's name is the line it has printed."""
    command = [sys.executable, "-c", PROGRAM, str(root), str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_runs_give_identical_results(tmp_path: Path) -> None:
    rng, kills, seed = random.Random(0), 0, 0
    while kills < KILLS:  # a run that ends before enough kills is followed by another
        name, _ = start(tmp_path / "unbroken", seed).communicate()
        folder = tmp_path / "killed" / name.strip()
        while True:
            process = start(tmp_path / "killed", seed)
            assert process.stdout is not None
            process.stdout.readline()
            if kills < KILLS:
                time.sleep(rng.uniform(0.0, 0.45))
                process.send_signal(signal.SIGKILL)
            _, problem = process.communicate()
            if process.returncode != -signal.SIGKILL:
                assert process.returncode == 0, problem
                break
            kills += 1
            if (folder / "run.json").exists():
                assert summarise(folder).state in ("resumable", "done")
        assert contents(folder) == contents(tmp_path / "unbroken" / name.strip())
        seed += 1
