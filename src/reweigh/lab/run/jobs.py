"""Many runs, several at a time: as processes on the CPU, on streams of their own in one process on a GPU.

Each run does what it would do alone, bit for bit where its kernels are deterministic and it is not compiled. One that
fails does not stop the others; a request to stop reaches all, and each writes its checkpoint.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from reweigh.errors import DataWarning, show_warnings
from reweigh.lab.run.ahead import Ahead
from reweigh.lab.run.execute import Interrupted, Update, execute, folder_of, updates
from reweigh.lab.run.machine import device_of, machine, switches_of
from reweigh.lab.spec import Run
from reweigh.lab.train.captured import Speed

SELDOM = 0.1  # seconds between updates from a process that tell only how far it is
MOMENT = 1e-4  # seconds to leave to others while all runs wait for the device


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
    """Carry all runs out, `jobs` at a time; the outcomes are in the order of the runs.

    On the CPU runs that go side by side are processes with as many threads as this one has, because their number can
    decide the last bit of a sum; call `torch.set_num_threads(1)` first where that oversubscribes the machine. As always
    with processes in Python, a script must call this under `if __name__ == "__main__":`.

    Args:
        runs: what to do; no two may be the same.
        root: where run folders lie.
        jobs: how many at a time.
        watch: told the number of the run and its progress.
        should_stop: asked all the time; True ends every run after its iteration, with a checkpoint.
        speed: how a GPU is used.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be 1 or more, not {jobs}")
    names = [run.folder_name() for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"runs must differ; {twice} is there twice")
    outcomes: dict[int, Outcome] = {}
    groups: dict[Any, list[int]] = {}
    for number, run in enumerate(runs):
        device = device_of(run)
        here = device.type == "cuda" or jobs == 1
        alike = (str(device), switches_of(run)) if here else "processes"
        groups.setdefault(alike, []).append(number)
    for alike, numbers in groups.items():
        chosen = {number: runs[number] for number in numbers}
        if alike == "processes":
            outcomes |= as_processes(chosen, root, jobs, watch, should_stop)
        else:
            outcomes |= in_turns(chosen, root, jobs, watch, should_stop, speed or Speed())
    return [outcomes[number] for number in range(len(runs))]


def in_turns(
    runs: dict[int, Run], root: Path, jobs: int, watch: Watch, should_stop: Callable[[], bool], speed: Speed
) -> dict[int, Outcome]:
    """Runs that ask the same of the process, one iteration each in turn, every one on a stream of its own.

    The host only launches; what is launched for different runs overlaps on the device. What is compiled for a net
    in one precision serves all runs of it. For a GPU the material of the runs at hand and of the next one is gathered
    by a thread.
    """
    images = Counter[tuple[str, str]]()
    for run in runs.values():
        images[run.net, run.precision] += run.iterations * run.batch_size
    waiting, outcomes = deque(runs), dict[int, Outcome]()
    active: dict[int, tuple[Generator[Update | None], Callable[[], AbstractContextManager[Any]]]] = {}
    first = runs[waiting[0]]
    with machine(first), Ahead(root) as ahead:
        on_gpu = device_of(first).type == "cuda"
        try:
            while waiting or active:
                if should_stop():
                    outcomes |= _not_begun(runs, waiting, root)
                while waiting and len(active) < jobs:
                    number = waiting.popleft()
                    run = runs[number]
                    how = speed.for_run(run, device_of(run), images[run.net, run.precision])
                    gathered = ahead.material(run) if on_gpu else None
                    turns = updates(run, root, should_stop=should_stop, speed=how, gathered=gathered)
                    active[number] = turns, _stream(device_of(first))
                if waiting and on_gpu:
                    ahead.begin(runs[waiting[0]])
                is_idle = len(active) > 0
                for number, (turns, stream) in list(active.items()):
                    with stream():
                        told = _turn(runs[number], root, turns)
                    is_idle = is_idle and told is None
                    if isinstance(told, Update):
                        watch(number, told)
                    elif told is not None:
                        outcomes[number] = told
                        del active[number]
                if is_idle and on_gpu:
                    time.sleep(MOMENT)
        finally:
            for turns, _ in active.values():
                turns.close()
    return outcomes


