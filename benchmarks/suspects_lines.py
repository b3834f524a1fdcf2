"""The lines of `suspects.py`'s tables: what a list of suspects is worth where it is known which labels are wrong."""

from __future__ import annotations

import csv
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from suspects_problems import PROBLEMS

from reweigh.labels import Suspects
from reweigh.metrics import auroc, average_precision

Labels = NDArray[np.int64]
Lines = list[dict[str, Any]]


def line(
    how: str,
    score: NDArray[np.float64],
    issue: NDArray[np.bool_],
    given: Labels,
    clean: Labels,
    seconds: float | None,
    rate: tuple[float, float | None, float | None],
) -> dict[str, Any]:
    """One line: the ranking, those called wrong, the estimated rate with its interval, and the cost in seconds."""
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
        # with as many taken as are wrong, precision and recall are the same number
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


def ours(how: str, suspects: Suspects, clean: Labels, seconds: float | None) -> dict[str, Any]:
    """The line of a `Suspects`."""
    noise = suspects.noise
    if noise is None:
        raise ValueError("suspects read from a file have no noise estimate")
    rate = noise.rate, noise.low, noise.high
    return line(how, suspects.score, suspects.issue, suspects.given, clean, seconds, rate)


def cleanlabs(given: Labels, clean: Labels, probabilities: NDArray[np.float64], seconds: float | None) -> Lines:
    """cleanlab on out-of-fold probabilities: its two label-quality scores, with find_label_issues' verdict."""
    count, filter, rank = (import_module(f"cleanlab.{name}") for name in ("count", "filter", "rank"))
    lines = []
    for method in ("self_confidence", "normalized_margin"):
        start = time.perf_counter()
        issue = filter.find_label_issues(given, probabilities, n_jobs=1)
        quality = rank.get_label_quality_scores(given, probabilities, method=method)
        joint = count.estimate_joint(given, probabilities)
        spent = time.perf_counter() - start
        rate = float(1 - np.trace(joint)), None, None
        cost = None if seconds is None else seconds + spent
        lines.append(line(f"cleanlab, {method}", 1 - quality, issue, given, clean, cost, rate))
    return lines


def write(root: Path, data: str, out: Path, about: dict[str, Any]) -> None:
    """One line per problem, seed, teacher and score; what retraining gave in a table of its own.

    The JSON beside it has `about`, the settings of each problem's runs, and what made which stages.
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
        print(f"{data}: nothing is done yet")
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
    about = about | {
        "settings": dict(sorted(settings.items(), key=lambda item: order[item[0]])),
        "made": [json.loads(m) | {"stages": sorted(stages)} for m, stages in made.items()],
    }
    out.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")
