"""Which wrong labels are found, and at what cost: one robust run against cleanlab on five folds, and AUM.

    nice python benchmarks/suspects.py --data digits --root runs/suspects
    python benchmarks/suspects.py --data cifar10 tin100 imdb --device cuda --root runs/suspects --seeds 0
    python benchmarks/suspects.py --data cifar10 --device cuda --root runs/suspects --seeds 0 --only cleanlab

On every problem (suspects_problems.py) and seed, with the same net, noise and schedule:

    one run       a robust run with its record; every score that `reweigh suspects` offers
    aum           two runs by cross entropy with threshold samples (Pleiss 2020)
    folds         five runs on all but a fold, by cross entropy and by the robust weighting, whose out-of-fold
                  probabilities are judged by `find_suspects` and kept in --root/out-of-fold
    cleanlab      cleanlab on those probabilities; left out where it is not installed, and done later where
                  --root has been copied to, by the last of the commands above, which needs no GPU
    retrained     labels called wrong are replaced by the suggested ones, and a new net is trained on them

`seconds` are of all runs it took, training and evaluation, and of finding: CPU time of one thread on a CPU, wall time
on a GPU. What is done is not done again; the CSV holds all that --root has of the chosen data, and the JSON beside it
says what it was made with.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
from provenance import installed, provenance
from suspects_lines import cleanlabs, ours
from suspects_problems import DATA, PLAIN, PROBLEMS, Problem

from reweigh.procedures.label_correction import relabelled
from reweigh.record import read_header, read_result
from reweigh.run import execute
from reweigh.run.material import gather
from reweigh.spec import Run
from reweigh.suspects import METHODS, find_suspects, suspects_of
from reweigh.suspects.evidence import of_run, out_of_fold

RESULTS = Path(__file__).parent / "results"
FOLDS = 5
STAGES = ("one run", "aum", "folds", "cleanlab", "retrained")
Lines = list[dict[str, Any]]
T = TypeVar("T")


def main() -> None:
    """Do what is missing, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="where the run folders lie, and all else")
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="*", default=list(STAGES), choices=STAGES, metavar="STAGE")
    parser.add_argument("--problem", help="only problems with this in their name")
    parser.add_argument("--iterations", type=int, help="instead of the default: to see whether all works")
    parser.add_argument("--out", type=Path, help="the CSV; by default benchmarks/results/suspects-DATA.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [p for p in PROBLEMS if p.data in arguments.data and (arguments.problem or "") in p.name]
    if arguments.only != ["cleanlab"]:
        warm_up(chosen[0], arguments.root, arguments.device)
    for seed in arguments.seeds:
        for problem in chosen:
            bench = Bench(problem, seed, arguments.root, arguments.device, arguments.iterations)
            for stage in STAGES:
                if stage in arguments.only:
                    bench.stage(stage)
    for data in arguments.data:
        write(arguments.root, data, arguments.out or RESULTS / f"suspects-{data}.csv")


def warm_up(problem: Problem, root: Path, device: str) -> None:
    """Load what the first run of a process has to load, so that it isn't charged for it."""
    with TemporaryDirectory() as folder:
        execute(problem.run(root, PLAIN, 0, device, iterations=1), Path(folder))


class Bench:
    """One problem with one seed; every stage leaves a file of lines."""

    def __init__(self, problem: Problem, seed: int, root: Path, device: str, iterations: int | None) -> None:
        self.problem, self.seed, self.root, self.device = problem, seed, root, device
        self.runs = {taught: problem.run(root, taught, seed, device, iterations) for taught in (*problem.robust, PLAIN)}
        self.watch = Stopwatch(root, device)

    def stage(self, name: str) -> None:
        """Do a stage for all that teaches in it, unless it is done."""
        work: dict[str, tuple[Callable[[str], Lines], tuple[str, ...]]] = {
            "one run": (self.one_run, (*self.problem.robust, PLAIN)),
            "aum": (self.aum, (PLAIN,)),
            "folds": (self.folds, (PLAIN, self.problem.robust[0])),
            "cleanlab": (self.cleanlab, (PLAIN, self.problem.robust[0])),
            "retrained": (self.retrained, (self.problem.robust[0],)),
        }
        do, teachers = work[name]
        for taught in teachers:
            path = self.root / "lines" / f"{name.replace(' ', '-')}-{self.runs[taught].hash()}.json"
            if path.exists():
                continue
            lines = do(taught)
            about = {"problem": self.problem.name, "data": self.problem.data, "seed": self.seed, "taught": taught}
            if lines:
                path.parent.mkdir(parents=True, exist_ok=True)
                made = provenance() | {"cleanlab": installed("cleanlab"), "run_on": self.device}
                content = {"stage": name, "made": made, "lines": [about | one for one in lines]}
                path.write_text(json.dumps(content, indent=1))
                print(f"{self.problem.name}, seed {self.seed}, {taught}: {name}", flush=True)

    def one_run(self, taught: str) -> Lines:
        """Every score, from one run."""
        run = self.runs[taught]
        folder, lines = self.watch(run, self.root), []
        material = gather(run)
        given = material.train.labels
        evidence, looking = self.watch.timed(lambda: of_run(run, folder, material))
        seen: dict[str, Any] = {"history": evidence.history, "margins": evidence.margins, "rivals": evidence.rivals}
        for method in METHODS[1:]:
            find = partial(find_suspects, given, evidence.pred_probs, method=method, **seen)
            found, finding = self.watch.timed(find)
            lines.append(ours(method, found, _truth(material.clean, given), self.cost([run], looking + finding)))
        return lines

    def aum(self, taught: str) -> Lines:
        """As it was published: by cross entropy, with threshold samples, twice."""
        run = self.runs[taught]
        folder = self.watch(run, self.root)
        found = suspects_of(folder, method="aum", threshold_samples=True, carry_out=self.watch)
        runs = [replace(run, threshold_set=k, record_p=False, record_margins=True) for k in (0, 1)]
        truth = _truth(found.clean, found.suspects.given)
        return [ours("aum, threshold samples", found.suspects, truth, self.cost(runs, 0.0))]

    def folds(self, taught: str) -> Lines:
        """Out-of-fold probabilities, kept for cleanlab, and our own reading of them."""
        run = self.runs[taught]
        material = gather(run)
        evidence = out_of_fold(run, self.root, FOLDS, material, carry_out=self.watch)
        given = material.train.labels
        clean = _truth(material.clean, given)
        runs = [
            replace(run, fold=f"{k}/{FOLDS}", record_p=False, record_margins=False, evaluate_every=run.iterations)
            for k in range(1, FOLDS + 1)
        ]
        cost = self.cost(runs, 0.0)
        path = self.kept(taught)
        path.parent.mkdir(exist_ok=True)
        np.savez(path, given=given, clean=clean, probabilities=evidence.pred_probs, seconds=cost or np.nan)
        found, spent = self.watch.timed(lambda: find_suspects(given, evidence.pred_probs, how="final-p"))
        return [ours("final-p, out of fold", found, clean, None if cost is None else cost + spent)]

    def cleanlab(self, taught: str) -> Lines:
        """cleanlab on the same out-of-fold probabilities, where both are here."""
        if find_spec("cleanlab") is None or not self.kept(taught).exists():
            return []
        with np.load(self.kept(taught)) as kept:
            seconds = float(kept["seconds"])
            cost = None if np.isnan(seconds) else seconds
            return cleanlabs(kept["given"], kept["clean"], kept["probabilities"], cost)

    def retrained(self, taught: str) -> Lines:
        """Test accuracy by cross entropy and by the robust weighting, on the labels as given and as corrected."""
        if not self.problem.retrained:
            return []
        run, lines = self.runs[taught], []
        found = suspects_of(self.watch(run, self.root)).suspects
        corrected = np.where(found.issue, found.suggested, found.given)
        path = self.root / "corrected" / f"{run.hash()}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, corrected)
        for by in (PLAIN, taught):
            for labels in ("given", "corrected"):
                one = self.runs[by] if labels == "given" else relabelled(self.runs[by], path.as_posix())
                folder = self.watch(one, self.root)
                result, noise = read_result(folder) or {}, read_header(folder).details["noise"]
                accuracy = {which: result[which]["test_accuracy"] for which in ("final", "best")}
                lines.append({"trained_by": by, "labels": labels, "wrong_labels": noise["measured"]} | accuracy)
        return lines

    def kept(self, taught: str) -> Path:
        return self.root / "out-of-fold" / f"{self.runs[taught].hash()}.npz"

    def cost(self, runs: list[Run], spent: float) -> float | None:
        """Seconds of these runs and of what was done with them; None where one was cut short and its time is lost."""
        each = [self.watch.read(run) for run in runs]
        return None if None in each else sum(filter(None, each)) + spent


class Stopwatch:
    """Executes runs, and notes the seconds of those that were carried out in one go."""

    def __init__(self, root: Path, device: str) -> None:
        self.folder = root / "seconds"
        self.clock = time.process_time if device == "cpu" else time.perf_counter

    def __call__(self, run: Run, root: Path) -> Path:
        begun = (root / run.folder_name()).exists()
        folder, spent = self.timed(lambda: execute(run, root))
        if not begun:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{folder.name}.json").write_text(json.dumps(spent))
        return folder

    def timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """What comes of it, and the seconds it took."""
        start = self.clock()
        return work(), self.clock() - start

    def read(self, run: Run) -> float | None:
        """Seconds of a run, where they are known."""
        path = self.folder / f"{run.folder_name()}.json"
        return float(json.loads(path.read_text())) if path.exists() else None


def _truth(clean: Any, given: Any) -> Any:
    """The true labels; where no noise was added, those that are given."""
    return given if clean is None else clean


def write(root: Path, data: str, out: Path) -> None:
    """One line per problem, seed, teacher and score; what retraining gave in a table of its own."""
    tables: dict[str, Lines] = {"": [], "-retrained": []}
    made: dict[str, set[str]] = {}
    for path in sorted((root / "lines").glob("*.json")):
        content = json.loads(path.read_text())
        lines = [one for one in content["lines"] if one["data"] == data]
        tables["-retrained" if content["stage"] == "retrained" else ""] += lines
        if lines:
            made.setdefault(json.dumps(content["made"]), set()).add(content["stage"])
    order = {problem.name: i for i, problem in enumerate(PROBLEMS)}
    for suffix, lines in tables.items():
        if not lines:
            continue
        lines.sort(key=lambda one: (order[one["problem"]], one["seed"], one["taught"]))
        path = out.with_name(f"{out.stem}{suffix}.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, lines[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: round(v, 5) if isinstance(v, float) else v for k, v in one.items()} for one in lines)
        print(f"{path}: {len(lines)} lines")
    about = {"folds": FOLDS, "made": [json.loads(m) | {"stages": sorted(stages)} for m, stages in made.items()]}
    out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
