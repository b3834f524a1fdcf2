"""`python -m paper next`: the order, what fits, and that a call can be cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paper import Cell, Experiment
from paper.__main__ import main
from paper.experiment import load_all
from paper.findings import read_results, write_results
from paper.missing_data import STAND_INS, data_of
from paper.protocols import search_rate
from paper.queue import ORDER, Fit, Item, expected_seconds, rates, run_next
from paper.runner import RunOptions
from paper.tables import collect
from reweigh.lab.record import list_runs
from reweigh.lab.spec import Run

Make = Callable[..., Run]
ROOT = Path(__file__).resolve().parents[2]


def names(root: Path) -> list[str]:
    found = [summary for summary in list_runs(root) if summary.state == "done"]
    return sorted(summary.folder.name for summary in found)


def table(name: str, *runs: Run, **more: object) -> Experiment:
    cells = tuple(Cell(run.weighting or "", f"column {i}", run) for i, run in enumerate(runs))
    return Experiment(name, name, "ours", cells, **more)  # type: ignore[arg-type]


def test_the_items_exist_and_leave_nothing_out() -> None:
    experiments = {each.name: each for each in load_all(sorted((ROOT / "paper" / "experiments").glob("*.py")))}
    measured = {path.stem for path in (ROOT / "paper" / "results").glob("*.json")}
    left = {name for name, each in experiments.items() if each.cells and data_of(each) not in STAND_INS} - measured
    # ablation has ablation-cifar10 in its place, and the runs of figure_2 are those of mode_variance
    assert left - {"ablation", "figure_2"} <= {item.experiment for item in ORDER}
    for item in ORDER:
        assert experiments[item.experiment].only(item.phrase).cells, item


def test_a_run_that_does_not_fit_is_left_out(tiny: Make, measured: Callable) -> None:
    run = tiny()
    finding = replace(measured(run), seconds=8.0)  # 8 iterations of 50
    store = {"fast": finding, "slow": replace(finding, name="slow", seconds=80.0)}
    assert expected_seconds(replace(run, iterations=80), rates(store)) == pytest.approx(80)
    assert expected_seconds(replace(run, net="mlp-9"), rates(store)) is None
    now = [100.0]
    fit = Fit(20, store, lambda: now[0])
    unknown, short, long = replace(run, net="mlp-9"), run, replace(run, iterations=80)
    assert fit([long, unknown, short]) == [unknown, short]
    assert list(fit.left_out.values()) == [long]
    now[0] = 115.0
    assert fit([short]) == []


def test_items_are_run_in_order_and_saved(tiny: Make, tmp_path: Path) -> None:
    chosen = Cell("own", "lr", search_rate(tiny(), (0.01, 0.1), short=0.5))
    experiments = [
        table("first", tiny("GCE(0.7)"), tiny("MSE")),
        replace(table("second", tiny()), cells=(chosen,)),
    ]
    order = (Item("second"), Item("first", "MSE", (1,)), Item("first", "", (0,)))
    options = RunOptions(tmp_path / "runs", save=tmp_path / "results")
    trained = list[tuple[str | None, int, int]]()
    ended, left = run_next(
        experiments,
        options,
        minutes=5,
        order=order,
        watch=lambda number, count, run, update: trained.append((run.weighting, run.seed, run.iterations)),
    )
    assert list(ended) == list(order)
    assert not left
    steps = list(dict.fromkeys(trained))
    assert steps == [("CCE", 0, 4), ("CCE", 0, 8), ("MSE", 1, 8), ("GCE(0.7)", 0, 8), ("MSE", 0, 8)]
    saved = read_results(tmp_path / "results" / "first.json")
    assert sorted((entry.row, entry.seed) for entry in saved.entries) == [("GCE(0.7)", 0), ("MSE", 0), ("MSE", 1)]
    again, _ = run_next(experiments, replace(options, runs=tmp_path / "elsewhere"), minutes=5, order=order)
    assert again == {}
    assert not (tmp_path / "elsewhere").exists()


def test_a_call_that_is_cut_resumes(tiny: Make, tmp_path: Path) -> None:
    experiments, order = [table("first", tiny("GCE(0.7)"), tiny("MSE"))], (Item("first"),)
    options = RunOptions(tmp_path / "runs", save=tmp_path / "results")
    asked = iter([False] * 14)
    ended, _ = run_next(experiments, options, minutes=5, order=order, should_stop=lambda: next(asked, True))
    assert ended[order[0]].stopped
    (tmp_path / "results" / "first.json").unlink()  # as if it was killed before it saved
    first = names(tmp_path / "runs")
    assert len(first) == 1
    ended, _ = run_next(experiments, options, minutes=5, order=order)
    assert not ended[order[0]].stopped
    assert first[0] in names(tmp_path / "runs")
    assert len(read_results(tmp_path / "results" / "first.json").entries) == 2


def test_a_later_item_that_fits_is_run(tiny: Make, measured: Callable, tmp_path: Path) -> None:
    long, short = table("long", tiny("MSE", iterations=800_000)), table("short", tiny("GCE(0.7)"))
    other = table("other", tiny(seed=3))
    found = replace(measured(tiny(seed=3), final=0.5), seconds=8.0)
    write_results(collect(other, (3,), {found.name: found}), tmp_path / "results" / "other.json")
    options = RunOptions(tmp_path / "runs", save=tmp_path / "results")
    order = (Item("long"), Item("short"))
    _, left = run_next([long, short, other], options, minutes=1, order=order)
    assert [run.weighting for run in left] == ["MSE"]
    assert len(names(tmp_path / "runs")) == 1


def test_wrong_calls_are_refused(tiny: Make, tmp_path: Path) -> None:
    options = RunOptions(tmp_path / "runs", save=tmp_path / "results")
    with pytest.raises(ValueError, match="the queue has 'fisrt'"):
        run_next([table("first", tiny())], options, minutes=1, order=(Item("fisrt"),))
    with pytest.raises(ValueError, match="minutes is 0; expected more than 0"):
        run_next([table("first", tiny())], options, minutes=0, order=(Item("first"),))


def test_the_command_with_no_time_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["next", "--minutes", "1e-9", "--runs", str(tmp_path / "runs"), "--save", str(tmp_path / "results")]
    assert main(line) == 0
    assert "runs did not fit into 1e-09 minutes" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
