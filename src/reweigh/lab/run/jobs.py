"""Several runs at a time: as processes on the CPU, as threads with a CUDA stream each on a GPU.

Each run gives the results it would give alone, bit for bit where its kernels are deterministic and it is not compiled.
A run that fails does not stop the others; a request to stop reaches all, and each writes its checkpoint.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from reweigh.errors import DataWarning, show_warnings
from reweigh.lab.run.execute import Interrupted, Update, execute, folder_of, train_run
from reweigh.lab.run.machine import device_of, machine, switches_of
from reweigh.lab.spec import Run
from reweigh.lab.train.captured import Speed
from reweigh.lab.train.distributed import Ranks

UPDATE_INTERVAL = 0.1  # seconds between updates of a thread or process that have neither row nor note
POLL_INTERVAL = 0.05  # seconds between two calls of `should_stop` where no update comes


class Outcome(NamedTuple):
    """How a run ended: done (no error), stopped on request (`Interrupted`), or failed."""

    run: Run
    folder: Path
    error: Exception | None


Watch = Callable[[int, Update], None]


def execute_many(
    runs: Sequence[Run],
    root: Path,
    *,
    jobs: int = 1,
    watch: Watch = lambda number, update: None,
    should_stop: Callable[[], bool] = lambda: False,
    speed: Speed | None = None,
) -> list[Outcome]:
    """Execute runs, `jobs` at a time, and return their outcomes in the same order.

    On the CPU, runs at the same time are processes with as many threads as this one has, because the number of threads
    can change the last bit of a sum; call `torch.set_num_threads(1)` first where that oversubscribes the machine. As
    always with processes in Python, a script must call this under `if __name__ == "__main__":`.

    Args:
        runs: the runs; they must differ.
        root: directory of run folders.
        jobs: how many run at a time.
        watch: called in this thread with the number of a run and its update.
        should_stop: called in this thread again and again; True ends every run after its iteration, with a checkpoint.
        speed: how a GPU is used.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be 1 or more, not {jobs}")
    names = [run.folder_name() for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"runs must differ, but {twice} is given twice")
    numbered, speed = dict(enumerate(runs)), speed or Speed()
    if jobs == 1:
        outcomes = run_in_sequence(numbered, root, watch, should_stop, speed)
        return [outcomes[number] for number in numbered]
    groups: dict[Any, dict[int, Run]] = {}
    for number, run in numbered.items():
        device = device_of(run)
        key = (str(device), switches_of(run)) if device.type == "cuda" else "processes"
        groups.setdefault(key, {})[number] = run
    outcomes = {}
    for key, group in groups.items():
        if key == "processes":
            outcomes |= run_in_processes(group, root, jobs, watch, should_stop)
        else:
            outcomes |= run_in_threads(group, root, jobs, watch, should_stop, speed)
    return [outcomes[number] for number in numbered]


def run_in_sequence(
    runs: dict[int, Run], root: Path, watch: Watch, should_stop: Callable[[], bool], speed: Speed
) -> dict[int, Outcome]:
    """Execute runs one after another in this thread."""
    speeds, outcomes = _speeds(runs, speed), dict[int, Outcome]()
    for number, run in runs.items():
        if should_stop():
            outcomes[number] = _not_started(run, root)
            continue
        job = partial(execute, run, root, watch=partial(watch, number), should_stop=should_stop, speed=speeds[number])
        outcomes[number] = run_one(run, root, job)
    return outcomes


def run_in_threads(
    runs: dict[int, Run], root: Path, jobs: int, watch: Watch, should_stop: Callable[[], bool], speed: Speed
) -> dict[int, Outcome]:
    """Execute runs of one device and the same switches in threads, on a GPU each with a CUDA stream of its own.

    Threads take turns where they run a net eagerly (`reweigh.lab.train.step.EXCLUSIVE`). Graph replays, which are most
    of the work on a GPU, release the interpreter lock and overlap on the device. Signals arrive in this thread, which
    does nothing but pass on updates and requests to stop.
    """
    first = next(iter(runs.values()))
    device, speeds = device_of(first), _speeds(runs, speed)
    stop, updates = threading.Event(), SimpleQueue[tuple[int, Update]]()
    streams = deque[Any]()
    if device.type == "cuda":
        streams.extend(torch.cuda.Stream(device) for _ in range(jobs))  # type: ignore[no-untyped-call]  # torch's

    def use_stream() -> None:
        if streams:
            torch.cuda.set_stream(streams.popleft())  # of this thread alone; also makes its device the current one

    def job(number: int) -> Outcome:
        run = runs[number]
        if stop.is_set():
            return _not_started(run, root)
        send = _Throttled(lambda update: updates.put((number, update)))
        train = partial(train_run, run, root, watch=send, should_stop=stop.is_set, speed=speeds[number], ranks=Ranks())
        return run_one(run, root, train)

    with machine(first), ThreadPoolExecutor(jobs, initializer=use_stream) as pool:
        try:
            futures = {number: pool.submit(job, number) for number in runs}
            running = set(futures.values())
            while running:
                if should_stop():
                    stop.set()
                running = wait_for_futures(running, timeout=POLL_INTERVAL).not_done
                while not updates.empty():
                    watch(*updates.get())
        finally:
            stop.set()  # whatever was raised here, such as KeyboardInterrupt, the threads end with a checkpoint
    return {number: future.result() for number, future in futures.items()}


