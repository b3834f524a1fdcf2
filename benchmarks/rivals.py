"""Every rival in one harness: which of them holds out against 40 % wrong labels, and at what cost?

    nice python benchmarks/rivals.py --root runs/rivals --processes 2
    python benchmarks/rivals.py --root runs/rivals --only CCE "GCE(0.7)" --data toy

Two problems (rivals_data.py): the Gaussian toy, drawn anew for each seed, and digits. Each rival (rivals_entries.py) is
run at three learning rates with seed 5, and at the best of them, by final test accuracy, with seeds 0 to 4, which are
what is reported; seed 5 has its own noise and initial values, and its own data in the toy, but digits has one test set
for all seeds. All rivals of one seed see the same noise, so differences from CCE are paired.

Runs are ordinary run folders below --root: what is done is not done again, and the CSV holds the rivals that are
complete; the JSON beside it says what it was made with. `cost` is CPU time, training and evaluation, one thread,
divided by that of torch's own cross entropy with the same data and seed, median over both problems and five seeds; a
procedure's is that of all its runs.
"""

from __future__ import annotations

import argparse
import csv
import errno
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from provenance import provenance
from rivals_data import DATA, LEARNING_RATES, base
from rivals_entries import PLAIN, RIVALS, Rival

from reweigh.lab.record.files import RecordError
from reweigh.lab.run import execute
from reweigh.lab.spec import Run

SEEDS = (0, 1, 2, 3, 4)
CHOOSING = 5
RESULTS = Path(__file__).parent / "results"
Tried = dict[tuple[str, str], dict[float, float]]  # rival, data -> learning rate -> accuracy with the choosing seed
NAMED = {rival.name: rival for rival in RIVALS}


class Task(NamedTuple):
    """One rival, once."""

    rival: str
    data: str
    lr: float
    seed: int
    root: Path


class Done(NamedTuple):
    """What came of a task: final test accuracy, CPU seconds, or why it failed."""

    task: Task
    accuracy: float
    seconds: float | None
    problem: str | None = None


def main() -> None:
    """Run what is missing, then write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="where the run folders lie")
    parser.add_argument("--out", type=Path, default=RESULTS / "rivals.csv")
    parser.add_argument("--processes", type=int, default=1)
    every = ", ".join(NAMED).replace("%", "%%")
    parser.add_argument("--only", nargs="*", default=list(NAMED), metavar="RIVAL", help=every)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=DATA)
    arguments = parser.parse_args()
    for name in arguments.only:
        if name not in NAMED:
            parser.error(f"no rival is called {name!r}")
    names = list(dict.fromkeys(["CCE", PLAIN, *arguments.only]))
    with multiprocessing.get_context("spawn").Pool(arguments.processes, initializer=prepare) as pool:
        choosing = [
            Task(name, data, lr, CHOOSING, arguments.root)
            for data in arguments.data
            for lr in LEARNING_RATES
            for name in names
        ]
        tried: Tried = {}
        for done in progress(pool.imap_unordered(carry_out, choosing), len(choosing)):
            tried.setdefault((done.task.rival, done.task.data), {})[done.task.lr] = done.accuracy
        final = [
            Task(name, data, max(LEARNING_RATES, key=tried[name, data].__getitem__), seed, arguments.root)
            for seed in SEEDS
            for data in arguments.data
            for name in names
        ]
        found = list(progress(pool.imap_unordered(carry_out, final), len(final)))
    write(found, tried, arguments.out)


def prepare() -> None:
    """One thread a process, so that CPU time means something and processes don't fight."""
    torch.set_num_threads(1)


def carry_out(task: Task) -> Done:
    """Do a task, unless it is done; one that fails is told and left out of the table."""
    timed = Stopwatch(task.root)
    fields = base(task.data, task.lr, task.seed, task.root)
    try:
        accuracy, folders = NAMED[task.rival].carry_out(fields, task.root, timed)
    except (ValueError, RuntimeError, OSError) as error:
        return Done(task, -1.0, None, f"{type(error).__name__}: {error}")
    spent = [timed.read(folder) for folder in folders]
    return Done(task, accuracy, None if None in spent else sum(filter(None, spent)))


