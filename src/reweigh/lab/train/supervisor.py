"""Restart a run of several processes when one of them dies or hangs.

    python -m reweigh.lab.train.supervisor --ranks 2 -- -m reweigh train ...

When a rank dies or stops making progress, all are killed and started again, and resume from the newest intact
checkpoint. A process group that has lost a member is never repaired.

Every rank writes its progress to a file (`heartbeat`). Ranks wait for each other, so one that hangs stops the files of
all, while one that evaluates changes its own: if no file changes for longer than `patience`, a rank hangs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reweigh.lab.record.files import Lock

FOLDER = "REWEIGH_HEARTBEAT"
FINAL = (2, 3, 4, 130)  # wrong usage, bad data, stopped on request: a restart would end the same way
_PREFIX = "reweigh-heartbeats-"
GRACE = 30.0  # seconds for a rank to write its checkpoint after a request to stop


class SupervisorResult(NamedTuple):
    """The exit code (0, or that of the rank that failed), the number of launches, and why all but the last failed."""

    code: int
    launches: int
    failures: tuple[str, ...]


def heartbeat(environ: Mapping[str, str] = os.environ, interval: float = 0.5) -> Callable[[int], None]:
    """Return a function that reports the step of this rank to the supervisor, if there is one."""
    folder = environ.get(FOLDER)
    if folder is None:
        return lambda step: None
    path, last, count = Path(folder) / environ.get("RANK", "0"), -interval, 0

    def beat(step: int) -> None:
        nonlocal last, count
        if (now := time.monotonic()) - last >= interval:
            last, count = now, count + 1
            with suppress(FileNotFoundError):  # the supervisor was killed, and the next one has removed its folder
                path.write_text(f"{step} {count}")  # the count, because an evaluation does not change the step

    return beat


def supervise(
    arguments: Sequence[str],
    ranks: int,
    *,
    patience: float = 60.0,
    startup_patience: float = 600.0,
    max_failures: int = 5,
    launched: Callable[[list[subprocess.Popen[bytes]]], None] = lambda processes: None,
    log: Callable[[str], None] = lambda line: None,
) -> SupervisorResult:
    """Run `python arguments` as `ranks` processes until it is done, restarting all whenever one fails.

    Args:
        arguments: the arguments of python, e.g. ["-m", "reweigh", "train", ...].
        ranks: how many processes, all on this machine.
        patience: seconds without progress of any rank after which one is considered to hang.
        startup_patience: the same before the first progress, while data are loaded.
        max_failures: stop after so many launches in a row without progress.
        launched: called with the processes of every launch.
        log: called with the reason why a launch failed.

    It also stops if the exit code of a rank means that a restart is useless. SIGTERM and Ctrl-C are passed on, and the
    ranks get time to write their checkpoint.
    """
    failures: list[str] = []
    reached, in_vain = -1, 0
    _remove_abandoned()
    with _Signals() as received:
        while True:
            with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, Lock(Path(folder)):
                processes = _launch(arguments, ranks, Path(folder))
                launched(processes)
                try:
                    code, why = _watch(processes, Path(folder), patience, startup_patience, received)
                finally:
                    _end(processes)
                step = max((_step(Path(folder) / str(rank)) for rank in range(ranks)), default=-1)
            if code == 0 or code in FINAL or received.signal is not None:
                return SupervisorResult(code, len(failures) + 1, tuple(failures))
            failures.append(why)
            in_vain = 0 if step > reached else in_vain + 1
            reached = max(reached, step)
            if in_vain >= max_failures:
                log(f"{why}; {in_vain} launches in a row made no progress after iteration {max(reached, 0)}: stopping")
                return SupervisorResult(code, len(failures), tuple(failures[:-1]))
            log(f"{why}; restarting from the newest checkpoint")


def _remove_abandoned() -> None:
    """Remove the temporary folders of supervisors that were killed: those of this user that nobody has locked."""
    if sys.platform == "win32":  # there are no locks
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # LockedError is one, and another supervisor may be removing it
            about = folder.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                with Lock(folder):
                    shutil.rmtree(folder)


def _launch(arguments: Sequence[str], ranks: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as probe:  # a new port: the last one may still be in use
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), FOLDER: str(folder)}
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
        )
        for rank in range(ranks)
    ]


def _watch(
    processes: list[subprocess.Popen[bytes]], folder: Path, patience: float, startup_patience: float, received: _Signals
) -> tuple[int, str]:
    """Wait for the ranks; return (0, "") if all succeeded, else an exit code and the reason."""
    last, since = [""] * len(processes), time.monotonic()
    passed_on = failed = None
    while True:
        codes = [process.poll() for process in processes]
        if all(code == 0 for code in codes):
            return 0, ""
        # of several failures the informative one first: the others merely lost their peer
        bad = sorted((code for code in codes if code), key=lambda code: (code not in FINAL, code))
        now = time.monotonic()
        if bad:
            failed = failed or now
            waiting = any(code is None for code in codes) and now - failed < GRACE
            if not (bad[0] in FINAL and waiting):  # another rank may still be writing its checkpoint
                how = f"was killed by signal {-bad[0]}" if bad[0] < 0 else f"ended with code {bad[0]}"
                return bad[0] if bad[0] > 0 else 1, f"rank {codes.index(bad[0])} {how}"
        contents = [_read(folder / str(rank)) for rank in range(len(processes))]
        if contents != last:
            last, since = contents, now
        elif now - since > (patience if any(last) else startup_patience):
            return 1, f"the ranks showed no progress for {now - since:.0f} s"
        if received.signal is not None:
            if passed_on is None:
                passed_on = now
                for process in processes:
                    if process.poll() is None:
                        process.send_signal(signal.SIGTERM)
            elif now - passed_on > GRACE:
                return 1, "the ranks did not stop on request"
        time.sleep(0.05)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _step(path: Path) -> int:
    words = _read(path).split()
    return int(words[0]) if words else -1


class _Signals:
    """Catches SIGTERM and SIGINT while entered; `signal` is the last one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> _Signals:
        self._before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, lambda number, frame: setattr(self, "signal", number))
        except ValueError:  # only the main thread can catch signals
            pass
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m reweigh.lab.train.supervisor", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--ranks", type=int, required=True, help="processes")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds without progress that count as a hang")
    parser.add_argument("command", nargs="+", help="arguments of python, after --: -m reweigh train ...")
    options = parser.parse_args(arguments)
    result = supervise(
        options.command, options.ranks, patience=options.patience, log=lambda line: print(line, file=sys.stderr)
    )
    return result.code


if __name__ == "__main__":
    sys.exit(main())
