"""Several runs at a time give the results of each alone, also if others fail or stop."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from finished import learnt
from reweigh.lab.batches import Batch
from reweigh.lab.record import summarise
from reweigh.lab.run import Interrupted, Speed, Update, execute, execute_many
from reweigh.lab.run.jobs import Outcome, run_in_sequence, run_in_threads
from reweigh.lab.run.material import Material, gather
from reweigh.lab.spec import Run
from reweigh.lab.train.step import EagerStep

RUN = Run(
    data="digits",
    net="mlp-16",
    weighting="DM(0.5, linear(2, 8))",
    noise="symmetric",
    rate=0.4,
    iterations=40,
    batch_size=32,
    evaluate_every=20,
    device="cpu",
)
RUNS = [replace(RUN, seed=seed) for seed in range(3)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    root = tmp_path_factory.mktemp("alone")
    return [learnt(execute(run, root)) for run in RUNS]


def test_short_runs_of_one_net_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dict[tuple[str, str], int]()

    def for_run(self: Speed, run: Run, device: torch.device, images: int = 0) -> Speed:
        if images:
            asked[run.net, run.precision] = images
        return Speed(False, False, False)

    monkeypatch.setattr(Speed, "for_run", for_run)
    runs = [RUN, replace(RUN, seed=1), replace(RUN, net="mlp-8"), replace(RUN, precision="bf16")]
    run_in_sequence(dict(enumerate(runs)), tmp_path, lambda n, u: None, lambda: False, Speed())
    one = RUN.iterations * RUN.batch_size
    assert asked == {(RUN.net, "fp32"): 2 * one, ("mlp-8", "fp32"): one, (RUN.net, "bf16"): one}


def test_processes_give_the_results_of_each_run_alone(tmp_path: Path, alone: list[dict[str, bytes]]) -> None:
    told: list[tuple[int, Update]] = []
    outcomes = execute_many(RUNS, tmp_path, jobs=2, watch=lambda number, update: told.append((number, update)))
    assert [outcome.run for outcome in outcomes] == RUNS
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert [learnt(outcome.folder) for outcome in outcomes] == alone
    rows = [(number, update.step) for number, update in told if update.row]
    assert sorted(rows) == [(number, step) for number in range(3) for step in (20, 40)]


def in_threads(
    runs: list[Run],
    root: Path,
    jobs: int,
    watch: Callable[[int, Update], None] = lambda number, update: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """As on a GPU, but on the CPU."""
    outcomes = run_in_threads(dict(enumerate(runs)), root, jobs, watch, should_stop, Speed())
    return [outcomes[number] for number in range(len(runs))]


def test_threads_give_the_results_of_each_run_alone(tmp_path: Path, alone: list[dict[str, bytes]]) -> None:
    told: list[tuple[int, Update, bool]] = []

    def watch(number: int, update: Update) -> None:
        told.append((number, update, threading.current_thread() is threading.main_thread()))

    outcomes = in_threads(RUNS, tmp_path, 3, watch)
    assert [outcome.run for outcome in outcomes] == RUNS
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert [learnt(outcome.folder) for outcome in outcomes] == alone
    assert all(is_main for _, _, is_main in told)
    for number in range(3):
        steps = [update.step for n, update, _ in told if n == number]
        assert steps == sorted(steps)
        assert [update.step for n, update, _ in told if n == number and update.row] == [20, 40]


def test_threads_share_no_random_state_default_or_mode(tmp_path: Path) -> None:
    """Dropout draws from the process's random state; bfloat16, a second net and evaluation change other state."""
    changes: list[dict[str, Any]] = [
        {"dropout": 0.4},
        {"dropout": 0.4, "seed": 1},
        {"precision": "bf16"},
        {"weighting": None, "method": "MDYRH(warm_up=1)", "precision": "bf16"},
        {"weighting": None, "method": "CoTeaching(0.4, warm_up=1)", "dropout": 0.2},
        {"sampler": "balanced", "optimiser": "adam", "lr": 1e-3},
    ]
    runs = [replace(RUN, **({"iterations": 80, "evaluate_every": 5} | change)) for change in changes]
    single = [learnt(execute(run, tmp_path / "alone")) for run in runs]
    state, filters = torch.get_rng_state(), warnings.filters[:]
    outcomes = in_threads(runs, tmp_path / "together", len(runs))
    assert [outcome.error for outcome in outcomes] == [None] * len(runs)
    assert [learnt(outcome.folder) for outcome in outcomes] == single
    assert torch.equal(torch.get_rng_state(), state)
    assert warnings.filters == filters


