"""tools/results.py: the page is whole, and says what is not measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paper import Cell, Experiment, Reported
from paper.claims import CLAIMS
from paper.finding import Finding
from paper.protocols import ours
from paper.saved import collect, save

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    (tmp_path / "experiments" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    (tmp_path / "experiments" / "later.py").write_text(
        "from paper import Cell, Experiment\nfrom paper.protocols import ours\n"
        "EXPERIMENT = Experiment('later', 'A later one', 'ours', (Cell('CCE', 'a', ours(weighting='CCE')),))\n"
    )
    return tmp_path


def test_without_results(site: Path) -> None:
    from results import main

    main(site)
    page = (site / "docs" / "results.md").read_text()
    assert page.startswith("# Measured beside reported\n")
    assert page.count("| not measured |") == len(CLAIMS)
    assert "## Not measured here\n\n- A later one (`later`)" in page


def test_with_results(site: Path, measured: Callable[..., Finding]) -> None:
    pytest.importorskip("matplotlib")
    from results import main

    columns = {"step": [1, 2], "test_accuracy": [0.3, 0.5], "train_accuracy": [0.2, 0.3]}
    columns |= {"p_clean": [0.2, 0.4], "p_noisy": [0.1, 0.2]}
    runs = {beta: ours(0.4, weighting=f"DM(0.5, {beta})") for beta in (8, 12)}
    cells = tuple(Cell(f"DM(0.5, {beta})", "r = 0.4", run, (Reported("final", 79.9),)) for beta, run in runs.items())
    store = {run.folder_name(): measured(run, columns, final=0.5, best=0.5) for run in runs.values()}
    experiment = Experiment("grids", "Grids", "ours", cells, figure="grid")
    save(collect(experiment, (0,), store), site / "experiments" / "results" / "grids.json")
    main(site)
    page = (site / "docs" / "results.md").read_text()
    assert "| **holds** | below in 4 of 4 evaluations of 2 runs |" in page
    assert "## Grids" in page
    assert "### r = 0.4 (protocol ours, bf16, not deterministic)" in page
    assert "| DM(0.5, 12) | 50.0 | 79.9 | 50.0 | 1 |" in page
    assert "![Grids](figures/result-grids.svg)" in page
    assert (site / "docs" / "figures" / "result-grids.svg").stat().st_size < 300_000
    assert "*2 runs; seeds 0; commit c0ffee; torch 2.6; cpu.*" in page
    before = page
    main(site)
    assert (site / "docs" / "results.md").read_text() == before


def test_a_run_that_went_on_elsewhere_names_both_devices(measured: Callable[..., Finding]) -> None:
    from results import provenance

    run = ours(weighting="CCE")
    finding = measured(run, final=0.5)
    gpu = {"commit": "c0ffee", "torch": "2.6", "device": "cuda", "device_name": "NVIDIA H200"}
    header = replace(finding.header, environments=(gpu, *finding.header.environments))
    store = {run.folder_name(): replace(finding, header=header)}
    saved = collect(Experiment("a", "a", "ours", (Cell("CCE", "a", run),)), (0,), store)
    assert provenance(saved) == "*1 runs; seeds 0; commit c0ffee; torch 2.6; NVIDIA H200, cpu.*"


def test_runs_are_shown_in_every_table_they_stand_in(site: Path, measured: Callable[..., Finding]) -> None:
    from results import main

    run = ours(weighting="CCE")
    later = "(Cell('CCE', 'a', ours(weighting='CCE')), Cell('MAE', 'a', ours(weighting='MAE')))"
    for name, figure in (("later", None), ("drawn", "grid")):
        (site / "experiments" / f"{name}.py").write_text(
            "from paper import Cell, Experiment\nfrom paper.protocols import ours\n"
            f"EXPERIMENT = Experiment({name!r}, 'A {name} one', 'ours', {later}, figure={figure!r})\n"
        )
    experiment = Experiment("first", "The first", "ours", (Cell("CCE", "b", run),))
    found = collect(experiment, (0,), {run.folder_name(): measured(run, final=0.5, best=0.5)})
    save(found, site / "experiments" / "results" / "first.json")
    main(site)
    page = (site / "docs" / "results.md").read_text()
    assert page.count("| CCE | 50.0 | 50.0 | 1 |") == 2
    assert "Not measured: a: MAE." in page.partition("## A later one")[2]
    assert page.endswith("## Not measured here\n\n- A drawn one (`drawn`)\n")  # a figure of half its runs misleads