class Stopwatch:
    """Executes runs, and notes the CPU time of those that were carried out in one go."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "cpu"

    def __call__(self, run: Run, root: Path) -> Path:
        while True:
            begun = (root / run.folder_name()).exists()
            start = time.process_time()
            try:
                folder = execute(run, root)
                break
            except RecordError as error:  # two procedures share a first run, and another process is at it
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                time.sleep(1)
        if not begun:
            self.folder.mkdir(exist_ok=True)
            (self.folder / f"{folder.name}.json").write_text(json.dumps(time.process_time() - start))
        return folder

    def read(self, name: str) -> float | None:
        """CPU seconds of a run, where they are known."""
        path = self.folder / f"{name}.json"
        return float(json.loads(path.read_text())) if path.exists() else None


def progress(done: Iterator[Done], total: int) -> Iterator[Done]:
    """Tell how far it is."""
    start = time.monotonic()
    for i, one in enumerate(done, 1):
        left = (time.monotonic() - start) / i * (total - i) / 60
        what = one.problem or f"{100 * one.accuracy:.1f}"
        print(
            f"{i}/{total}, {left:.0f} min left: {one.task.data} {one.task.rival} lr {one.task.lr:g}: {what}", flush=True
        )
        yield one


def write(found: Sequence[Done], tried: Tried, out: Path) -> None:
    """One line per rival and problem that was run with all seeds."""
    results: dict[tuple[str, str], dict[int, Done]] = {}
    for done in found:
        if done.problem is None:
            results.setdefault((done.task.rival, done.task.data), {})[done.task.seed] = done
    whole = {key: seeds for key, seeds in results.items() if len(seeds) == len(SEEDS)}
    lines = [
        line(NAMED[name], data, whole[name, data], whole["CCE", data])
        | {f"chosen_at_{lr:g}": round(100 * accuracy, 2) for lr, accuracy in sorted(tried[name, data].items())}
        | {"cost": round(statistics.median(cost), 2) if (cost := costs(name, whole)) else None}
        for data in DATA
        for name in NAMED
        if (name, data) in whole
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    about = {"seeds": SEEDS, "choosing_seed": CHOOSING, "threads": 1}
    out.with_suffix(".json").write_text(json.dumps(provenance() | about, indent=1) + "\n")
    print(f"{out}: {len(lines)} lines")


def line(rival: Rival, data: str, seeds: dict[int, Done], cce: dict[int, Done]) -> dict[str, Any]:
    """One line of the CSV; accuracies in per cent, ± is the standard deviation over seeds."""
    accuracy = [100 * seeds[seed].accuracy for seed in SEEDS]
    minus = [100 * (seeds[seed].accuracy - cce[seed].accuracy) for seed in SEEDS]
    return {
        "data": data,
        "rival": rival.name,
        "family": rival.family,
        "taught": rival.taught if len(rival.taught) < 100 else rival.taught.partition("(")[0],
        "needs": rival.needs,
        "lr": seeds[0].task.lr,
        "accuracy": round(statistics.fmean(accuracy), 2),
        "deviation": round(statistics.stdev(accuracy), 2),
        "minus_cce": round(statistics.fmean(minus), 2),
        "minus_cce_deviation": round(statistics.stdev(minus), 2),
        **{f"seed_{seed}": round(value, 2) for seed, value in zip(SEEDS, accuracy, strict=True)},
    }


def costs(name: str, whole: dict[tuple[str, str], dict[int, Done]]) -> list[float]:
    """CPU time relative to plain cross entropy's, for every problem and seed where both are known."""
    pairs = [
        (one.seconds, whole[PLAIN, data][seed].seconds)
        for (rival, data), seeds in whole.items()
        if rival == name
        for seed, one in seeds.items()
    ]
    return [own / plain for own, plain in pairs if own is not None and plain]


if __name__ == "__main__":
    main()
