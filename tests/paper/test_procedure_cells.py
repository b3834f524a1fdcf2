"""Cells with procedures of several runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paper import Cell, Experiment, Procedure
from paper.runner import gather_findings, run_missing
from paper.tables import entries
from reweigh.lab.record import list_runs
from reweigh.lab.spec import Run

Make = Callable[..., Run]


def table(*cells: Cell) -> Experiment:
    return Experiment("toy", "A toy", "ours", cells)


def names(root: Path) -> set[str]:
    return {summary.folder.name for summary in list_runs(root) if summary.state == "done"}


@pytest.mark.parametrize(
    ("procedure", "metric"),
    [
        (Procedure("label_correction"), "retrained"),
        (Procedure("forgetting", (("rates", (0.2, 0.5)),)), "final"),
        (Procedure("warm_start", (("iterations", 2),)), "final"),
        (Procedure("caffe_start"), "final"),
    ],
)
def test_finished_procedures_are_found(tiny: Make, tmp_path: Path, procedure: Procedure, metric: str) -> None:
    held = {"validation": 0.2} if procedure.name == "forgetting" else {}
    experiment = table(Cell("CCE", "a", tiny(**held), procedure=procedure))
    assert not run_missing([experiment], tmp_path).failed
    (entry,) = entries(experiment, (0,), gather_findings(experiment, tmp_path, {}))
    assert entry.finding.metrics[metric] is not None
    before = names(tmp_path)
    run_missing([experiment], tmp_path)
    assert names(tmp_path) == before
    other = table(Cell("CCE", "a", tiny("MAE", **held), procedure=procedure))
    assert not gather_findings(other, tmp_path, {})


WARM, CAFFE = Procedure("warm_start", (("iterations", 2),)), Procedure("caffe_start")


def test_procedures_run_together(tiny: Make, tmp_path: Path) -> None:
    """The next runs of all procedures are one batch, after a stop, too."""
    cells = [Cell("warm", "a", tiny(), procedure=WARM), Cell("caffe", "a", tiny(), procedure=CAFFE)]
    alone = [run_missing([table(cell)], tmp_path / cell.row) for cell in cells]
    calls: list[tuple[int, int]] = []
    for is_over in (lambda: len(calls) > 4, lambda: False):
        ended = run_missing(
            [table(*cells)],
            tmp_path / "both",
            watch=lambda number, count, run, update: calls.append((count, run.iterations)),
            should_stop=is_over,
        )
    assert not any(each.failed or each.stopped for each in (*alone, ended))
    assert calls[:2] == [(2, 2)] * 2  # the first run of one procedure, with the only run of the other
    assert set(calls[2:]) == {(2, 8)}  # the stopped run, with the second run of the other procedure
    for cell in cells:
        (one,), (other,) = (
            entries(table(cell), (0,), gather_findings(table(cell), tmp_path / side, {})) for side in (cell.row, "both")
        )
        assert one.finding.columns == other.finding.columns


def test_settings_distinguish_procedures(tiny: Make, tmp_path: Path) -> None:
    ways = [Procedure("warm_start", (("iterations", count),)) for count in (2, 3)]
    experiment = table(*(Cell(str(way.settings), "a", tiny(), procedure=way) for way in ways))
    assert not run_missing([experiment], tmp_path).failed
    assert len(gather_findings(experiment, tmp_path, {})) == 2


def test_procedures_that_need_the_same_run_share_it(tiny: Make, tmp_path: Path) -> None:
    cells = [Cell(name, "a", tiny(name), procedure=WARM) for name in ("CCE", "MAE")]
    calls = []
    ended = run_missing(
        [table(*cells)], tmp_path, watch=lambda number, count, run, update: calls.append(run.iterations)
    )
    assert not ended.failed
    assert calls.count(2) == 2  # both iterations of it
    assert len(gather_findings(table(*cells), tmp_path, {})) == 2


def test_a_procedure_repeats_a_run_without_a_folder(tiny: Make, measured: Callable, tmp_path: Path) -> None:
    known, cell = measured(tiny(), final=0.5), Cell("CCE", "a", tiny(), procedure=Procedure("label_correction"))
    assert not run_missing([table(cell)], tmp_path, known={known.name: known}).failed
    assert len(names(tmp_path)) == 2


def test_a_procedure_whose_run_fails_is_named(tiny: Make, tmp_path: Path) -> None:
    bad = Cell("bad", "a", tiny("NoSuchWeighting(1)"), procedure=CAFFE)
    good = Cell("good", "a", tiny(), procedure=CAFFE)
    ended = run_missing([table(bad, good)], tmp_path)
    assert list(ended.failed) == [f"caffe_start() {bad.source.folder_name()}"]
    assert "NoSuchWeighting" in next(iter(ended.failed.values()))
    assert len(gather_findings(table(bad, good), tmp_path, {})) == 1


def test_a_procedure_with_other_settings_is_not_found(tiny: Make, tmp_path: Path) -> None:
    run = tiny(validation=0.2)
    run_missing([table(Cell("CCE", "a", run, procedure=Procedure("forgetting", (("rates", (0.9,)),))))], tmp_path)
    usual = table(Cell("CCE", "a", run, procedure=Procedure("forgetting")))
    assert not gather_findings(usual, tmp_path, {})


def test_another_start_is_another_run(tiny: Make, tmp_path: Path) -> None:
    cells = [Cell("plain", "a", tiny()), Cell("caffe", "a", tiny(), procedure=Procedure("caffe_start"))]
    run_missing([table(*cells)], tmp_path)
    found = gather_findings(table(*cells), tmp_path, {})
    plain, caffe = (entry.finding for entry in entries(table(*cells), (0,), found))
    assert plain.run.hash() != caffe.run.hash()
    assert plain.columns["p_clean"] != caffe.columns["p_clean"]
