"""Compare criteria at four or five learning rates on noisy digits, in long and short runs, with three seeds.

    python benchmarks/learning_rates.py --out benchmarks/results/learning-rates.csv --runs RUNS

Digits with 40 % symmetric noise, mlp-128, 1,500 or 300 iterations of 128, else the defaults of `Run`. The table has the
final test accuracy in per cent and the number of the ten classes that collapsed (mean over seeds). 159 runs take a few
minutes on one core; finished runs in RUNS are not repeated.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from pathlib import Path
from typing import TypeAlias

import torch

from reweigh.lab.record import environment, read_result
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
from reweigh.lab.spec.run import Normalise

Criteria: TypeAlias = tuple[tuple[str, Normalise], ...]
PLAIN: Criteria = (("CCE", "auto"), ("GCE(0.7)", "auto"), ("DM(0.5, 8)", "auto"), ("DM(1, 8)", "auto"))
NARROW: Criteria = (("DM(1, 16)", "auto"), ("DM(1, 16)", "class"), ("DM(2, 20)", "auto"), ("DM(2, 20)", "class"))
PARTS: tuple[tuple[int, Criteria, tuple[float, ...]], ...] = (
    (1500, (*PLAIN, ("DM(0.5, 8)", "class"), *NARROW[:2]), (0.003, 0.01, 0.03, 0.1)),
    (300, (PLAIN[0], *NARROW), (0.003, 0.01, 0.03, 0.1, 0.3)),
)
SEEDS = (0, 1, 2)


def outcome(
    weighting: str, normalise: Normalise, iterations: int, rate: float, seed: int, runs: Path
) -> tuple[float, int]:
    """Return the final test accuracy in per cent and the number of collapsed classes."""
    run = Run(
        data="digits",
        net="mlp-128",
        weighting=weighting,
        normalise=normalise,
        noise="symmetric",
        rate=0.4,
        iterations=iterations,
        evaluate_every=iterations // 3,
        lr=rate,
        seed=seed,
        device="cpu",
    )
    result = read_result(execute(run, runs)) or {}
    return 100 * float(result["final"]["test_accuracy"]), len(result["collapsed_classes"])


def main() -> None:
    """Train, print and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--runs", type=Path, required=True, help="directory for run folders")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    where = environment()
    rows = []
    cells = [(n, *criterion, rate) for n, criteria, rates in PARTS for criterion in criteria for rate in rates]
    for iterations, weighting, normalise, rate in cells:
        outcomes = [outcome(weighting, normalise, iterations, rate, seed, arguments.runs) for seed in SEEDS]
        accuracies, collapsed = zip(*outcomes, strict=True)
        mean, spread = round(statistics.fmean(accuracies), 1), round(statistics.stdev(accuracies), 1)
        collapsed_classes = round(statistics.fmean(collapsed), 1)
        cell = f"{iterations:4} {weighting:10} {normalise:5} lr {rate:<5}"
        print(f"{cell} {mean} ± {spread}, {collapsed_classes} collapsed", flush=True)
        rows.append(
            {"iterations": iterations, "weighting": weighting, "normalise": normalise, "lr": rate}
            | {"mean": mean, "stdev": spread, "collapsed_classes": collapsed_classes, "seeds": len(SEEDS)}
            | {key: where[key] for key in ("commit", "torch", "system", "threads")}
        )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