def test_threads_on_a_gpu_have_a_stream_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: list[dict[str, bytes]]
) -> None:
    """The runs are on the CPU, and the GPU is a fake."""
    streams, used = iter(range(2)), list[tuple[int, object]]()
    monkeypatch.setattr("reweigh.lab.run.jobs.device_of", lambda run: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: next(streams))
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: used.append((threading.get_ident(), stream)))
    outcomes = execute_many(RUNS, tmp_path, jobs=2)
    assert [learnt(outcome.folder) for outcome in outcomes] == alone
    assert len({thread for thread, _ in used}) == len({stream for _, stream in used}) == len(used) > 0
    assert threading.get_ident() not in {thread for thread, _ in used}


def test_captured_steps_and_evaluations_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that carries its work out anew at every replay, without the lock that eager work needs."""

    class Rerun:
        def __init__(self, work: Callable[[], None]) -> None:
            work()
            self.work, self.is_fresh = work, True

        def replay(self) -> None:
            if not self.is_fresh:  # capturing executes nothing, but this has
                self.work()
            self.is_fresh = False
            replays.append(1)

    replays = list[int]()
    runs = [replace(run, weighting="DM(0.5, 8)", schedule="step(0.1, at=[0.5])") for run in RUNS]
    single = [learnt(execute(run, tmp_path / "alone")) for run in runs]
    module = import_module("reweigh.lab.run.execute")
    monkeypatch.setattr(module, "usable_speed", lambda eager, speed, obstacle: (Speed(True, False, False), None))
    monkeypatch.setattr("reweigh.lab.train.captured.Graph", Rerun)
    outcomes = in_threads(runs, tmp_path / "together", 3)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert len(replays) > 3 * 37  # all but three iterations of each run, and evaluations
    assert [learnt(outcome.folder) for outcome in outcomes] == single


def test_an_error_of_the_watcher_ends_all_threads_with_a_checkpoint(tmp_path: Path) -> None:
    def watch(number: int, update: Update) -> None:
        if update.step:
            raise KeyboardInterrupt

    runs = [replace(RUN, seed=seed, iterations=100_000, evaluate_every=50_000) for seed in range(3)]
    with pytest.raises(KeyboardInterrupt):
        in_threads(runs, tmp_path, 2, watch)
    assert len(list(tmp_path.glob("*/checkpoint.pt"))) == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_data_are_gathered_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, most = [0], [0]

    def noted(run: Run) -> Material:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        time.sleep(0.02)
        material = gather(run)
        at_work[0] -= 1
        return material

    monkeypatch.setattr(import_module("reweigh.lab.run.execute"), "gather", noted)
    outcomes = in_threads([replace(run, iterations=2, evaluate_every=2) for run in RUNS], tmp_path, 3)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert most == [1]


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path, alone: list[dict[str, bytes]]) -> None:
    bad = replace(RUN, data="digit")
    runs = [RUNS[0], bad, RUNS[1]]
    for number, outcomes in enumerate(
        (
            execute_many(runs, tmp_path / "0", jobs=3),
            execute_many(runs, tmp_path / "1", jobs=1),
            in_threads(runs, tmp_path / "2", 3),
            in_threads(runs, tmp_path / "3", 1),
        )
    ):
        done = {outcome.run: outcome for outcome in outcomes}
        assert "did you mean 'digits'" in str(done[bad].error), number
        assert isinstance(done[bad].error, ValueError)
        assert learnt(done[RUNS[0]].folder) == alone[0]
        assert learnt(done[RUNS[1]].folder) == alone[1]


@pytest.mark.parametrize("run", [execute_many, lambda runs, root: in_threads(runs, root, 1)], ids=["one", "threads"])
def test_a_run_that_fails_frees_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[list[Run], Path], list[Outcome]]
) -> None:
    nets = list["weakref.ref[nn.Module]"]()
    alive = list[bool]()

    def learn(self: EagerStep, batch: Batch, step: int) -> Tensor:
        if not nets:
            nets.append(weakref.ref(self.method.trainable))
            try:
                raise RuntimeError("cannot be captured")
            except RuntimeError:
                raise torch.OutOfMemoryError("out of memory")  # noqa: B904 - as it comes, with its context
        alive.append(nets[0]() is not None)
        return torch.tensor(0.0)

    monkeypatch.setattr(EagerStep, "learn", learn)
    outcomes = run(RUNS[:2], tmp_path)
    assert str(outcomes[0].error) == "out of memory"
    assert outcomes[1].error is None
    assert not any(alive)


@pytest.mark.parametrize("how", ["processes", "threads", "one"])
def test_a_request_to_stop_reaches_all_and_they_resume(tmp_path: Path, alone: list[dict[str, bytes]], how: str) -> None:
    seen = [0]

    def watch(number: int, update: Update) -> None:
        seen[0] += update.row is not None

    def stop() -> bool:
        return seen[0] >= 2

    if how == "threads":
        outcomes = in_threads(RUNS, tmp_path, 2, watch, stop)
    else:
        outcomes = execute_many(RUNS, tmp_path, jobs=2 if how == "processes" else 1, watch=watch, should_stop=stop)
    assert all(isinstance(outcome.error, Interrupted | None) for outcome in outcomes)
    assert any(outcome.error is not None for outcome in outcomes)
    again = execute_many(RUNS, tmp_path, jobs=2)
    assert [learnt(outcome.folder) for outcome in again] == alone


def test_a_killed_process_is_reported(tmp_path: Path) -> None:
    def watch(number: int, update: Update) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    runs = [replace(RUN, iterations=20_000, evaluate_every=10_000)]
    outcomes = execute_many(runs, tmp_path, jobs=2, watch=watch)
    assert "ended with code -9" in str(outcomes[0].error)
    assert summarise(outcomes[0].folder).state == "resumable"


def test_one_killed_within_a_message_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recv(self: Connection) -> None:
        for child in multiprocessing.active_children():
            child.kill()
        raise OSError("got end of file during message")

    monkeypatch.setattr(Connection, "recv", recv)
    (outcome,) = execute_many([replace(RUN, iterations=20_000, evaluate_every=10_000)], tmp_path, jobs=2)
    assert "ended with code -9" in str(outcome.error)


def test_sigterm_of_the_parent_leaves_checkpoints(tmp_path: Path) -> None:
    program = """
