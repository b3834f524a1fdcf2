"""Compare a search of 20 trials with the paper's 4 x 4 grid: digits, 40 % symmetric noise, five seeds.

    python benchmarks/search.py --out benchmarks/results          (a few hundred short runs, one process)

The grid is an oracle: each of its 16 settings is trained on all training data, and the best is selected by *test*
accuracy. The search uses no test example: it trains 20 settings on 80 % of the training set, scores them on the other
20 %, once with clean and once with noisy labels, and trains the best setting on all training data. Target: within one
point of the oracle.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from reweigh.lab.record import environment, read_result
from reweigh.lab.record.files import jsonable
from reweigh.lab.run import execute
from reweigh.lab.search import parse_space, plan_search, search
from reweigh.lab.search.storage import silence_optuna
from reweigh.lab.spec import Run, parse

SEEDS, TRIALS = range(5), 20
FIELDS: dict[str, Any] = {
    "data": "digits",
    "net": "mlp-64",
    "noise": "symmetric",
    "rate": 0.4,
    "iterations": 300,
    "batch_size": 64,
    "evaluate_every": 30,
}
GRID = (
    "DM(lam=0, beta={0.5,1,2,4}) | DM(lam=0.5, beta={4,8,12,16}) | "
    "DM(lam=1, beta={8,12,16,20}) | DM(lam=2, beta={12,16,20,24})"
)
SPACE = "DM(lam=0..2, beta=0.5..24)"
WHERE = {"device": "cpu"}


class Line(NamedTuple):
    """A final run: how its setting was selected, and its accuracies."""

    how: str
    seed: int
    lam: float
    beta: float
    validation: float | None
    test_final: float
    test_best: float


def main() -> None:
    """Train, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write search.csv, .json and .png to")
    parser.add_argument("--runs", type=Path, help="directory to keep runs in; those that it has are reused")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    silence_optuna()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.runs or Path(scratch)
        lines = [line for seed in SEEDS for line in (*grid(seed, root), *searched(seed, root))]
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    with (out / "search.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Line._fields)
        table.writerows(lines)
    report = {
        "question": (__doc__ or "").splitlines()[0],
        "provenance": environment("cpu"),
        "run": FIELDS,
        "grid": GRID,
        "space": SPACE,
        "trials": TRIALS,
        "results": summary(lines),
        "seconds": round(time.perf_counter() - started),
    }
    (out / "search.json").write_text(json.dumps(jsonable(report), indent=2) + "\n")
    draw(lines, out / "search.png")
    print(json.dumps(report["results"], indent=2))


def grid(seed: int, root: Path) -> list[Line]:
    """Train every setting of the paper's ablation on all training data."""
    space = parse_space(GRID)
    return [line("grid", seed, space.settle(point)["weighting"], None, root) for point in space.points()]


def searched(seed: int, root: Path) -> list[Line]:
    """Search with a clean and with a noisy validation set, and train the best settings."""
    lines = []
    for labels in ("clean", "noisy"):
        fields = {**FIELDS, "seed": seed, "validation_labels": labels}
        plan = plan_search(fields, SPACE, trials=TRIALS, seed=seed, seeds=(seed,))
        outcome = search(plan, root, where=WHERE)
        assert outcome.best is not None
        weighting = outcome.setting(outcome.best)["weighting"]
        lines.append(line(f"search, {labels}", seed, weighting, outcome.best.score, root))
    return lines


def line(how: str, seed: int, weighting: str, validation: float | None, root: Path) -> Line:
    """Train a setting on all training data."""
    run = Run.from_mapping({**FIELDS, "seed": seed, "weighting": weighting, **WHERE})
    result = read_result(execute(run, root)) or {}
    values: dict[str, Any] = dict(parse(weighting).kwargs)
    scores = (result[which]["test_accuracy"] for which in ("final", "best"))
    final = Line(how, seed, values["lam"], values["beta"], validation, *scores)
    print(*final, flush=True)
    return final


def summary(lines: list[Line]) -> dict[str, Any]:
    """Return means over seeds, and the gap of the search to the oracle in points of test accuracy."""
    by_setting: dict[tuple[float, float], list[float]] = defaultdict(list)
    for each in lines:
        if each.how == "grid":
            by_setting[each.lam, each.beta].append(100 * each.test_final)
    best = max(by_setting, key=lambda setting: statistics.fmean(by_setting[setting]))
    top = statistics.fmean(by_setting[best])
    tops = [max(100 * each.test_final for each in lines if each.how == "grid" and each.seed == s) for s in SEEDS]
    results: dict[str, Any] = {
        "best of the grid by mean test accuracy": {"lam": best[0], "beta": best[1], **spread(by_setting[best])},
        "best of the grid, picked anew for every seed": spread(tops),
        "middle of the grid": spread([statistics.median(v) for v in zip(*by_setting.values(), strict=True)]),
    }
    for how in ("search, clean", "search, noisy"):
        own = [100 * each.test_final for each in lines if each.how == how]
        results[how] = spread(own) | {
            "behind the best of the grid (target 1)": round(top - statistics.fmean(own), 2),
            "behind the best of every seed": [round(a - b, 2) for a, b in zip(tops, own, strict=True)],
        }
    return results


def spread(values: list[float]) -> dict[str, float]:
    """Return mean and standard deviation."""
    return {"mean": round(statistics.fmean(values), 2), "deviation": round(statistics.stdev(values), 2)}


def draw(lines: list[Line], path: Path) -> None:
    """Draw lam and beta: the mean accuracy of the grid as colour, the settings of the searches as crosses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    cells: dict[tuple[float, float], list[float]] = defaultdict(list)
    for each in lines:
        if each.how == "grid":
            cells[each.lam, each.beta].append(100 * each.test_final)
    x, y = zip(*cells, strict=True)
    means = [statistics.fmean(values) for values in cells.values()]
    shown = axes.scatter(x, y, c=means, s=260, cmap="viridis", edgecolors="#555", linewidths=0.5, label="grid, mean")
    for how, colour, mark in (("search, clean", "#d55e00", "x"), ("search, noisy", "#cc79a7", "+")):
        chosen = [each for each in lines if each.how == how]
        mean = statistics.fmean(100 * each.test_final for each in chosen)
        label = f"{how} validation: {mean:.1f} %"
        axes.scatter([e.lam for e in chosen], [e.beta for e in chosen], c=colour, marker=mark, s=90, label=label)
    axes.set(xlabel="lam", ylabel="beta", title="digits, 40 % noise, five seeds: final test accuracy (%)")
    axes.legend(fontsize=8)
    figure.colorbar(shown)
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    main()
