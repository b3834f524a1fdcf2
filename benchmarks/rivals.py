"""Compare all methods under 40 % noisy labels: accuracy and cost.

    nice python benchmarks/rivals.py --root runs/rivals --processes 2
    python benchmarks/rivals.py --root runs/rivals --only CCE "GCE(0.7)" --data toy

Two data sets (rivals_data.py): Gaussian classes ("toy"), drawn for each seed, and digits. Each method
(rivals_entries.py) is trained at three learning rates with seed 5, then at the rate with the best final test accuracy
with seeds 0 to 4, which are reported. Seed 5 has its own noise, initial values and toy data; digits has one test set.
All methods of one seed have the same noise, so differences from CCE are paired.

Runs are ordinary run folders in --root, and finished runs are not repeated. The CSV has the methods that are complete,
and the JSON next to it has versions and seeds. `cost` is the CPU time of training and evaluation in one thread, divided
by that of torch's cross entropy with the same data and seed: the median over both data sets and five seeds. For a
procedure it is the time of all its runs.
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
from rivals_entries import ENTRIES, PLAIN, Entry

from reweigh.lab.record.files import RecordError
from reweigh.lab.run import execute
from reweigh.lab.spec import Run

SEEDS = (0, 1, 2, 3, 4)
CHOOSING_SEED = 5
RESULTS = Path(__file__).parent / "results"
Tried = dict[tuple[str, str], dict[float, float]]  # name, data -> learning rate -> accuracy with CHOOSING_SEED
ENTRY_OF = {entry.name: entry for entry in ENTRIES}


class Task(NamedTuple):
    """One training of a method."""

    name: str
    data: str
    lr: float
    seed: int
    root: Path


class Done(NamedTuple):
    """The outcome of a task: final test accuracy and CPU seconds, or the reason why it failed."""

    task: Task
    accuracy: float
    seconds: float | None
    problem: str | None = None


def main() -> None:
    """Execute unfinished runs, then write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="directory for run folders")
    parser.add_argument("--out", type=Path, default=RESULTS / "rivals.csv")
    parser.add_argument("--processes", type=int, default=1)
    every = ", ".join(ENTRY_OF).replace("%", "%%")
    parser.add_argument("--only", nargs="*", default=list(ENTRY_OF), metavar="METHOD", help=every)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=DATA)
    arguments = parser.parse_args()
    for name in arguments.only:
        if name not in ENTRY_OF:
            parser.error(f"no method is named {name!r}")
    names = list(dict.fromkeys(["CCE", PLAIN, *arguments.only]))
    with multiprocessing.get_context("spawn").Pool(arguments.processes, initializer=prepare) as pool:
        choosing = [
            Task(name, data, lr, CHOOSING_SEED, arguments.root)
            for data in arguments.data
            for lr in LEARNING_RATES
            for name in names
        ]
        tried: Tried = {}
        for done in progress(pool.imap_unordered(execute_task, choosing), len(choosing)):
            tried.setdefault((done.task.name, done.task.data), {})[done.task.lr] = done.accuracy
        final = [
            Task(name, data, max(LEARNING_RATES, key=tried[name, data].__getitem__), seed, arguments.root)
            for seed in SEEDS
            for data in arguments.data
            for name in names
        ]
        outcomes = list(progress(pool.imap_unordered(execute_task, final), len(final)))
    write(outcomes, tried, arguments.out)


def prepare() -> None:
    """Use one thread per process, so that CPU times are comparable."""
    torch.set_num_threads(1)


def execute_task(task: Task) -> Done:
    """Execute a task unless it is done; the table leaves out methods that fail."""
    timed = Stopwatch(task.root)
    fields = base(task.data, task.lr, task.seed, task.root)
    try:
        accuracy, folders = ENTRY_OF[task.name].execute(fields, task.root, timed)
    except (ValueError, RuntimeError, OSError) as error:
        return Done(task, -1.0, None, f"{type(error).__name__}: {error}")
    spent = [timed.read(folder) for folder in folders]
    return Done(task, accuracy, None if None in spent else sum(filter(None, spent)))


