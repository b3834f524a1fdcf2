"""Kill `train`, `suspects`, `correct` and `search` at every system call that changes a file, and repeat the command.

Half of the kills in a write cut it short first. A third of the repeated commands are killed again. At the end all
files must be those of a command that was never killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from attack.processes import Kill, command, preload, trace

Files = dict[str, object]
LEFT_OVER = "is left over"

_RUN = ["--data", "digits", "--net", "mlp-8", "--noise", "symmetric", "--rate", "0.4", "--batch-size", "50"]
_EVALUATED = ["--evaluate-every", "4", "--checkpoint-every", "3", "--device", "cpu"]


class Victim(NamedTuple):
    """A command; it needs what another one has left in the folder."""

    work: Callable[[], object]
    needs: str | None = None


def _search(prune: bool) -> Callable[[], object]:
    def work() -> None:
        from reweigh.lab.search import plan_search, search

        fields = {"data": "digits", "net": "mlp-8", "iterations": 6, "batch_size": 50, "evaluate_every": 2}
        fields |= {"checkpoint_every": 2, "device": "cpu"}
        space = "DM(lam=0..2, beta=0.5..24)"
        plan = plan_search(fields, space, trials=4 if prune else 2, prune=prune, seeds=(0,))
        search(plan, Path("runs"), beat=0.1, grace=0.8)

    return work


VICTIMS = {
    "train": Victim(
        command(
            *("train", *_RUN, "--weighting", "DM(0.5, 8)", "--iterations", "12", *_EVALUATED),
            *("--record-p", "--record-margins", "--validation", "0.2"),
        )
    ),
    "suspects": Victim(
        command(
            *("suspects", *_RUN[1:], *_EVALUATED, "--iterations", "24", "--lr", "0.01", "--folds", "2"),
            *("-o", "suspects.csv", "--page", "suspects.html"),
        )
    ),
    "correct": Victim(
        command(
            *("correct", *_RUN[1:], *_EVALUATED, "--iterations", "24", "--lr", "0.01", "--suspects", "suspects.csv"),
            *("-o", "corrected", "--retrain"),
        ),
        needs="suspects",
    ),
    "search": Victim(_search(prune=False)),
    "search with pruning": Victim(_search(prune=True)),
}


def kills(name: str, rng: random.Random, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield (outcome, details) of each kill; `recovered` is the only good outcome."""
    victim = VICTIMS[name]
    start = scratch / "start"
    start.mkdir()
    if victim.needs is not None:
        preload(VICTIMS[victim.needs].work, start)
        (start / "modules.txt").unlink()
        listed = start / "suspects.csv"
        listed.write_text(
            "\n".join(listed.read_text().splitlines()[:60]) + "\n"
        )  # some, so that every class keeps some
    preload(victim.work, _copy(start, scratch / "preload"))
    unbroken = trace(victim.work, _copy(start, scratch / "unbroken"), None)
    if unbroken.ended.code != 0:
        raise SystemExit(f"{name}: {unbroken.ended.output}")
    expected = contents(scratch / "unbroken")
    again = trace(victim.work, _copy(start, scratch / "again"), None)
    if different(contents(scratch / "again"), expected):
        raise SystemExit(f"{name} is not deterministic: {different(contents(scratch / 'again'), expected)}")
    todo: list[int] = []
    folder = scratch / "killed"
    while True:
        todo = todo or rng.sample(range(len(again.calls)), len(again.calls))
        _copy(start, folder)
        kill = Kill(todo.pop(), rng.random() if rng.random() < 0.5 else None)
        history: list[str] = []
        while True:
            traced = trace(victim.work, folder, kill)
            if not traced.killed:
                break
            _age(folder)
            history.append(f"{traced.calls[-1]} {kill.call}{'' if kill.share is None else f' cut to {kill.share:.2f}'}")
            kill = Kill(rng.randrange(len(again.calls)) if rng.random() < 0.3 else -1)
        outcome, details = "recovered", ""
        if traced.ended.hung:
            outcome = "hung"
        elif traced.ended.code != 0:
            outcome, details = "stuck", traced.ended.output[-600:]
        elif changed := different(contents(folder), expected):
            litter = all(line.endswith(LEFT_OVER) for line in changed)
            outcome, details = "litter" if litter else "lost", "; ".join(changed)
        for _ in history[1:]:
            yield "recovered", ""  # each of several kills in a row counts
        if history:
            yield outcome, f"{name} killed at {', '.join(history)}: {details}"


def _age(folder: Path) -> None:
    """Make temporary files two days old: those of the last day may belong to a process on another machine."""
    for path in folder.rglob("*.part*"):
        os.utime(path, (time.time() - 2 * 86400,) * 2)


def contents(folder: Path) -> Files:
    """Return the content of every file, without times, locks and the database of a search."""
    found: Files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name in (".lock", "study.db", "study.db-wal", "study.db-shm"):
            continue
        raw = path.read_bytes()
        found[name] = _without_times(json.loads(raw)) if path.suffix == ".json" else raw
    return found


def different(found: Files, expected: Files) -> list[str]:
    """Return the names of files that are missing, left over or different."""
    lines = [f"{name} is missing" for name in expected.keys() - found.keys()]
    lines += [f"{name} {LEFT_OVER}" for name in found.keys() - expected.keys()]
    return sorted(
        lines + [f"{name} differs" for name in found.keys() & expected.keys() if found[name] != expected[name]]
    )


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in ("seconds", "lost", "digest")}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