def _not_begun(runs: dict[int, Run], waiting: deque[int], root: Path) -> dict[int, Outcome]:
    """The outcomes of runs whose turn has not come when all are asked to stop; none is waiting afterwards."""
    outcomes = {}
    while waiting:
        number = waiting.popleft()
        folder = folder_of(runs[number], root)
        outcomes[number] = Outcome(runs[number], folder, Interrupted(folder, 0))
    return outcomes


def _turn(run: Run, root: Path, turns: Iterator[Update | None]) -> Update | Outcome | None:
    try:
        return next(turns)
    except StopIteration:
        return Outcome(run, folder_of(run, root), None)
    except Exception as error:  # whatever ended this run, the others go on
        return Outcome(run, folder_of(run, root), let_go(error))


def let_go(error: Exception) -> Exception:
    """The error, without the nets and data that its traceback holds: the memory is wanted by runs that come after."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__
    return error


def _stream(device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    if device.type != "cuda":
        return nullcontext
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
    return lambda: torch.cuda.stream(stream)


def as_processes(
    runs: dict[int, Run], root: Path, jobs: int, watch: Watch, should_stop: Callable[[], bool]
) -> dict[int, Outcome]:
    """Every run in a process of its own."""
    methods = multiprocessing.get_all_start_methods()
    # forked from a server that has imported everything and started no thread, where there is such a thing
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload([__name__])
    waiting, outcomes, stop = deque(runs), dict[int, Outcome](), context.Event()
    active: dict[Any, tuple[int, Any]] = {}  # by connection
    try:
        while waiting or active:
            if should_stop():
                stop.set()
                outcomes |= _not_begun(runs, waiting, root)
            while waiting and len(active) < jobs:
                number = waiting.popleft()
                here, there = context.Pipe(duplex=False)
                arguments = (runs[number], root, there, stop, torch.get_num_threads())
                process = context.Process(target=_process, args=arguments)
                process.start()
                there.close()
                active[here] = number, process
            ready: list[Any] = wait(list(active), timeout=0.05)
            for connection in ready:
                number, process = active[connection]
                try:
                    told = connection.recv()
                except (EOFError, OSError):  # it ended without a word, or within one: killed, or out of memory
                    process.join()
                    told = RuntimeError(_ended(process.exitcode))
                if isinstance(told, Update):
                    watch(number, told)
                    continue
                if isinstance(told, DataWarning):  # one of many that say the same: this process knows how to say it
                    warnings.warn(told, stacklevel=2)
                    continue
                outcomes[number] = Outcome(runs[number], folder_of(runs[number], root), told)
                del active[connection]
                connection.close()
                process.join()
                process.close()
    finally:
        for connection, (_, process) in active.items():
            process.terminate()  # asks for a checkpoint, as SIGTERM always does
            connection.close()  # one that waits to tell something would wait for ever
        for _, process in active.values():
            process.join()
    return outcomes


def _ended(code: int) -> str:
    """How a process ended that has told nothing; with code 1 Python itself gave up before the run began."""
    if code != 1:
        return f"its process ended with code {code}"
    return (
        "its process ended with code 1 before the run began, for the reason printed above; a script that carries out "
        'several runs at a time must do so under `if __name__ == "__main__":`, because every process imports it'
    )


def _process(run: Run, root: Path, parent: Connection, stop: Any, threads: int) -> None:
    """What a process does: tell every update, and at the end the error or None."""
    torch.set_num_threads(threads)
    terminated = [False]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent passes it on
    signal.signal(signal.SIGTERM, lambda number, frame: terminated.__setitem__(0, True))
    last = 0.0

    def tell(update: Update) -> None:
        nonlocal last
        now = time.monotonic()
        if update.row is None and update.note is None and now - last < SELDOM:
            return
        last = now
        try:
            parent.send(update)
        except OSError:  # the parent is gone: stop as if asked to
            terminated[0] = True

    def pass_on(warning: DataWarning) -> None:
        with suppress(OSError):
            parent.send(warning)

    error: Exception | None = None
    try:
        with show_warnings(pass_on):
            execute(run, root, watch=tell, should_stop=lambda: terminated[0] or stop.is_set())
    except Exception as caught:
        error = caught
    with suppress(OSError):
        parent.send(_sendable(error))
    parent.close()


def _sendable(error: Exception | None) -> Exception | None:
    """The error, or its text where it can't be sent to another process and be the same there."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
