"""Which wrong labels are found, and at what cost: one robust run against cleanlab on five folds, and AUM.

    nice python benchmarks/suspects.py --data digits --root runs/suspects
    nice python benchmarks/suspects.py --data imdb --root runs/suspects --seeds 0

On every problem (suspects_problems.py) and seed, with the same net, noise and schedule:

    one run       a robust run with its record; every score that `reweigh suspects` offers
    aum           two runs by cross entropy with threshold samples (Pleiss 2020)
    folds         five runs on all but a fold, by cross entropy and by the robust weighting, whose out-of-fold
                  probabilities are judged by `find_suspects` and kept in --root/out-of-fold
    cleanlab      cleanlab on those probabilities; left out where it is not installed
    retrained     labels called wrong are replaced by the suggested ones, and a new net is trained on them
    tables        the CSV of all that --root has of the chosen data, and the JSON that says what it was made with

`seconds` are of all runs it took, training and evaluation, and of finding: CPU time of one thread on a CPU, wall time
on a GPU. What is done is not done again, also where only lines/, out-of-fold/ and seconds/ of --root are left.

On a GPU several runs go at a time (--jobs), and several such processes, each with other problems or stages, which
says nothing of what a run costs. So first of all

    time          one run by the robust weighting, and one fold by cross entropy, of the first problem of the data,
                  each alone on the GPU, up to the probabilities of its examples; all others cost as much

    python benchmarks/suspects.py --device cuda --jobs 5 --data cifar10 tin100 --root R --seeds 0 --only time
    python benchmarks/suspects.py --device cuda --jobs 5 --data cifar10 --root R --seeds 0 --only "one run" aum &
    python benchmarks/suspects.py --device cuda --jobs 5 --data cifar10 --root R --seeds 0 --only folds &

and cleanlab, which needs no GPU, wherever R has been copied to, with `--device cuda --only cleanlab tables`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from provenance import installed, provenance
from suspects_clock import Stopwatch
from suspects_lines import Lines, cleanlabs, ours, write
from suspects_problems import DATA, PLAIN, PROBLEMS, Problem

from reweigh.lab.procedures.label_correction import relabelled
from reweigh.lab.record import read_header, read_result
from reweigh.lab.run import Interrupted, execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.suspects import suspects_of
from reweigh.lab.suspects.detect import of_run, out_of_fold
from reweigh.labels import METHODS, find_suspects

RESULTS = Path(__file__).parent / "results"
FOLDS = 5
STAGES = ("one run", "aum", "folds", "cleanlab", "retrained")


def main() -> None:
    """Do what is missing, then write the tables."""
    options = arguments()
    torch.set_num_threads(1)
    until = time.monotonic() + 60 * options.minutes
    watch = Stopwatch(options.root, options.device, options.jobs, until)
    chosen = [p for p in PROBLEMS if p.data in options.data and (options.problem or "") in p.name]
    try:
        trains = not {"cleanlab", "tables"}.issuperset(options.only)
        if trains and (options.jobs == 1 or "time" in options.only):
            warm_up(chosen[0], options.root, options.device)
        if "time" in options.only and options.jobs > 1:
            for data in options.data:
                Bench(first_of(data), 0, options, watch).time_alone()
        for seed in options.seeds:
            for problem in chosen:
                bench = Bench(problem, seed, options, watch)
                for stage in STAGES:
                    if stage in options.only:
                        bench.stage(stage)
    except Interrupted:
        print("time is up: what is not done goes on from here the next time", flush=True)
    if "tables" in options.only:
        for data in options.data:
            write(options.root, data, options.out / f"suspects-{data}.csv", {"folds": FOLDS})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="where the run folders lie, and all else")
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; with more than one they aren't timed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which runs are stopped")
    every = ("time", *STAGES, "tables")
    parser.add_argument("--only", nargs="*", default=list(every), choices=every, metavar="STAGE")
    parser.add_argument("--problem", help="only problems with this in their name")
    parser.add_argument("--iterations", type=int, help="instead of the problem's own")
    parser.add_argument("--commit", help="the commit that is measured, where git does not know it")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder of the tables")
    return parser.parse_args()


def first_of(data: str) -> Problem:
    """The problem whose runs tell what runs on these data cost."""
    return next(problem for problem in PROBLEMS if problem.data == data)


def warm_up(problem: Problem, root: Path, device: str) -> None:
    """Load what the first run of a process has to load, so that it isn't charged for it."""
    iterations = 1 if device == "cpu" else 8  # a GPU captures them after three
    run = problem.run(root, PLAIN, 0, device, iterations)
    with TemporaryDirectory() as folder:
        execute(replace(run, evaluate_every=iterations), Path(folder))


