"""The page of experiments whose data could not be had: what to download, and which command gives the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from paper.experiment import Experiment
from paper.plan import trials
from reweigh.lab.data.get import SOURCES
from reweigh.lab.spec import Run

STAND_INS = {  # data set -> the test that trains on a stand-in in its official layout
    "cifar100": "test_cifar100",
    "vehicles10": "test_vehicles10",
    "clothing1m": "test_clothing1m",
    "mars": "test_mars",
}
REASONS = {
    "cifar100": "its images could not be obtained; tin100 replaces it where that makes sense",
    "vehicles10": "it is made of pictures of CIFAR-100",
    "clothing1m": "its authors give it by agreement only",
    "mars": "its authors give it on their page only; mini_mars is a part of it",
}
WEIGHTS = {"clothing1m", "mars"}  # start from ImageNet weights
HEAD = """# Experiments whose data are missing

These tables are complete as experiments but not measured, because their data could not be had. The code path is
tested: `tests/paper/test_layouts.py` writes a stand-in of each data set in its official layout and trains a row of a
table on it, with its own net and settings but two iterations. `--quick` runs every row on toy data. The numbers appear
in the tables once somebody runs the command and adds the record.

Expected GPU times are computed from the throughput measured on an H200 (`benchmarks/results/harness.json`), one run at
a time, for all rows, columns, seeds and trials. Where the net was not measured, the time is not known. A procedure of
several trainings counts as one run."""
HARNESS = {"resnet44": "resnet44", "resnet44-projection": "resnet44", "resnet56": "resnet56"}  # nets that were timed
STEP = {"fp32": "captured, fp32", "bf16": "captured, bf16, own convolutions, compiled"}


def data_of(experiment: Experiment) -> str:
    """Return the data set of an experiment."""
    return next(run.data for cell in experiment.cells for run in cell.runs)


def planned_runs(experiment: Experiment) -> list[Run]:
    """Return the runs of an experiment: one for every cell and seed, and the trials."""
    cells = [cell.runs[0] for cell in experiment.cells if cell.runs]
    return [*cells * len(experiment.seeds), *trials(experiment)]


def gpu_hours(runs: Sequence[Run], root: Path) -> float | None:
    """Return the hours of runs one after another by the measured throughput; None if a net was not measured."""
    path = root / "benchmarks" / "results" / "harness.json"
    rows = json.loads(path.read_text())["results"] if path.exists() else []
    speed = {(row["net"], row["what"]): row["images_per_second"] for row in rows if row["jobs"] == 1}
    seconds = 0.0
    for run in runs:
        throughput = speed.get((HARNESS.get(run.net, ""), STEP.get(run.precision, "")))
        if throughput is None:
            return None
        seconds += run.iterations * run.batch_size / throughput
    return seconds / 3600


def missing_page(left: Sequence[Experiment], root: Path) -> str:
    """Return the page for the experiments without results whose data could not be had."""
    parts = [HEAD]
    for each in left:
        data = data_of(each)
        if data not in STAND_INS:
            continue
        runs, source = planned_runs(each), SOURCES[data]
        hours = gpu_hours(runs, root)
        file = f"paper/experiments/{each.name.partition('-')[0]}.py"
        name = f" --only {each.name.partition('-')[2]}" if "-" in each.name else ""
        weights = " --init-file WEIGHTS" if data in WEIGHTS else ""
        command = f"python -m paper run {file}{name}{weights} --device cuda --save paper/results"
        get = source.by_hand or f"`reweigh data get {data}` downloads it"
        rows = [
            ("data", f"`{data}`; {REASONS[data]}"),
            ("to get it", f"{get}, into the folder that `REWEIGH_DATA` names"),
            ("protocol", each.protocol),
            ("command", f"`{command}`"),
            ("runs", f"{len(runs)}, of them {len(trials(each))} trials"),
            ("GPU time", "not measured" if hours is None else f"about {hours:.1f} hours"),
            ("stand-in", f"`tests/paper/test_layouts.py::{STAND_INS[data]}`"),
        ]
        if data in WEIGHTS:
            rows.insert(2, ("weights", "of the net, trained on ImageNet"))
        table = "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows)])
        parts.append(f"## {each.title} (`{each.name}`)\n\n{table}")
    return "\n\n".join(parts) + "\n"
