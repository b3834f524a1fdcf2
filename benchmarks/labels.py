"""Compare one training by Auto with cross-validation as detectors of wrong labels, on features, texts and digits.

python benchmarks/labels.py --root runs/labels --data DATA --out benchmarks/results/labels.csv --seeds 0 1 2

DATA is the data folder (cifar10, tin100, imdb). All problems run on one CPU core in about an hour. For each problem and
seed, the same net with the same settings is trained

    auto      once, by Auto on all labels, as `reweigh suspects` does: its score
    gce       once, by GCE(0.7): `duel`
    folds     five times by cross entropy, each without one fold: cleanlab's self-confidence, 1 - p out of fold

and once each on the given labels and on those corrected by `reweigh correct` with the suspects of auto: test accuracy
on true labels. The columns: average precision, share of the wrong labels missed at a budget equal to the noise rate,
precision and recall of the issues, estimated and true rate, seconds of training and scoring, share of wrong labels
before and after the correction.

The larger problems (ResNet-20 on all of CIFAR-10 and tin100, 2,500 iterations, on a GPU) are in benchmarks/suspects.py;
they have not been measured with Auto.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from reweigh.lab.data.registry import load
from reweigh.lab.features import extract
from reweigh.lab.procedures.label_correction import relabelled
from reweigh.lab.record import read_result
from reweigh.lab.run import execute
from reweigh.lab.run.defaults import default_run
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.suspects import suspects_of
from reweigh.labels import Suspects, verdicts
from reweigh.metrics import average_precision

SIZE, TEST = 4000, 2000
FOLDS = 5


class Problem(NamedTuple):
    """A problem: data, the extractor of its features (None: as they are), and its noise."""

    data: str
    features: str | None
    noise: str
    rate: float


PROBLEMS = (
    Problem("digits", None, "symmetric", 0.4),
    Problem("digits", None, "pair", 0.2),
    Problem("cifar10", "efficientnet-lite0", "symmetric", 0.4),
    Problem("cifar10", "efficientnet-lite0", "asymmetric_cifar10", 0.4),
    Problem("tin100", "efficientnet-lite0", "symmetric", 0.4),
    Problem("tin100", "efficientnet-lite0", "pair", 0.4),
    Problem("imdb", "wordllama", "symmetric", 0.2),
    Problem("imdb", "hashed", "symmetric", 0.2),
)


def prepare(problem: Problem, root: Path, data: Path) -> str:
    """Write a subset of a data set as features to a file once, and return its path."""
    if problem.features is None:
        return problem.data
    path = root / f"{problem.data}-{problem.features}.npz"
    if not path.exists():
        dataset, arrays = load(problem.data, data), dict[str, Any]()
        for name, part, size in (("train", dataset.train, SIZE), ("test", dataset.test, TEST)):
            some = part.take(np.sort(np.random.default_rng(0).permutation(len(part))[:size]))
            if problem.features == "hashed":
                from reweigh.lab.data.vectors import hash_texts

                arrays[f"x_{name}"] = hash_texts(some.inputs)  # type: ignore[arg-type]
            else:
                arrays[f"x_{name}"] = extract(some.inputs, some.kind, problem.features)
            arrays[f"y_{name}"] = some.labels
        arrays["class_names"] = np.array(dataset.class_names)
        root.mkdir(parents=True, exist_ok=True)
        np.savez(path, **arrays)
    return path.as_posix()


def timed_run(run: Run, root: Path) -> tuple[Path, float]:
    folder = execute(run, root)
    return folder, float((read_result(folder) or {})["seconds"])


def line(
    how: str, score: NDArray[np.float64], suspects: Suspects | None, wrong: NDArray[np.bool_], seconds: float
) -> dict[str, Any]:
    """Return the quality of a ranking and of its issues."""
    worst = np.argsort(-score, kind="stable")[: int(wrong.sum())]
    issue = None if suspects is None else suspects.issue
    noise = None if suspects is None else suspects.noise
    return {
        "how": how,
        "average_precision": average_precision(torch.from_numpy(score), torch.from_numpy(wrong)),
        "missed_at_rate": 1 - float(wrong[worst].mean()),
        "precision": None if issue is None or not issue.any() else float(wrong[issue].mean()),
        "recall": None if issue is None else float(issue[wrong].mean()),
        "estimated_rate": None if noise is None else noise.rate,
        "rate": float(wrong.mean()),
        "seconds": seconds,
    }


def measure(problem: Problem, root: Path, data: Path, seed: int) -> list[dict[str, Any]]:
    """Return the lines of one problem and seed."""
    fields = {"noise": problem.noise, "rate": problem.rate, "seed": seed, "device": "cpu"}
    # words as `reweigh suspects` reads texts: a file of vectors does not say that they are texts
    fields |= {"inputs": "none", "lr": 0.3} if problem.features == "hashed" else {}
    run = default_run(prepare(problem, root, data), fields)
    runs, lines = root / "runs", list[dict[str, Any]]()
    folder, seconds = timed_run(run, runs)
    started = time.perf_counter()
    found = suspects_of(folder)
    assert found.clean is not None
    suspects, clean = found.suspects, found.clean
    given, wrong = suspects.given, suspects.given != clean
    lines.append(line("auto", suspects.score, suspects, wrong, seconds + time.perf_counter() - started))

    gce = replace(run, method=None, weighting="GCE(0.7)")
    folder, seconds = timed_run(gce, runs)
    duel = suspects_of(folder).suspects
    lines.append(line("gce", duel.score, duel, wrong, seconds))

    plain = replace(run, method=None, weighting="CCE", record_p=False, record_margins=False)
    folder, _ = timed_run(replace(plain, evaluate_every=run.iterations), runs)
    seconds = 0.0
    for k in range(1, FOLDS + 1):
        part = replace(plain, fold=f"{k}/{FOLDS}", evaluate_every=run.iterations)
        seconds += timed_run(part, runs)[1]
    gathered = replace(plain, evaluate_every=run.iterations)
    folded = suspects_of(execute(gathered, runs), folds=FOLDS).suspects
    lines.append(line("folds", folded.score, folded, wrong, seconds))

    verdict = verdicts(suspects)
    after = np.where(verdict == "fix", suspects.suggested, given)
    keep = verdict != "drop"
    names = [root / f"corrected-{run.hash()}-{name}.npy" for name in ("labels", "kept")]
    np.save(names[0], after[keep])
    np.save(names[1], keep.astype(np.uint8))
    corrected = replace(
        relabelled(gathered, names[0].as_posix()), imbalance=f"kept('{names[1].as_posix()}')", noise_seed=None
    )
    accuracy = {
        name: float((read_result(execute(each, runs)) or {})["final"]["test_accuracy"])
        for name, each in (("accuracy_given", gathered), ("accuracy_corrected", corrected))
    }
    lines[0] |= {
        "fixed": float((verdict == "fix").mean()),
        "dropped": float((~keep).mean()),
        "wrong_after": float((after != clean)[keep].mean()),
        **accuracy,
    }
    where = {"data": problem.data, "features": problem.features, "noise": problem.noise, "seed": seed}
    shared = {"examples": len(given), "iterations": run.iterations, "lr": run.lr, "batch_size": run.batch_size}
    assert len(gather(run).train) == len(given)
    return [where | shared | each for each in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", help="data sets")
    chosen = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for seed in chosen.seeds:
        for problem in PROBLEMS:
            if chosen.only and problem.data not in chosen.only:
                continue
            found = measure(problem, chosen.root, chosen.data, seed)
            lines += found
            print(problem, seed, *(f"{each['how']} {each['average_precision']:.3f}" for each in found), flush=True)
            names = list(dict.fromkeys(name for each in lines for name in each))
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            with chosen.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, names, lineterminator="\n")
                writer.writeheader()
                writer.writerows(
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in each.items()} for each in lines
                )


if __name__ == "__main__":
    main()