def run_one(run: Run, root: Path, job: Callable[[], object]) -> Outcome:
    """Call `job`, which executes the run, and return its outcome instead of raising what ended it."""
    try:
        job()
    except Exception as error:
        return Outcome(run, folder_of(run, root), release_frames(error))
    return Outcome(run, folder_of(run, root), None)


def release_frames(error: Exception) -> Exception:
    """Return the error without the nets and data that its traceback holds: later runs need the memory."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    return error


def _speeds(runs: dict[int, Run], speed: Speed) -> dict[int, Speed]:
    """Decide how each run uses its GPU; the runs of one net and precision share what is compiled."""
    images = Counter[tuple[str, str]]()
    for run in runs.values():
        images[run.net, run.precision] += run.iterations * run.batch_size
    return {n: speed.for_run(run, device_of(run), images[run.net, run.precision]) for n, run in runs.items()}


def _not_started(run: Run, root: Path) -> Outcome:
    folder = folder_of(run, root)
    return Outcome(run, folder, Interrupted(folder, 0))


class _Throttled:
    """Passes on every update with a row or a note, and others at most once in `UPDATE_INTERVAL`."""

    def __init__(self, send: Callable[[Update], None]) -> None:
        self._send, self._last = send, -UPDATE_INTERVAL

    def __call__(self, update: Update) -> None:
        now = time.monotonic()
        if update.row is not None or update.note is not None or now - self._last >= UPDATE_INTERVAL:
            self._last = now
            self._send(update)


def run_in_processes(
    runs: dict[int, Run], root: Path, jobs: int, watch: Watch, should_stop: Callable[[], bool]
) -> dict[int, Outcome]:
    """Execute every run in a process of its own."""
    methods = multiprocessing.get_all_start_methods()
    # a fork server has imported everything and started no thread
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload([__name__])
    waiting, outcomes, stop = deque(runs), dict[int, Outcome](), context.Event()
    active: dict[Any, tuple[int, Any]] = {}  # by connection
    try:
        while waiting or active:
            if should_stop():
                stop.set()
                outcomes |= {number: _not_started(runs[number], root) for number in waiting}
                waiting.clear()
            while waiting and len(active) < jobs:
                number = waiting.popleft()
                here, there = context.Pipe(duplex=False)
                arguments = (runs[number], root, there, stop, torch.get_num_threads())
                process = context.Process(target=_process, args=arguments)
                process.start()
                there.close()
                active[here] = number, process
            ready: list[Any] = wait(list(active), timeout=POLL_INTERVAL)
            for connection in ready:
                number, process = active[connection]
                try:
                    message = connection.recv()
                except (EOFError, OSError):  # it ended without a message, or within one: killed, or out of memory
                    process.join()
                    message = RuntimeError(_exit_reason(process.exitcode))
                if isinstance(message, Update):
                    watch(number, message)
                    continue
                if isinstance(message, DataWarning):
                    warnings.warn(message, stacklevel=2)
                    continue
                outcomes[number] = Outcome(runs[number], folder_of(runs[number], root), message)
                del active[connection]
                connection.close()
                process.join()
                process.close()
    finally:
        for connection, (_, process) in active.items():
            process.terminate()  # SIGTERM, at which it writes a checkpoint
            connection.close()  # or it could block in sending
        for _, process in active.values():
            process.join()
    return outcomes


def _exit_reason(code: int) -> str:
    """Say how a process ended that sent no outcome; with code 1 Python failed before the run began."""
    if code != 1:
        return f"its process ended with code {code}"
    return (
        "its process ended with code 1 before the run began, for the reason printed above; a script that executes "
        'several runs at a time must do so under `if __name__ == "__main__":`, because every process imports it'
    )


def _process(run: Run, root: Path, parent: Connection, stop: Any, threads: int) -> None:
    """Execute a run in a child process: send updates, and at the end the error or None."""
    torch.set_num_threads(threads)
    terminated = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent passes it on
    signal.signal(signal.SIGTERM, lambda number, frame: terminated.set())

    def send(update: Update) -> None:
        try:
            parent.send(update)
        except OSError:  # the parent is gone
            terminated.set()

    def send_warning(warning: DataWarning) -> None:
        with suppress(OSError):
            parent.send(warning)

    error: Exception | None = None
    try:
        with show_warnings(send_warning):
            execute(run, root, watch=_Throttled(send), should_stop=lambda: terminated.is_set() or stop.is_set())
    except Exception as caught:
        error = caught
    with suppress(OSError):
        parent.send(_sendable(error))
    parent.close()


def _sendable(error: Exception | None) -> Exception | None:
    """Return the error, or its text where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
