"""Two workers on a real PostgreSQL, which this test starts from Debian's package under a user of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest
from optuna.trial import TrialState

from reweigh.lab.search import search
from reweigh.lab.search.plan import plan_search
from reweigh.lab.search.storage import open_storage
from reweigh.lab.search.study import Slot, open_study, slots

USER = "postgres"
PROGRAM = """
import sys, time
from reweigh.lab.search.storage import open_storage, silence_optuna
from reweigh.lab.search.study import join_study
from reweigh.lab.search.worker import work

silence_optuna()
study, plan = join_study(open_storage(sys.argv[1]), sys.argv[2])

def objective(run, call):
    time.sleep(0.1)
    call.report(1, run.lr)
    return run.lr

work(study, plan, objective, beat=0.5, grace=5)
"""


def binaries() -> Path | None:
    """Where PostgreSQL's programs lie: in Debian not on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    on_path = shutil.which("pg_ctl")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def as_user(*command: str) -> None:
    """Run a command as PostgreSQL wants it: not as root."""
    words = ["runuser", "-u", USER, "--", *command] if os.geteuid() == 0 else list(command)
    subprocess.run(words, check=True, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)


class Server(NamedTuple):
    """A running server: its URL, and a function that stops it, waits and starts it again."""

    url: str
    restart: Callable[[], None]


@pytest.fixture
def server() -> Iterator[Server]:
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'psycopg[binary]')")
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("PostgreSQL refuses to run as root, and there is no runuser here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="reweigh-postgres-"))  # pytest's own folders are closed to other users
    if os.geteuid() == 0:
        shutil.chown(folder, USER, USER)
    data = str(folder / "data")
    try:
        as_user(str(programs / "initdb"), "-D", data, "-U", USER, "-A", "trust", "--no-sync")
        settings = f"-h 127.0.0.1 -p {port} -k {folder} -F"
        control = [str(programs / "pg_ctl"), "-D", data, "-w"]

        def start() -> None:
            as_user(*control, "-l", f"{folder}/log", "-o", settings, "start")

        def restart() -> None:
            as_user(*control, "-m", "fast", "stop")
            time.sleep(1)
            start()

        start()
        try:
            yield Server(f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres", restart)
        finally:
            as_user(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_two_workers_on_postgres_one_of_which_is_killed(server: Server, tmp_path: Path) -> None:
    url = server.url
    fields = {"data": "digits", "net": "mlp-32", "weighting": "CCE"}
    plan = plan_search(fields, "lr=0.01..1:log, momentum={0.5, 0.9}", trials=20, prune=False)
    storage = open_storage(url)
    study = open_study(plan, storage)
    command = [sys.executable, "-c", PROGRAM, url, study.study_name]
    with (tmp_path / "said.txt").open("w") as said:
        workers = [subprocess.Popen(command, stderr=said) for _ in range(2)]
        try:
            while sum(slot.is_finished for slot in slots(study)) < 4:
                time.sleep(0.2)
                assert any(worker.poll() is None for worker in workers), (tmp_path / "said.txt").read_text()
            workers[0].send_signal(signal.SIGKILL)
            workers[0].wait()
            workers[0] = subprocess.Popen(command, stderr=said)
            for worker in workers:
                assert worker.wait(timeout=240) == 0, (tmp_path / "said.txt").read_text()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    trials = study.get_trials()
    finished = [trial.user_attrs["slot"] for trial in trials if trial.state == TrialState.COMPLETE]
    assert Counter(finished) == Counter(range(20))
    assert not [trial for trial in trials if not trial.state.is_finished()]
    storage.engine.dispose()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_search_survives_three_restarts_of_its_database(server: Server, tmp_path: Path) -> None:
    fields = {"data": "digits", "net": "mlp-8", "weighting": "CCE", "iterations": 400, "evaluate_every": 20}
    plan = plan_search(fields, "lr=0.01..0.3:log", trials=8, seeds=(0,))
    done, restarts = [0], 0
    finished = Event()

    def watch(stage: str, found: Sequence[Slot]) -> None:
        done[0] = sum(slot.is_finished for slot in found) + (8 if stage == "final" else 0)

    def restart_under_load() -> None:
        nonlocal restarts
        for count in (1, 3, 5):
            while done[0] < count and not finished.is_set():
                time.sleep(0.05)
            server.restart()
            restarts += 1

    thread = Thread(target=restart_under_load)
    thread.start()
    try:
        outcome = search(
            plan, tmp_path, storage=server.url, workers=2, where={"device": "cpu"}, watch=watch, beat=0.5, grace=20
        )
    finally:
        finished.set()
        thread.join()
    assert restarts == 3
    assert {trial.state for trial in outcome.trials} <= {"done", "pruned"}
    assert [final.seed for final in outcome.finals] == [0]
