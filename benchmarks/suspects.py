"""Compare methods that find wrong labels: one robust run, cleanlab on five folds, and AUM; accuracy and cost.

    nice python benchmarks/suspects.py --data digits --root runs/suspects
    nice python benchmarks/suspects.py --data imdb --root runs/suspects --seeds 0

Stages, for each problem (suspects_problems.py) and seed, with the same net, noise and schedule:

    one run       one robust run with its record, and every method of `reweigh suspects`
    aum           two runs by cross entropy with threshold samples (Pleiss 2020)
    folds         five runs, each without one fold, by cross entropy and by the robust weighting; `find_suspects` is
                  applied to the out-of-fold probabilities, which are kept in --root/out-of-fold
    cleanlab      cleanlab on those probabilities; skipped if it is not installed
    retrained     issues are replaced by the suggested labels, and a new net is trained on them
    tables        the CSV of all results in --root for the chosen data, and the JSON with their provenance

`seconds` include training and evaluation of all runs, and finding the suspects: CPU time of one thread on a CPU, wall
time on a GPU. Finished work is not repeated, even if only lines/, out-of-fold/ and seconds/ of --root are left.

On a GPU, several runs share the device (--jobs), and several processes can run different problems or stages. Since this
does not measure the cost of a run, one more stage comes first:

    time          one robust run and one fold by cross entropy of the first problem of the data, each alone on the GPU,
                  including the probabilities of its examples; all other runs count as much

    python benchmarks/suspects.py --device cuda --jobs 5 --data cifar10 tin100 --root R --seeds 0 --only time
    python benchmarks/suspects.py --device cuda --jobs 5 --data cifar10 --root R --seeds 0 --only "one run" aum &
    python benchmarks/suspects.py --device cuda --jobs 5 --data cifar10 --root R --seeds 0 --only folds &

The stage cleanlab needs no GPU: copy R anywhere and add `--device cuda --only cleanlab tables`.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from provenance import installed, provenance
from suspects_problems import DATA, PLAIN, PROBLEMS, Problem

from reweigh.lab.procedures.label_correction import relabelled
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.record import read_header, read_result
from reweigh.lab.run import Interrupted, Update, execute, execute_many
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.suspects import suspects_of
from reweigh.lab.suspects.detect import of_run, out_of_fold
from reweigh.labels import METHODS, Suspects, find_suspects
from reweigh.metrics import auroc, average_precision

RESULTS = Path(__file__).parent / "results"
FOLDS = 5
STAGES = ("one run", "aum", "folds", "cleanlab", "retrained")

T = TypeVar("T")
Labels = NDArray[np.int64]
Lines = list[dict[str, Any]]


def main() -> None:
    """Run the missing stages, then write the tables."""
    options = arguments()
    torch.set_num_threads(1)
    deadline = time.monotonic() + 60 * options.minutes
    timer = RunTimer(options.root, options.device, options.jobs, deadline)
    chosen = [p for p in PROBLEMS if p.data in options.data and (options.problem or "") in p.name]
    try:
        trains = not {"cleanlab", "tables"}.issuperset(options.only)
        if trains and (options.jobs == 1 or "time" in options.only):
            warm_up(chosen[0], options.root, options.device)
        if "time" in options.only and options.jobs > 1:
            for data in options.data:
                Bench(first_of(data), 0, options, timer).time_alone()
        for seed in options.seeds:
            for problem in chosen:
                bench = Bench(problem, seed, options, timer)
                for stage in STAGES:
                    if stage in options.only:
                        bench.run_stage(stage)
    except Interrupted:
        print("time is up; call again to resume", flush=True)
    if "tables" in options.only:
        for data in options.data:
            write_tables(options.root, data, options.out / f"suspects-{data}.csv")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="directory of the runs and all other files")
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=DATA)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent runs; with more than one they are not timed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop runs after this time")
    every = ("time", *STAGES, "tables")
    parser.add_argument("--only", nargs="*", default=list(every), choices=every, metavar="STAGE")
    parser.add_argument("--problem", help="only problems whose name contains this")
    parser.add_argument("--iterations", type=int, help="replaces the problem's own")
    parser.add_argument("--commit", help="the measured commit, if git does not know it")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the tables")
    return parser.parse_args()


def first_of(data: str) -> Problem:
    """Return the problem whose runs are timed for these data."""
    return next(problem for problem in PROBLEMS if problem.data == data)


def warm_up(problem: Problem, root: Path, device: str) -> None:
    """Load what the first run of a process loads, so that it is not timed."""
    iterations = 1 if device == "cpu" else 8  # a GPU captures them after three
    run = problem.run(root, PLAIN, 0, device, iterations)
    with TemporaryDirectory() as folder:
        execute(replace(run, evaluate_every=iterations), Path(folder))


class RunTimer:
    """Executes runs, and stores the seconds of those that were executed alone and without interruption.

    Args:
        root: directory of the runs; seconds are stored in root/seconds.
        device: CPU time of this thread is measured on a CPU, wall time otherwise.
        jobs: concurrent runs.
        deadline: when to stop runs (`time.monotonic`), with a checkpoint and `reweigh.lab.run.Interrupted`.
    """

    def __init__(self, root: Path, device: str, jobs: int = 1, deadline: float = float("inf")) -> None:
        self.root, self.jobs, self.deadline = root, jobs, deadline
        self.clock = time.process_time if device == "cpu" else time.perf_counter

    def __call__(self, run: Run, root: Path) -> Path:
        """Execute a run unless it is finished, and return its folder."""
        started = (root / run.folder_name()).exists()
        folder, seconds = self.timed(lambda: execute(run, root, should_stop=self.is_late))
        if not started and self.jobs == 1:
            self._store(run, seconds)
        return folder

    def alone(self, run: Run) -> None:
        """Execute a run alone, and store its seconds including the probabilities of its examples.

        A run that was started before is skipped, since its time is not known.
        """
        if not (self.root / run.folder_name()).exists():
            folder, seconds = self.timed(lambda: execute(run, self.root, should_stop=self.is_late))
            _, predicting = self.timed(lambda: training_probabilities(run, folder, held_out=True))
            self._store(run, seconds + predicting)

    def together(self, runs: Sequence[Run]) -> None:
        """Execute unfinished runs concurrently; with one job do nothing, since they are executed one by one later."""
        missing = [run for run in dict.fromkeys(runs) if not (self.root / run.folder_name() / "result.json").exists()]
        if self.jobs == 1 or not missing:
            return
        start, done = time.monotonic(), 0

        def watch(number: int, update: Update) -> None:
            nonlocal done
            if update.row is not None and update.step == update.total:
                done += 1
                print(f"  {done} of {len(missing)} runs, {time.monotonic() - start:.0f} s", flush=True)

        for outcome in execute_many(missing, self.root, jobs=self.jobs, watch=watch, should_stop=self.is_late):
            if outcome.error is not None:
                raise outcome.error

    def is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """Return the result of `work` and the seconds it took."""
        start = self.clock()
        return work(), self.clock() - start

    def read(self, run: Run) -> float | None:
        """Return the seconds of a run, if known."""
        path = self._path(run)
        return float(json.loads(path.read_text())) if path.exists() else None

    def _store(self, run: Run, seconds: float) -> None:
        self._path(run).parent.mkdir(parents=True, exist_ok=True)
        self._path(run).write_text(json.dumps(seconds))

    def _path(self, run: Run) -> Path:
        return self.root / "seconds" / f"{run.folder_name()}.json"


class Bench:
    """One problem with one seed; each stage writes a file of lines per weighting."""

    def __init__(self, problem: Problem, seed: int, options: argparse.Namespace, timer: RunTimer) -> None:
        self.problem, self.seed, self.timer = problem, seed, timer
        self.root: Path = options.root
        settings = options.device, options.iterations
        run = problem.run(self.root, PLAIN, seed, *settings)
        self.runs = {weighting: by_objective(run, weighting) for weighting in (*problem.robust, PLAIN)}
        about = {"cleanlab": installed("cleanlab"), "run_on": options.device, "jobs": timer.jobs}
        self.made = provenance(options.commit) | about
        first = first_of(problem.data)
        run = run if (first, 0) == (problem, seed) else first.run(self.root, PLAIN, 0, *settings)
        self.timed, self.timed_fold = replace(run, weighting=first.robust[0]), folds_of(run)[0]

    def time_alone(self) -> None:
        """Time a run and a fold."""
        for run in (self.timed, self.timed_fold):
            self.timer.alone(run)
            print(f"{run.folder_name()}: seconds alone: {self.timer.read(run)}", flush=True)

    def run_stage(self, name: str) -> None:
        """Run a stage for each of its weightings, unless it is finished."""
        robust = self.problem.robust
        plain, both = (PLAIN,), (PLAIN, robust[0])
        work: dict[str, tuple[Callable[[str], Lines], tuple[str, ...]]] = {
            "one run": (self.one_run, robust[:1] if self.problem.brief else (*robust, PLAIN)),
            "aum": (self.aum, () if self.problem.brief else plain),
            "folds": (self.folds, plain if self.problem.brief else both),
            "cleanlab": (self.cleanlab, plain if self.problem.brief else both),
            "retrained": (self.retrained, robust[:1] if self.problem.retrained else ()),
        }
        stage, weightings = work[name]
        paths = {weighting: self.lines_file(name, weighting) for weighting in weightings}
        missing = [weighting for weighting, path in paths.items() if not path.exists()]
        start = time.monotonic()
        for weighting in missing:
            if self.timer.is_late():
                raise Interrupted(self.root, 0)
            concurrent = [weighting] if name == "folds" else missing  # the folds of one weighting are enough
            self.timer.together([run for each in concurrent for run in self.runs_of(name, each)])
            if not (lines := stage(weighting)):
                continue
            settings = self.runs[weighting].to_mapping()
            for varying in ("data", "weighting", "seed", "device"):
                settings.pop(varying, None)
            about = {"problem": self.problem.name, "data": self.problem.data, "seed": self.seed, "taught": weighting}
            content = {"stage": name, "made": self.made, "settings": settings, "lines": [about | one for one in lines]}
            paths[weighting].parent.mkdir(parents=True, exist_ok=True)
            paths[weighting].write_text(json.dumps(content, indent=1))
            seconds = f"{time.monotonic() - start:.0f} s"
            print(f"{self.problem.name}, seed {self.seed}, {weighting}: {name}, {seconds}", flush=True)

    def runs_of(self, name: str, weighting: str) -> list[Run]:
        """Return the runs of a stage that are known before it starts."""
        run = self.runs[weighting]
        return {
            "one run": [run],
            "aum": [run, *threshold_runs(run)],
            "folds": folds_of(run),
            "cleanlab": [],
            "retrained": [self.runs[PLAIN], run],
        }[name]

    def one_run(self, weighting: str) -> Lines:
        """Apply all methods to one run."""
        run = self.runs[weighting]
        folder, lines = self.timer(run, self.root), []
        material = gather(run)
        given = material.train.labels
        evidence, reading = self.timer.timed(lambda: of_run(run, folder, material))
        gaps: dict[str, Any] = {"logit_gaps": evidence.margins, "rivals": evidence.rivals}
        for method in METHODS[1:]:
            find = partial(find_suspects, given, evidence.pred_probs, method=method, history=evidence.history, **gaps)
            suspects, finding = self.timer.timed(find)
            seconds = finding if self.timer.jobs > 1 else reading + finding  # `alone` includes the probabilities
            lines.append(line_of(method, suspects, _truth(material.clean, given), self.cost([run], seconds)))
        if evidence.posteriors is not None:  # a run by Auto
            found, finding = self.timer.timed(lambda: suspects_of(folder).suspects)
            lines.append(line_of("posterior", found, _truth(material.clean, given), self.cost([run], finding)))
        return lines

    def aum(self, weighting: str) -> Lines:
        """Apply AUM as published: by cross entropy, with two sets of threshold samples."""
        run = self.runs[weighting]
        folder = self.timer(run, self.root)
        found = suspects_of(folder, method="aum", threshold_samples=True, run_one=self.timer)
        truth = _truth(found.clean, found.suspects.given)
        return [line_of("aum, threshold samples", found.suspects, truth, self.cost(threshold_runs(run), 0.0))]

    def folds(self, weighting: str) -> Lines:
        """Apply `find_suspects` to out-of-fold probabilities, and keep these for cleanlab."""
        run = self.runs[weighting]
        material = gather(run)
        evidence = out_of_fold(run, self.root, FOLDS, material, run_one=self.timer)
        given = material.train.labels
        clean = _truth(material.clean, given)
        cost = self.cost(folds_of(run), 0.0)
        path = self.kept(weighting)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"given": given.astype(np.int16), "clean": clean.astype(np.int16)}
        kept["probabilities"] = evidence.pred_probs.astype(np.float32)
        np.savez(path, seconds=np.array(np.nan if cost is None else cost), **kept)
        suspects, seconds = self.timer.timed(lambda: find_suspects(given, evidence.pred_probs))
        return [line_of("final-p, out of fold", suspects, clean, None if cost is None else cost + seconds)]

    def cleanlab(self, weighting: str) -> Lines:
        """Apply cleanlab to the same out-of-fold probabilities, if both are available."""
        if find_spec("cleanlab") is None or not self.kept(weighting).exists():
            return []
        with np.load(self.kept(weighting)) as kept:
            seconds = float(kept["seconds"])
            cost = None if np.isnan(seconds) else seconds
            given, clean = (kept[name].astype(np.int64) for name in ("given", "clean"))
            return cleanlab_lines(given, clean, kept["probabilities"].astype(np.float64), cost)

    def retrained(self, weighting: str) -> Lines:
        """Measure test accuracy by cross entropy and by the robust weighting, on given and on corrected labels."""
        run, lines = self.runs[weighting], []
        suspects = suspects_of(self.timer(run, self.root)).suspects
        corrected = np.where(suspects.issue, suspects.suggested, suspects.given)
        path = self.root / "corrected" / f"{run.hash()}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, corrected)
        again = {by: relabelled(self.runs[by], path.as_posix()) for by in (PLAIN, weighting)}
        self.timer.together(list(again.values()))
        for by in (PLAIN, weighting):
            for labels, one in (("given", self.runs[by]), ("corrected", again[by])):
                folder = self.timer(one, self.root)
                result, noise = read_result(folder) or {}, read_header(folder).details["noise"]
                accuracy = {which: result[which]["test_accuracy"] for which in ("final", "best")}
                lines.append({"trained_by": by, "labels": labels, "wrong_labels": noise["measured"]} | accuracy)
        return lines

    def lines_file(self, stage: str, weighting: str) -> Path:
        return self.root / "lines" / f"{stage.replace(' ', '-')}-{self.runs[weighting].hash()}.json"

    def kept(self, weighting: str) -> Path:
        return self.root / "out-of-fold" / f"{self.runs[weighting].hash()}.npz"

    def cost(self, runs: list[Run], seconds: float) -> float | None:
        """Return the seconds of these runs and of finding suspects; None if one was interrupted.

        If runs are concurrent, each counts as much as the run or fold that was timed alone.
        """
        if self.timer.jobs > 1:
            runs = [self.timed if run.fold is None else self.timed_fold for run in runs]
        each = [self.timer.read(run) for run in runs]
        return None if None in each else sum(filter(None, each)) + seconds


def by_objective(run: Run, name: str) -> Run:
    """Return the run with another weighting, or by the method Auto."""
    return replace(run, weighting=None, method=name) if name == "Auto" else replace(run, weighting=name)


def folds_of(run: Run) -> list[Run]:
    """Return the runs of `out_of_fold`."""
    once = replace(run, record_p=False, record_margins=False, evaluate_every=run.iterations)
    return [replace(once, fold=f"{k}/{FOLDS}") for k in range(1, FOLDS + 1)]


def threshold_runs(run: Run) -> list[Run]:
    """Return the runs of `by_threshold_samples`."""
    return [replace(run, threshold_set=k, record_p=False, record_margins=True) for k in (0, 1)]


def _truth(clean: Any, given: Any) -> Any:
    """Return the true labels, which are the given ones if no noise was added."""
    return given if clean is None else clean


def line(
    how: str,
    score: NDArray[np.float64],
    issue: NDArray[np.bool_],
    given: Labels,
    clean: Labels,
    seconds: float | None,
    rate: tuple[float, float | None, float | None],
) -> dict[str, Any]:
    """Return one line of the table: quality of the ranking and of the issues, the estimated rate, and the cost."""
    wrong = given != clean
    count = int(wrong.sum())
    top = np.argsort(-score, kind="stable")[:count]
    truth, ranking = torch.from_numpy(wrong), torch.from_numpy(np.ascontiguousarray(score))
    classes = np.bincount(clean).argsort(kind="stable")
    alarms = {int(k): float(issue[(given == k) & ~wrong].mean()) for k in classes if ((given == k) & ~wrong).any()}
    return {
        "how": how,
        "examples": len(given),
        "auroc": auroc(ranking, truth) if count else None,
        "average_precision": average_precision(ranking, truth) if count else None,
        # precision equals recall if as many are taken as are wrong
        "precision_and_recall_at_rate": float(wrong[top].mean()) if count else None,
        "called": float(issue.mean()),
        "called_precision": float(wrong[issue].mean()) if issue.any() and count else None,
        "called_recall": float(issue[wrong].mean()) if count else None,
        "false_alarms": float(issue[~wrong].mean()),
        "false_alarms_rarest_class": alarms[min(alarms, key=lambda k: int((clean == k).sum()))],
        "false_alarms_worst_class": max(alarms.values()),
        "false_alarms_by_class": " ".join(f"{alarms.get(k, float('nan')):.4f}" for k in range(int(clean.max()) + 1)),
        "rate": float(wrong.mean()),
        "rate_estimated": rate[0],
        "rate_low": rate[1],
        "rate_high": rate[2],
        "rate_error": rate[0] - float(wrong.mean()),
        "seconds": seconds,
    }


def line_of(how: str, suspects: Suspects, clean: Labels, seconds: float | None) -> dict[str, Any]:
    """Return the line of a `Suspects`."""
    noise = suspects.noise
    assert noise is not None, "suspects read from a file have no noise estimate"
    rate = noise.rate, noise.low, noise.high
    return line(how, suspects.score, suspects.issue, suspects.given, clean, seconds, rate)


def cleanlab_lines(given: Labels, clean: Labels, probabilities: NDArray[np.float64], seconds: float | None) -> Lines:
    """Return the lines of cleanlab's two label-quality scores, with the issues of find_label_issues."""
    count, filter, rank = (import_module(f"cleanlab.{name}") for name in ("count", "filter", "rank"))
    lines = []
    for method in ("self_confidence", "normalized_margin"):
        start = time.perf_counter()
        issue = filter.find_label_issues(given, probabilities, n_jobs=1)
        quality = rank.get_label_quality_scores(given, probabilities, method=method)
        joint = count.estimate_joint(given, probabilities)
        finding = time.perf_counter() - start
        rate = float(1 - np.trace(joint)), None, None
        cost = None if seconds is None else seconds + finding
        lines.append(line(f"cleanlab, {method}", 1 - quality, issue, given, clean, cost, rate))
    return lines


def write_tables(root: Path, data: str, out: Path) -> None:
    """Write a CSV with a line per problem, seed, weighting and method, and one of the results of retraining.

    The JSON next to it has the settings of each problem's runs, and the provenance of each stage.
    """
    tables: dict[str, Lines] = {"": [], "-retrained": []}
    made: dict[str, set[str]] = {}
    settings: dict[str, Any] = {}
    for path in sorted((root / "lines").glob("*.json")):
        content = json.loads(path.read_text())
        lines = [one for one in content["lines"] if one["data"] == data]
        tables["-retrained" if content["stage"] == "retrained" else ""] += lines
        if lines:
            made.setdefault(json.dumps(content["made"]), set()).add(content["stage"])
            settings[lines[0]["problem"]] = content["settings"]
    if not made:
        print(f"{data}: no results yet")
        return
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
    about = {
        "folds": FOLDS,
        "settings": dict(sorted(settings.items(), key=lambda item: order[item[0]])),
        "made": [json.loads(m) | {"stages": sorted(stages)} for m, stages in made.items()],
    }
    out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
