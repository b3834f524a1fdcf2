"""Workers killed with -9 at random moments: every trial is done exactly once, and the study stays readable.

4 workers, 100 trials and 10 kills here; REWEIGH_SEARCH_KILL="8 1000 30" for more.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO

import pytest
from optuna.trial import TrialState

from reweigh.lab.search.plan import plan_search
from reweigh.lab.search.storage import open_storage, sqlite_url
from reweigh.lab.search.study import open_study, slots

WORKERS, TRIALS, KILLS = map(int, os.environ.get("REWEIGH_SEARCH_KILL", "4 100 10").split())
BEAT, GRACE = 0.5, 6.0

# A trial that trains nothing; what it finished goes into a file of its own.
PROGRAM = """
import os, sys, time
from reweigh.lab.search.storage import open_storage, silence_optuna
from reweigh.lab.search.study import join_study
from reweigh.lab.search.worker import work

silence_optuna()
study, plan = join_study(open_storage(sys.argv[1]), sys.argv[2])

def objective(run, call):
    time.sleep(0.05)
    call.report(1, run.lr)
    return run.lr

work(study, plan, objective, beat=float(sys.argv[3]), grace=float(sys.argv[4]))
"""


def start(url: str, name: str, said: IO[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, url, name, str(BEAT), str(GRACE)]
    return subprocess.Popen(command, stderr=said)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_trial_is_done_exactly_once_after_kills(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "study.db")
    fields = {"data": "digits", "net": "mlp-32", "weighting": "CCE"}
    plan = plan_search(fields, "lr=0.01..1:log", trials=TRIALS, prune=False)
    study = open_study(plan, open_storage(url))
    rng, killed = random.Random(0), 0
    said = (tmp_path / "said.txt").open("w")
    workers = [start(url, study.study_name, said) for _ in range(WORKERS)]
    try:
        while True:
            time.sleep(rng.uniform(0.3, 1.0))
            found = slots(study)  # readable, whatever has just been killed
            assert len(found) == TRIALS
            if all(slot.is_finished for slot in found):
                break
            for i, worker in enumerate(workers):
                if worker.poll() is not None and worker.returncode != 0:
                    assert worker.returncode == -signal.SIGKILL, Path(said.name).read_text()
                    workers[i] = start(url, study.study_name, said)
            done = sum(slot.is_finished for slot in found)
            # The kills are spread over the whole study, so that there is something left to lose.
            if killed < KILLS and done >= killed * TRIALS * 0.9 / KILLS:
                victim = rng.choice(workers)
                if victim.poll() is None:
                    victim.kill()
                    killed += 1
        for worker in workers:
            assert worker.wait(timeout=60) in (0, -signal.SIGKILL), Path(said.name).read_text()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        said.close()
    assert killed == KILLS
    trials = study.get_trials(deepcopy=False)
    done = Counter(trial.user_attrs["slot"] for trial in trials if trial.state == TrialState.COMPLETE)
    assert done == Counter(range(TRIALS))
    assert not [trial for trial in trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)]
    lost = sum(slot.lost for slot in slots(study))
    assert 0 < lost <= KILLS, "a kill costs at most the trial it hits"