class Stopwatch:
    """Executes runs, and stores the CPU time of those that were not resumed."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "cpu"

    def __call__(self, run: Run, root: Path) -> Path:
        while True:
            begun = (root / run.folder_name()).exists()
            start = time.process_time()
            try:
                folder = execute(run, root)
                break
            except RecordError as error:  # two procedures share a first run, which another process executes now
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                time.sleep(1)
        if not begun:
            self.folder.mkdir(exist_ok=True)
            (self.folder / f"{folder.name}.json").write_text(json.dumps(time.process_time() - start))
        return folder

    def read(self, name: str) -> float | None:
        """Return the CPU seconds of a run, or None if unknown."""
        path = self.folder / f"{name}.json"
        return float(json.loads(path.read_text())) if path.exists() else None


def progress(done: Iterator[Done], total: int) -> Iterator[Done]:
    """Print progress."""
    start = time.monotonic()
    for i, one in enumerate(done, 1):
        left = (time.monotonic() - start) / i * (total - i) / 60
        outcome = one.problem or f"{100 * one.accuracy:.1f}"
        run = f"{one.task.data} {one.task.name} lr {one.task.lr:g}"
        print(f"{i}/{total}, {left:.0f} min left: {run}: {outcome}", flush=True)
        yield one


def write(outcomes: Sequence[Done], tried: Tried, out: Path) -> None:
    """Write a line for each method and data set that has all seeds."""
    results: dict[tuple[str, str], dict[int, Done]] = {}
    for done in outcomes:
        if done.problem is None:
            results.setdefault((done.task.name, done.task.data), {})[done.task.seed] = done
    complete = {key: seeds for key, seeds in results.items() if len(seeds) == len(SEEDS)}
    lines = [
        line(ENTRY_OF[name], data, complete[name, data], complete["CCE", data])
        | {f"chosen_at_{lr:g}": round(100 * accuracy, 2) for lr, accuracy in sorted(tried[name, data].items())}
        | {"cost": round(statistics.median(cost), 2) if (cost := costs(name, complete)) else None}
        for data in DATA
        for name in ENTRY_OF
        if (name, data) in complete
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    about = {"seeds": SEEDS, "choosing_seed": CHOOSING_SEED, "threads": 1}
    out.with_suffix(".json").write_text(json.dumps(provenance() | about, indent=1) + "\n")
    print(f"{out}: {len(lines)} lines")


def line(entry: Entry, data: str, seeds: dict[int, Done], cce: dict[int, Done]) -> dict[str, Any]:
    """Return a line of the CSV: accuracies in per cent, deviations over seeds."""
    accuracy = [100 * seeds[seed].accuracy for seed in SEEDS]
    minus = [100 * (seeds[seed].accuracy - cce[seed].accuracy) for seed in SEEDS]
    return {
        "data": data,
        "rival": entry.name,
        "family": entry.family,
        "taught": entry.objective if len(entry.objective) < 100 else entry.objective.partition("(")[0],
        "needs": entry.needs,
        "lr": seeds[0].task.lr,
        "accuracy": round(statistics.fmean(accuracy), 2),
        "deviation": round(statistics.stdev(accuracy), 2),
        "minus_cce": round(statistics.fmean(minus), 2),
        "minus_cce_deviation": round(statistics.stdev(minus), 2),
        **{f"seed_{seed}": round(value, 2) for seed, value in zip(SEEDS, accuracy, strict=True)},
    }


def costs(name: str, complete: dict[tuple[str, str], dict[int, Done]]) -> list[float]:
    """Return CPU times relative to plain cross entropy, for each data set and seed that has both."""
    pairs = [
        (one.seconds, complete[PLAIN, data][seed].seconds)
        for (entry, data), seeds in complete.items()
        if entry == name
        for seed, one in seeds.items()
    ]
    return [own / plain for own, plain in pairs if own is not None and plain]


if __name__ == "__main__":
    main()
