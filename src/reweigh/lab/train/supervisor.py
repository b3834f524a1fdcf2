"""A run of several processes that survives the death of any of them.

    python -m reweigh.lab.train.supervisor --ranks 2 -- -m reweigh train ...

When a rank dies or stops making progress, all are ended and a fresh set is started, which goes on from the newest good
checkpoint. Nothing is repaired in place: a process group that has lost a member is not worth trusting.

Every rank tells how far it is through a file that it rewrites (`heartbeat`). Ranks wait for each other, so that one
that hangs silences all, and one that evaluates speaks for all: if every file stays the same for longer than `patience`,
a rank hangs, and a hang is treated as a death.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = "REWEIGH_HEARTBEAT"
FINAL = (2, 3, 4, 130)  # wrong usage, bad data, stopped on request: starting again would end the same way
GRACE = 30.0  # seconds a rank is given to write its checkpoint when all are asked to stop


class Ended(NamedTuple):
    """How it ended: 0 or the exit code of the rank that decided, the number of launches, and why each but the last
    had to be replaced."""

    code: int
    launches: int
    failures: tuple[str, ...]


def heartbeat(environ: Mapping[str, str] = os.environ, interval: float = 0.5) -> Callable[[int], None]:
    """step -> nothing; tells a supervisor, where there is one, that this rank has got that far."""
    folder = environ.get(FOLDER)
    if folder is None:
        return lambda step: None
    path, last, count = Path(folder) / environ.get("RANK", "0"), -interval, 0

    def beat(step: int) -> None:
        nonlocal last, count
        if (now := time.monotonic()) - last >= interval:
            last, count = now, count + 1
            path.write_text(f"{step} {count}")  # the count: an evaluation moves on while its step stays

    return beat


def supervise(
    arguments: Sequence[str],
    ranks: int,
    *,
    patience: float = 60.0,
    patience_to_start: float = 600.0,
    fruitless: int = 5,
    launched: Callable[[list[subprocess.Popen[bytes]]], None] = lambda processes: None,
    tell: Callable[[str], None] = lambda line: None,
) -> Ended:
    """Run `python arguments` as `ranks` processes until it is done, starting afresh whenever one fails.

    Args:
        arguments: what follows "python" on the command line, e.g. ["-m", "reweigh", "train", ...].
        ranks: how many processes, all on this machine.
        patience: seconds without a sign of progress from any rank after which one counts as hanging.
        patience_to_start: the same before the first sign, while data are loaded.
        fruitless: after so many launches in a row that got no further it gives up.
        launched: told the processes of every launch.
        tell: told why a launch failed.

    It also gives up where a rank ends with an exit code that says another try is useless. SIGTERM and Ctrl-C are passed
    on, and the ranks given time to write their checkpoint.
    """
    failures: list[str] = []
    reached, in_vain = -1, 0
    with _Signals() as asked:
        while True:
            with tempfile.TemporaryDirectory(prefix="reweigh-") as folder:
                processes = _launch(arguments, ranks, Path(folder))
                launched(processes)
                try:
                    code, why = _watch(processes, Path(folder), patience, patience_to_start, asked)
                finally:
                    _end(processes)
                step = max((_step(Path(folder) / str(rank)) for rank in range(ranks)), default=-1)
            if code == 0 or code in FINAL or asked.signal is not None:
                return Ended(code, len(failures) + 1, tuple(failures))
            failures.append(why)
            in_vain = 0 if step > reached else in_vain + 1
            reached = max(reached, step)
            if in_vain >= fruitless:
                tell(f"{why}; {in_vain} launches in a row got no further than iteration {max(reached, 0)}: giving up")
                return Ended(code, len(failures), tuple(failures[:-1]))
            tell(f"{why}; starting again from the newest checkpoint")


def _launch(arguments: Sequence[str], ranks: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as probe:  # a fresh port: the last one may still be in use by what is dying
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
    processes: list[subprocess.Popen[bytes]], folder: Path, patience: float, to_start: float, asked: _Signals
) -> tuple[int, str]:
    """Wait for the end: (0, "") where all ranks ended well, else an exit code and why."""
    seen, since = [""] * len(processes), time.monotonic()
    passed_on = failed = None
    while True:
        codes = [process.poll() for process in processes]
        if all(code == 0 for code in codes):
            return 0, ""
        # of several that failed, the one that says why: the others merely lost their partner
        bad = sorted((code for code in codes if code), key=lambda code: (code not in FINAL, code))
        now = time.monotonic()
        if bad:
            failed = failed or now
            waiting = any(code is None for code in codes) and now - failed < GRACE
            if not (bad[0] in FINAL and waiting):  # a rank that was stopped: another may still be writing
                how = f"was killed by signal {-bad[0]}" if bad[0] < 0 else f"ended with code {bad[0]}"
                return bad[0] if bad[0] > 0 else 1, f"rank {codes.index(bad[0])} {how}"
        signs = [_read(folder / str(rank)) for rank in range(len(processes))]
        if signs != seen:
            seen, since = signs, now
        elif now - since > (patience if any(seen) else to_start):
            return 1, f"the ranks showed no progress for {now - since:.0f} s"
        if asked.signal is not None:
            if passed_on is None:
                passed_on = now
                for process in processes:
                    if process.poll() is None:
                        process.send_signal(signal.SIGTERM)
            elif now - passed_on > GRACE:
                return 1, "the ranks did not stop when asked to"
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
    """SIGTERM and SIGINT as a note, while entered."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __enter__(self) -> _Signals:
        self._before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, lambda number, frame: setattr(self, "signal", number))
        except ValueError:  # not the main thread, which alone gets signals
            pass
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m reweigh.lab.train.supervisor", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--ranks", type=int, required=True, help="processes")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds without progress that count as a hang")
    parser.add_argument("command", nargs="+", help="what follows python, after --: -m reweigh train ...")
    options = parser.parse_args(arguments)
    ended = supervise(
        options.command, options.ranks, patience=options.patience, tell=lambda line: print(line, file=sys.stderr)
    )
    return ended.code


if __name__ == "__main__":
    sys.exit(main())
