"""The pages of results have all results, list what is not measured, and are up to date."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper import Cell, Experiment, Reported
from paper.claims import CLAIMS
from paper.findings import Finding, read_results, write_results
from paper.missing_data import STAND_INS, gpu_hours
from paper.protocols import ours
from paper.results_page import build, provenance, write_pages
from paper.tables import blocks, collect, measured_text

ROOT = Path(__file__).resolve().parents[2]
HEADLINE = ROOT / "paper" / "results" / "cifar10_headline.json"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:

    for folder in ("experiments", "results"):
        (tmp_path / "paper" / folder).mkdir(parents=True)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    (tmp_path / "paper" / "experiments" / "later.py").write_text(
        "from paper import Cell, Experiment\nfrom paper.protocols import ours\n"
        "EXPERIMENT = Experiment('later', 'A later one', 'ours', (Cell('CCE', 'a', ours(weighting='CCE')),))\n"
    )
    return tmp_path


def test_without_results(site: Path) -> None:
    write_pages(site)
    page = (site / "docs" / "results.md").read_text()
    assert page.startswith("# Our results and the paper's\n")
    assert page.count("| **cannot be said** | - |") == len(CLAIMS)
    assert page.endswith("runs them, the most important first): `later`.\n")
    assert (site / "docs" / "results-claims.md").read_text().count("Nothing is measured for it.") == len(CLAIMS)


def test_with_results(site: Path, measured: Callable[..., Finding]) -> None:
    pytest.importorskip("matplotlib")
    columns = {"step": [1, 2], "test_accuracy": [0.3, 0.5], "train_accuracy": [0.2, 0.3]}
    columns |= {"p_clean": [0.2, 0.4], "p_noisy": [0.1, 0.2]}
    runs = {beta: ours(0.4, weighting=f"DM(0.5, {beta})") for beta in (8, 12)}
    cells = tuple(Cell(f"DM(0.5, {beta})", "r = 0.4", run, (Reported("final", 79.9),)) for beta, run in runs.items())
    store = {run.folder_name(): measured(run, columns, final=0.5, best=0.5) for run in runs.values()}
    experiment = Experiment("grids", "Grids", "ours", cells, figure="grid")
    write_results(collect(experiment, (0,), store), site / "paper" / "results" / "grids.json")
    write_pages(site)
    page = (site / "docs" / "results-cifar10.md").read_text()
    assert "## Grids" in page
    assert "### r = 0.4 (protocol ours, bf16, not deterministic; one seed)" in page
    assert "DM(0.5, 8) ends highest, at 50.0." in page
    assert "| DM(0.5, 12) | 50.0 | 79.9 | 50.0 | 1 |" in page
    assert "![Grids](figures/result-grids.svg)" in page
    assert (site / "docs" / "figures" / "result-grids.svg").stat().st_size < 300_000
    assert "*2 runs; seeds 0; commit c0ffee; torch 2.6; cpu.*" in page
    first = (site / "docs" / "results.md").read_text()
    assert "at all evaluations 2, at 95 % of them 2" in first
    assert "[Results: CIFAR-10](results-cifar10.md)\n\n* Grids (one seed)" in first
    (site / "docs" / "results-old.md").write_text("of a data set that has no results any more")
    write_pages(site)
    assert (site / "docs" / "results-cifar10.md").read_text() == page
    assert not (site / "docs" / "results-old.md").exists()


def test_a_run_resumed_elsewhere_names_both_devices(measured: Callable[..., Finding]) -> None:
    run = ours(weighting="CCE")
    finding = measured(run, final=0.5)
    gpu = {"commit": "c0ffee", "torch": "2.6", "device": "cuda", "device_name": "NVIDIA H200"}
    header = replace(finding.header, environments=(gpu, *finding.header.environments))
    store = {run.folder_name(): replace(finding, header=header)}
    saved = collect(Experiment("a", "a", "ours", (Cell("CCE", "a", run),)), (0,), store)
    assert provenance(saved) == "*1 runs; seeds 0; commit c0ffee; torch 2.6; NVIDIA H200, cpu.*"


def test_runs_are_shown_in_every_table_that_has_them(site: Path, measured: Callable[..., Finding]) -> None:
    run = ours(weighting="CCE")
    later = "(Cell('CCE', 'a', ours(weighting='CCE')), Cell('MAE', 'a', ours(weighting='MAE')))"
    for name, figure in (("later", None), ("drawn", "grid")):
        (site / "paper" / "experiments" / f"{name}.py").write_text(
            "from paper import Cell, Experiment\nfrom paper.protocols import ours\n"
            f"EXPERIMENT = Experiment({name!r}, 'A {name} one', 'ours', {later}, figure={figure!r})\n"
        )
    experiment = Experiment("first", "The first", "ours", (Cell("CCE", "b", run),))
    found = collect(experiment, (0,), {run.folder_name(): measured(run, final=0.5, best=0.5)})
    write_results(found, site / "paper" / "results" / "first.json")
    write_pages(site)
    page = (site / "docs" / "results-cifar10.md").read_text()
    assert page.count("| CCE | 50.0 | 50.0 | 1 |") == 2
    assert "Not measured: a: MAE." in page.partition("## A later one")[2]
    first = (site / "docs" / "results.md").read_text()
    assert first.endswith(": `drawn`.\n")  # a figure of half its runs misleads


@pytest.fixture(scope="module")
def built() -> Any:
    return build(ROOT)


def test_the_committed_pages_are_up_to_date(built: Any) -> None:
    """If this fails, run `python -m paper page` and commit docs."""
    assert {path.name for path in (ROOT / "docs").glob("results*.md")} == built.pages.keys()
    for name, text in built.pages.items():
        assert (ROOT / "docs" / name).read_text() == text, name
    assert all((ROOT / "docs" / "figures" / name).exists() for name in built.figures)


def test_the_first_page_is_short(built: Any) -> None:
    assert len(built.pages["results.md"].split()) <= 1500
    for name in re.findall(r"\]\((results-[a-z0-9]+\.md)\)", built.pages["results.md"]):
        assert name in built.pages


def test_the_readme_has_the_numbers_of_the_record() -> None:
    (block,) = [each for each in blocks(read_results(HEADLINE)) if each.column == "own lr"]
    final = {line.row: line.measured["final"] for line in block.lines}
    assert final["GCE"].seeds == final["CCE"].seeds == 3
    readme = (ROOT / "README.md").read_text()
    for row in ("GCE", "CCE"):
        assert measured_text(final[row], 3) + " %" in readme


def test_missing_data_names_tests_that_exist() -> None:
    tests = (ROOT / "tests" / "paper" / "test_layouts.py").read_text()
    for name in STAND_INS.values():
        assert f"def {name}(" in tests


def test_gpu_time_is_computed_only_from_measured_throughput() -> None:
    run = replace(ours(weighting="CCE"), iterations=36_000, batch_size=100, precision="fp32")
    rows = json.loads((ROOT / "benchmarks" / "results" / "harness.json").read_text())["results"]
    speed = next(row["images_per_second"] for row in rows if row["what"] == "captured, fp32")
    assert gpu_hours([replace(run, net="resnet44")], ROOT) == pytest.approx(1000 / speed)
    assert gpu_hours([run, replace(run, net="googlenet-v1")], ROOT) is None