import signal, sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from reweigh.lab.run import execute_many
from reweigh.lab.spec import Run
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
run = Run(**eval(sys.argv[2]))
if __name__ == "__main__":
    runs = [replace(run, seed=seed, iterations=100_000, evaluate_every=50_000) for seed in range(2)]
    watch = lambda number, update: print(number, flush=True)
    outcomes = execute_many(runs, Path(sys.argv[1]), jobs=2, watch=watch, should_stop=lambda: bool(stopped))
    print(*(type(outcome.error).__name__ for outcome in outcomes))
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    command = [sys.executable, str(path), str(tmp_path / "runs"), repr(RUN.to_mapping())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = set()
        while started != {"0", "1"}:
            started.add(process.stdout.readline().strip())
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert output.split()[-2:] == ["Interrupted", "Interrupted"]
    assert len(list((tmp_path / "runs").glob("*/checkpoint.pt"))) == 2


SCRIPT = """
import sys
from pathlib import Path
from reweigh.lab.run import execute_many
from reweigh.lab.spec import Run

runs = [Run(data="digits", net="linear", weighting="CCE", iterations=1, device="cpu", seed=s) for s in (0, 1)]
for outcome in execute_many(runs, Path(sys.argv[1]), jobs=2):
    print(outcome.error)
"""


def test_a_script_without_a_guard_fails_with_advice(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('must do so under `if __name__ == "__main__":`') == 2


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs must be 1 or more, not 0"):
        execute_many(RUNS, tmp_path, jobs=0)
    with pytest.raises(ValueError, match="is given twice"):
        execute_many([RUN, RUN], tmp_path)
    assert execute_many([], tmp_path) == []


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_a_gpu(folder: Path, **changed: Any) -> list[Run]:
    rng = np.random.default_rng(0)
    np.savez(folder / "images.npz", x=rng.integers(0, 255, (400, 32, 32, 3), dtype=np.uint8), y=np.arange(400) % 4)
    changed |= {"device": "cuda", "deterministic": True, "net": "resnet20", "data": str(folder / "images.npz")}
    return [replace(run, **changed) for run in RUNS]


@GPU
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_jobs_on_a_gpu_give_the_results_of_each_alone(tmp_path: Path, precision: str) -> None:
    runs = on_a_gpu(tmp_path, precision=precision)
    single = [learnt(execute(run, tmp_path / "alone")) for run in runs]
    outcomes = execute_many(runs, tmp_path / "together", jobs=3)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert [learnt(outcome.folder) for outcome in outcomes] == single


@GPU
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_jobs_on_a_gpu_resume_exactly(tmp_path: Path, precision: str) -> None:
    plain, *others = on_a_gpu(tmp_path, precision=precision)
    methods = ("ELR(lam=1)", "CoTeaching(0.4, warm_up=2)")
    taught = [replace(run, weighting=None, method=name) for run, name in zip(others, methods, strict=True)]
    runs = [plain, *taught]
    single = [learnt(execute(run, tmp_path / "alone")) for run in runs]
    for stop in (10, 25):
        seen = [0]

        def watch(number: int, update: Update, seen: list[int] = seen) -> None:
            seen[0] = max(seen[0], update.step)

        def stop_now(seen: list[int] = seen, stop: int = stop) -> bool:
            return seen[0] >= stop

        stopped = execute_many(runs, tmp_path / "together", jobs=3, watch=watch, should_stop=stop_now)
        assert [type(outcome.error) for outcome in stopped] == [Interrupted] * 3
    outcomes = execute_many(runs, tmp_path / "together", jobs=3)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert [learnt(outcome.folder) for outcome in outcomes] == single
