"""The experiments of the repository load, have the paper's numbers, and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paper import Experiment
from paper.experiment import load
from paper.figures import results_figure
from paper.findings import Finding
from paper.runner import RunOptions, run_experiments, run_states
from paper.tables import collect
from reweigh.lab.spec import Run

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "paper" / "experiments"
FILES = sorted(FOLDER.glob("*.py"))
# experiments with the same cells as another one, which suffices for the fast tests
TWICE = ("cifar100_table1-text", "clothing1m-text", "regularisers-tin100", "cifar10_cifarnet", "tin100_table1")
EVERY = [
    pytest.param(path, each.name, marks=[pytest.mark.slow] * (each.name in TWICE), id=each.name)
    for path in FILES
    for each in load(path)
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def named(path: Path, name: str) -> Experiment:
    return next(each for each in load(path) if each.name == name)


@pytest.mark.parametrize(("path", "name"), EVERY)
def test_every_experiment_runs_on_toy_data(path: Path, name: str, runs: Path) -> None:
    experiment, options = named(path, name), RunOptions(runs, quick=True, fields={"device": "cpu"})
    (saved,), ended = run_experiments([experiment], options)
    assert not ended.failed
    expected = {(cell.row, cell.column) for cell in options.apply(experiment).cells if cell.source is not None}
    assert {(entry.row, entry.column) for entry in saved.entries} == expected
    assert {row for row, _ in expected} == {cell.row for cell in experiment.cells if cell.source is not None}
    assert {column for _, column in expected} == {cell.column for cell in experiment.cells if cell.source is not None}
    assert all(step.state == "done" for step in run_states(experiment, options))


def test_texts_and_the_guide_are_complete() -> None:
    every = [each for path in FILES for each in load(path)]
    assert max(Counter(each.name for each in every).values()) == 1
    for each in every:
        assert each.title
        assert each.differs.endswith(".")
        assert (each.cost is None) == (not each.cost_on)
    guide = (ROOT / "docs" / "experiments.md").read_text()
    for path in FILES:
        assert f"python -m paper run paper/experiments/{path.name}" in path.read_text()
        assert f"`{path.stem}`" in guide


def test_figure_2_has_the_stated_rate_whatever_is_measured(measured: Callable[..., Finding]) -> None:
    experiment = named(FOLDER / "figure_2.py", "figure_2")
    columns = {"step": [1, 2], "test_accuracy": [0.3, 0.5], "p_mean": [0.2, 0.4]}
    runs = [cell.source for cell in experiment.cells if isinstance(cell.source, Run)]
    first = next(run for run in runs if run.rate == 0.4)
    store = {run.folder_name(): measured(run, columns, final=0.5) for run in runs if run.rate != 0.4 or run is first}
    panels = results_figure(collect(experiment, (0,), store))
    assert panels is not None
    assert "here it is 40 %" in experiment.differs
    a, b, c = (figure.title for figure in panels.figures)
    assert (a[:3], a[-8:], b[:3], b[-8:], c[:3]) == ("(a)", "r = 40 %", "(b)", "r = 40 %", "(c)")


def number(name: str, row: str, column: str, metric: str = "printed") -> Any:
    path = FOLDER / f"{name.partition('-')[0]}.py"
    cell = next(cell for cell in named(path, name).cells if (cell.row, cell.column) == (row, column))
    return next(reported for reported in cell.reported if reported.metric == metric)


@pytest.mark.parametrize(
    ("place", "value", "quoted"),
    [
        (("cifar100_table1-authors", "CCE", "clean", "best"), 70.0, ""),
        (("cifar100_table1-text", "DM(lam=0.5)", "symmetric 0.4", "best"), 61.0, ""),
        (("cifar100_table1-authors", "MSE-DN", "asymmetric 0.3", "best"), 23.9, ""),
        (("cifar100_table1-authors", "D2L", "symmetric 0.6"), 35.3, "SL"),
        (("tin100_table1", "DM(lam=1)", "asymmetric 0.4", "best"), 63.3, ""),
        (("cifar10_googlenet", "MentorNet DD", "r = 0.8"), 46, "MentorNet"),
        (("cifar10_googlenet", "DM(lam=0.5)", "r = 0.8"), 57, ""),
        (("cifar10_cifarnet", "GCE-DN", "r = 0"), 77, ""),
        (("imdb_noise", "MAE-DN", "r = 0.4"), 80.2, ""),
        (("imdb_imbalance", "MSE-DN", "50:1"), 64.4, ""),
        (("imdb_imbalance", "GCE", "50:1"), 50, ""),
        (("optimisers", "GCE", "Nesterov (lr 0.01)"), 80.0, ""),
        (("optimisers", "DM", "Adam (lr 0.005, delta 1)"), 79.2, ""),
        (("clothing1m-text", "Masking", "Clothing1M"), 71.1, "Masking"),
        (("clothing1m-authors", "GCE-DN", "Clothing1M"), 64.5, ""),
        (("mars", "OSM+CAA", "MARS", "CMC-1"), 84.7, "its authors"),
        (("mars", "DM", "MARS", "mAP"), 72.8, ""),
        (("regularisers-cifar100", "DM+L2", "r = 0.4"), 59.3, ""),
        (("vehicles10", "DM+L2+Dropout", "r = 0.4"), 58.1, ""),
        (("label_correction", "DM(lam=1, beta=16)", "r = 0.4", "retrained"), 85.3, ""),
        (("label_correction", "CCE", "r = 0.2", "fit_noisy"), 85.9, ""),
        (("ablation", "DM(2, 12)", "r = 0.6", "final"), 72.5, ""),
        (("ablation", "DM(1, 0)", "r = 0.8", "corrupted"), 20.6, ""),
    ],
)
def test_numbers_of_the_paper(place: tuple[str, ...], value: float, quoted: str) -> None:
    found = number(*place)
    assert (found.value, found.quoted) == (value, quoted)


def test_the_ablation_is_complete() -> None:
    experiment = named(FOLDER / "ablation.py", "ablation")
    assert len(experiment.rows) == 2 + 16
    assert len(experiment.columns) == 4
    assert sum(bool(cell.reported) for cell in experiment.cells) == 24
    own = named(FOLDER / "cifar10_headline.py", "cifar10_headline")
    shared = {run.hash() for cell in experiment.cells for run in cell.runs}
    headline = {run.hash() for cell in own.cells if cell.column == "lr 0.1" for run in cell.runs}
    assert len(shared & headline) == 6  # shared runs are trained once


def test_protocols_differ_as_reported() -> None:
    authors, text = (
        next(cell for cell in named(FOLDER / "cifar100_table1.py", f"cifar100_table1-{protocol}").cells)
        for protocol in ("authors", "text")
    )
    assert authors.runs[0].weight_decay == 5e-4
    assert text.runs[0].weight_decay == 1e-4
    assert authors.runs[0].sampler == "balanced"
