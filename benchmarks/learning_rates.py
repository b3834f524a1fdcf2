"""How much does the learning rate decide? Seven criteria at four rates on noisy digits, three seeds each.

    python benchmarks/learning_rates.py --out benchmarks/results/learning-rates.csv --runs RUNS

Digits with 40 % symmetric noise, mlp-128, 1,500 iterations of 128, everything else as a `Run` has it by default; final
test accuracy in per cent, and how many of the ten classes were given up (mean over seeds). 84 runs, a few minutes on
one core; finished runs in RUNS are not repeated.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from pathlib import Path

import torch

from reweigh.record import environment, read_result
from reweigh.run import execute
from reweigh.spec import Run
from reweigh.spec.run import Normalise

CRITERIA: tuple[tuple[str, Normalise], ...] = (
    ("CCE", "auto"),
    ("GCE(0.7)", "auto"),
    ("DM(0.5, 8)", "auto"),
    ("DM(1, 8)", "auto"),
    ("DM(1, 16)", "auto"),
    ("DM(0.5, 8)", "class"),
    ("DM(1, 16)", "class"),
)
RATES = (0.003, 0.01, 0.03, 0.1)
SEEDS = (0, 1, 2)


def outcome(weighting: str, normalise: Normalise, rate: float, seed: int, runs: Path) -> tuple[float, int]:
    """Per cent of the test part at the end of training, and the number of classes given up."""
    run = Run(
        data="digits",
        net="mlp-128",
        weighting=weighting,
        normalise=normalise,
        noise="symmetric",
        rate=0.4,
        iterations=1500,
        evaluate_every=500,
        lr=rate,
        seed=seed,
        device="cpu",
    )
    result = read_result(execute(run, runs)) or {}
    return 100 * float(result["final"]["test_accuracy"]), len(result["given_up"])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--runs", type=Path, required=True, help="where the run folders go")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    where = environment()
    rows = []
    for weighting, normalise in CRITERIA:
        for rate in RATES:
            found = [outcome(weighting, normalise, rate, seed, arguments.runs) for seed in SEEDS]
            accuracies, lost = zip(*found, strict=True)
            mean, spread = round(statistics.fmean(accuracies), 1), round(statistics.stdev(accuracies), 1)
            given_up = round(statistics.fmean(lost), 1)
            print(f"{weighting:12} {normalise:6} lr {rate:<6} {mean} ± {spread}, {given_up} given up", flush=True)
            rows.append(
                {"weighting": weighting, "normalise": normalise, "lr": rate, "mean": mean, "stdev": spread}
                | {"given_up": given_up, "seeds": len(SEEDS)}
                | {key: where[key] for key in ("commit", "torch", "system", "threads")}
            )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