class Bench:
    """One problem with one seed; every stage leaves a file of lines."""

    def __init__(self, problem: Problem, seed: int, options: argparse.Namespace, watch: Stopwatch) -> None:
        self.problem, self.seed, self.watch = problem, seed, watch
        self.root: Path = options.root
        settings = options.device, options.iterations
        run = problem.run(self.root, PLAIN, seed, *settings)
        self.runs = {taught: replace(run, weighting=taught) for taught in (*problem.robust, PLAIN)}
        about = {"cleanlab": installed("cleanlab"), "run_on": options.device, "jobs": watch.jobs}
        self.made = provenance(options.commit) | about
        first = first_of(problem.data)
        run = run if (first, 0) == (problem, seed) else first.run(self.root, PLAIN, 0, *settings)
        self.timed, self.timed_fold = replace(run, weighting=first.robust[0]), folds_of(run)[0]

    def time_alone(self) -> None:
        """What a run and a fold cost."""
        for run in (self.timed, self.timed_fold):
            self.watch.alone(run)
            print(f"{run.folder_name()}: seconds alone: {self.watch.read(run)}", flush=True)

    def stage(self, name: str) -> None:
        """Do a stage for all that teaches in it, unless it is done."""
        robust = self.problem.robust
        plain, both = (PLAIN,), (PLAIN, robust[0])
        work: dict[str, tuple[Callable[[str], Lines], tuple[str, ...]]] = {
            "one run": (self.one_run, robust[:1] if self.problem.brief else (*robust, PLAIN)),
            "aum": (self.aum, () if self.problem.brief else plain),
            "folds": (self.folds, plain if self.problem.brief else both),
            "cleanlab": (self.cleanlab, plain if self.problem.brief else both),
            "retrained": (self.retrained, robust[:1] if self.problem.retrained else ()),
        }
        do, teachers = work[name]
        paths = {taught: self.lines(name, taught) for taught in teachers}
        missing = [taught for taught, path in paths.items() if not path.exists()]
        start = time.monotonic()
        for taught in missing:
            if self.watch.is_late():
                raise Interrupted(self.root, 0)
            beside = [taught] if name == "folds" else missing  # folds are enough by themselves
            self.watch.together([run for one in beside for run in self.needed(name, one)])
            if not (lines := do(taught)):
                continue
            settings = self.runs[taught].to_mapping()
            for varying in ("data", "weighting", "seed", "device"):
                settings.pop(varying, None)
            about = {"problem": self.problem.name, "data": self.problem.data, "seed": self.seed, "taught": taught}
            content = {"stage": name, "made": self.made, "settings": settings, "lines": [about | one for one in lines]}
            paths[taught].parent.mkdir(parents=True, exist_ok=True)
            paths[taught].write_text(json.dumps(content, indent=1))
            spent = f"{time.monotonic() - start:.0f} s"
            print(f"{self.problem.name}, seed {self.seed}, {taught}: {name}, {spent}", flush=True)

    def needed(self, name: str, taught: str) -> list[Run]:
        """The runs of a stage that can be told before it begins."""
        run = self.runs[taught]
        return {
            "one run": [run],
            "aum": [run, *threshold_runs(run)],
            "folds": folds_of(run),
            "cleanlab": [],
            "retrained": [self.runs[PLAIN], run],
        }[name]

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
            spent = finding if self.watch.jobs > 1 else looking + finding  # what was timed alone has looked already
            lines.append(ours(method, found, _truth(material.clean, given), self.cost([run], spent)))
        return lines

    def aum(self, taught: str) -> Lines:
        """As it was published: by cross entropy, with threshold samples, twice."""
        run = self.runs[taught]
        folder = self.watch(run, self.root)
        found = suspects_of(folder, method="aum", threshold_samples=True, run_one=self.watch)
        truth = _truth(found.clean, found.suspects.given)
        return [ours("aum, threshold samples", found.suspects, truth, self.cost(threshold_runs(run), 0.0))]

    def folds(self, taught: str) -> Lines:
        """Out-of-fold probabilities, kept for cleanlab, and our own reading of them."""
        run = self.runs[taught]
        material = gather(run)
        evidence = out_of_fold(run, self.root, FOLDS, material, run_one=self.watch)
        given = material.train.labels
        clean = _truth(material.clean, given)
        cost = self.cost(folds_of(run), 0.0)
        path = self.kept(taught)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"given": given.astype(np.int16), "clean": clean.astype(np.int16)}
        kept["probabilities"] = evidence.pred_probs.astype(np.float32)
        np.savez(path, seconds=np.array(np.nan if cost is None else cost), **kept)
        found, spent = self.watch.timed(lambda: find_suspects(given, evidence.pred_probs, description="final-p"))
        return [ours("final-p, out of fold", found, clean, None if cost is None else cost + spent)]

    def cleanlab(self, taught: str) -> Lines:
        """cleanlab on the same out-of-fold probabilities, where both are here."""
        if find_spec("cleanlab") is None or not self.kept(taught).exists():
            return []
        with np.load(self.kept(taught)) as kept:
            seconds = float(kept["seconds"])
            cost = None if np.isnan(seconds) else seconds
            given, clean = (kept[name].astype(np.int64) for name in ("given", "clean"))
            return cleanlabs(given, clean, kept["probabilities"].astype(np.float64), cost)

    def retrained(self, taught: str) -> Lines:
        """Test accuracy by cross entropy and by the robust weighting, on the labels as given and as corrected."""
        run, lines = self.runs[taught], []
        found = suspects_of(self.watch(run, self.root)).suspects
        corrected = np.where(found.issue, found.suggested, found.given)
        path = self.root / "corrected" / f"{run.hash()}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, corrected)
        again = {by: relabelled(self.runs[by], path.as_posix()) for by in (PLAIN, taught)}
        self.watch.together(list(again.values()))
        for by in (PLAIN, taught):
            for labels, one in (("given", self.runs[by]), ("corrected", again[by])):
                folder = self.watch(one, self.root)
                result, noise = read_result(folder) or {}, read_header(folder).details["noise"]
                accuracy = {which: result[which]["test_accuracy"] for which in ("final", "best")}
                lines.append({"trained_by": by, "labels": labels, "wrong_labels": noise["measured"]} | accuracy)
        return lines

    def lines(self, stage: str, taught: str) -> Path:
        return self.root / "lines" / f"{stage.replace(' ', '-')}-{self.runs[taught].hash()}.json"

    def kept(self, taught: str) -> Path:
        return self.root / "out-of-fold" / f"{self.runs[taught].hash()}.npz"

    def cost(self, runs: list[Run], spent: float) -> float | None:
        """Seconds of these runs and of what was done with them; None where one was cut short and its time is lost.

        Where several go at a time, those of their like that were carried out alone.
        """
        if self.watch.jobs > 1:
            runs = [self.timed if run.fold is None else self.timed_fold for run in runs]
        each = [self.watch.read(run) for run in runs]
        return None if None in each else sum(filter(None, each)) + spent


def folds_of(run: Run) -> list[Run]:
    """The runs of `out_of_fold`."""
    once = replace(run, record_p=False, record_margins=False, evaluate_every=run.iterations)
    return [replace(once, fold=f"{k}/{FOLDS}") for k in range(1, FOLDS + 1)]


def threshold_runs(run: Run) -> list[Run]:
    """The runs of `by_threshold_samples`."""
    return [replace(run, threshold_set=k, record_p=False, record_margins=True) for k in (0, 1)]


def _truth(clean: Any, given: Any) -> Any:
    """The true labels; where no noise was added, those that are given."""
    return given if clean is None else clean


if __name__ == "__main__":
    main()
