"""Aggregation, rendering and saving, on findings without runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paper import Cell, Experiment, Reported
from paper.findings import Finding, Results, read_results, write_results
from paper.protocols import search_rate
from paper.tables import (
    block_table,
    blocks,
    choice_results,
    choice_tables,
    collect,
    entries,
    mapping,
    markdown,
)
from reweigh.errors import DataError
from reweigh.lab.spec import Run

Make = Callable[..., Run]
Measured = Callable[..., Finding]


@pytest.fixture
def experiment(tiny: Make) -> Experiment:
    cells = (
        Cell("CCE", "r = 0.4", tiny(), (Reported("best", 53.2),)),
        Cell("LS", "r = 0.4", None, (Reported("printed", 50.1, "SL"),)),
        Cell("DM", "r = 0.4", tiny("DM(0.5, 8)"), (Reported("best", 61.0),), note="a note"),
        Cell("CCE", "r = 0.6", tiny(rate=0.6)),
    )
    return Experiment("toy", "A toy", "authors", cells, differs="data.")


@pytest.fixture
def store(tiny: Make, measured: Measured) -> dict[str, Finding]:
    found = [measured(tiny(seed=seed), final=0.50 + 0.02 * seed, best=0.6) for seed in (0, 1, 2)]
    found.append(measured(tiny("DM(0.5, 8)"), final=0.7, best=0.71))
    found.append(measured(tiny(precision="bf16"), final=0.1, best=0.1))
    found.append(measured(tiny(deterministic=True), final=0.2, best=0.2))
    return {each.name: each for each in found}


def test_mean_and_spread_over_seeds(experiment: Experiment, store: dict[str, Finding]) -> None:
    first, second = blocks(collect(experiment, (0, 1, 2), store))
    line = first.lines[0]
    assert line.measured["final"].mean == pytest.approx(0.52)
    assert line.measured["final"].deviation == pytest.approx(0.02)
    assert line.seeds == (0, 1, 2)
    assert first.lines[2].measured["final"].deviation is None
    assert second.kind is None
    assert not second.lines[0].measured


def test_kinds_are_not_mixed(experiment: Experiment, store: dict[str, Finding]) -> None:
    found = entries(experiment, (0, 1, 2), store)
    for fields in ({"precision": "bf16"}, {"deterministic": True}):

        def change(run: Run, fields: dict[str, object] = fields) -> Run:
            return replace(run, **fields)

        found += entries(experiment.map_runs(change), (0, 1, 2), store)
    made = [block for block in blocks(Results(experiment, tuple(found))) if block.column == "r = 0.4"]
    assert [str(block.kind) for block in made] == [
        "protocol authors, fp32, not deterministic",
        "protocol authors, bf16, not deterministic",
        "protocol authors, fp32, deterministic",
    ]
    finals = [[line.measured["final"].mean for line in block.lines if line.measured] for block in made]
    assert finals == [[pytest.approx(0.52), 0.7], [0.1], [0.2]]
    assert [line.row for line in made[0].lines] == ["CCE", "LS", "DM"]
    assert [line.row for line in made[1].lines] == ["CCE"]


def test_seeds_on_changed_data_are_separate(experiment: Experiment, store: dict[str, Finding]) -> None:
    name = replace(experiment.cells[0].runs[0], seed=2).folder_name()
    changed = replace(store[name], header=replace(store[name].header, data_hash="0123456789abcdef" * 4))
    saved = collect(experiment, (0, 1, 2), store | {name: changed})
    first, second, third = blocks(saved)
    assert [str(block.kind) for block in (first, second)] == [
        "protocol authors, fp32, not deterministic, data dddddddddddd",
        "protocol authors, fp32, not deterministic, data 0123456789ab",
    ]
    assert [line.measured["final"].mean for line in first.lines if line.measured] == [pytest.approx(0.51), 0.7]
    assert [(line.row, line.seeds, line.measured["final"].mean) for line in second.lines] == [("CCE", (2,), 0.54)]
    assert third.kind is None
    note = "The data changed between runs"
    assert note in markdown(experiment, blocks(saved))
    assert note not in markdown(experiment, blocks(collect(experiment, (0, 1, 2), store)))


def test_different_data_of_another_row_are_no_change(experiment: Experiment, store: dict[str, Finding]) -> None:
    name = experiment.cells[2].runs[0].folder_name()
    sized = store[name].header
    header = replace(sized, data_hash="0" * 64, run=replace(sized.run, image_size=16))
    first, _ = blocks(collect(experiment, (0, 1, 2), store | {name: replace(store[name], header=header)}))
    assert str(first.kind) == "protocol authors, fp32, not deterministic"
    assert [line.row for line in first.lines if line.measured] == ["CCE", "DM"]


def test_measured_and_reported_numbers(experiment: Experiment, store: dict[str, Finding]) -> None:
    found = blocks(collect(experiment, (0, 1, 2), store))
    grid = block_table(found[0], experiment.metrics)
    assert grid.title == "r = 0.4 (protocol authors, fp32, not deterministic)"
    assert grid.columns == ("", "final", "best", "paper", "paper, unspecified", "seeds")
    assert grid.rows == [
        ("CCE", "52.0 ± 2.0", "60.0 ± 0.0", "53.2", "-", "3"),
        ("LS", "-", "-", "-", "50.1 [SL]", "-"),
        ("DM", "70.0", "71.0", "61.0", "-", "1"),
    ]
    page = markdown(experiment, found)
    assert page.startswith("# A toy\n\n- Protocol authors: as the authors trained")
    assert "- Differences: data." in page
    assert "Cost: not measured." in page
    assert "| CCE | 52.0 ± 2.0 | 60.0 ± 0.0 | 53.2 | - | 3 |" in page
    assert "## r = 0.6 (nothing measured)" in page
    assert "- DM: a note" in page
    values = mapping(experiment, found)
    assert json.loads(json.dumps(values))["blocks"][0]["rows"][0]["measured"]["final"]["seeds"] == 3


def test_diverged_seeds_are_counted(experiment: Experiment, store: dict[str, Finding], tmp_path: Path) -> None:
    name = experiment.cells[0].runs[0].folder_name()
    saved = collect(experiment, (0, 1, 2), store | {name: replace(store[name], diverged=20)})
    write_results(saved, tmp_path / "toy.json")
    for each in (saved, read_results(tmp_path / "toy.json")):
        block = blocks(each)[0]
        assert [row[-1] for row in block_table(block, experiment.metrics).rows] == ["3, 1 diverged", "-", "1"]
        assert [row["diverged"] for row in mapping(each.experiment, [block])["blocks"][0]["rows"]] == [1, 0, 0]
    assert [entry.finding.run_summary().diverged for entry in each.entries][:2] == [20, None]


def test_results_are_read_back(experiment: Experiment, store: dict[str, Finding], tmp_path: Path) -> None:
    saved = collect(experiment, (0, 1, 2), store)
    write_results(saved, tmp_path / "a" / "toy.json")
    content = (tmp_path / "a" / "toy.json").read_text()
    assert "data_root" not in content  # no folder of this machine
    again = read_results(tmp_path / "a" / "toy.json")
    assert markdown(again.experiment, blocks(again)) == markdown(experiment, blocks(saved))
    write_results(again, tmp_path / "toy.json")
    assert (tmp_path / "toy.json").read_text() == content
    assert again.environments == [{"commit": "c0ffee", "torch": "2.6", "device": "cpu"}]


def test_initial_weights_are_saved_without_their_folder(tiny: Make, measured: Measured, tmp_path: Path) -> None:
    run = tiny(init_file="/somewhere/weights.safetensors", init_hash="0123456789ab")
    experiment = Experiment("toy", "A toy", "ours", (Cell("CCE", "a", run),))
    write_results(collect(experiment, (0,), {run.folder_name(): measured(run, final=0.5)}), tmp_path / "toy.json")
    assert "somewhere" not in (tmp_path / "toy.json").read_text()
    (entry,) = read_results(tmp_path / "toy.json").entries
    assert entry.finding.run.folder_name() == entry.finding.name == run.folder_name()


def test_results_are_extended(experiment: Experiment, store: dict[str, Finding], measured: Measured) -> None:
    first = collect(experiment, (0, 1, 2), store)
    bf16 = experiment.map_runs(lambda run: replace(run, precision="bf16"))
    both = collect(bf16, (0,), store, first)
    assert len(both.entries) == len(first.entries) + 1
    assert [cell.row for cell in both.experiment.cells] == [cell.row for cell in experiment.cells]
    newer = replace(store[first.entries[0].finding.name], metrics={"final": 0.9})
    replaced = collect(experiment, (0,), {newer.name: newer}, both)
    assert len(replaced.entries) == len(both.entries)
    assert newer in [entry.finding for entry in replaced.entries]


def test_results_of_a_changed_run_are_dropped(
    experiment: Experiment, store: dict[str, Finding], measured: Measured
) -> None:
    before = collect(experiment, (0, 1, 2), store)
    changed = experiment.map_runs(lambda run: replace(run, iterations=9) if run.weighting == "CCE" else run)
    newer = measured(changed.cells[0].runs[0], final=0.9)
    lines = blocks(collect(changed, (0,), {newer.name: newer}, before))[0].lines
    assert lines[0].measured["final"] == (0.9, None, 1)
    assert lines[2].measured["final"].mean == 0.7
    unmeasured = blocks(collect(changed, (0,), {}, before))[0].lines
    assert unmeasured[0].seeds == (0, 1, 2)  # old results are better than none


def test_saving_a_part_keeps_the_rest(experiment: Experiment, store: dict[str, Finding]) -> None:
    full = collect(experiment, (0, 1, 2), store)
    part = collect(experiment.only("DM"), (0,), store, full)
    assert {entry.row for entry in part.entries} == {"CCE", "DM"}
    assert isinstance(part, Results)


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (("format",), 2, "format is 2"),
        (("entries",), [{"row": 1}], r"entries\[0\].column is missing"),
        (("experiment",), {}, "experiment.name is missing"),
        (("experiment", "metrics"), "final", "experiment.metrics is 'final'; expected a list"),
        (("experiment", "colour"), "red", "TypeError: .*'colour'"),
        (("cells",), 3, "cells is 3; expected a list"),
        (("cells", 0, "reported", 0, "value"), "53", r"cells\[0\].reported\[0\].value is '53'; expected a number"),
        (("entries", 0, "seed"), "many", r"entries\[0\].seed is 'many'; expected an integer"),
        (("entries", 0, "finding", "metrics"), [0.5], r"finding.metrics is \[0.5\]; expected a JSON object"),
        (("entries", 0, "finding", "metrics", "final"), {}, r".metrics.final is {}; expected a number or null"),
        (("entries", 0, "finding", "columns"), {"step": [None]}, r"columns.step\[0\] is None; expected an integer"),
        (("entries", 0, "finding", "columns"), {"step": [1], "p_mean": []}, "do not have one number for each step"),
        (("entries", 0, "finding", "header", "environments"), [7], "IndexError: "),
        (("entries", 0, "finding", "header", "run", "iterations"), "many", "iterations is 'many'"),
    ],
)
def test_a_damaged_file_is_refused(
    experiment: Experiment,
    store: dict[str, Finding],
    tmp_path: Path,
    place: tuple[str | int, ...],
    value: object,
    problem: str,
) -> None:
    path = tmp_path / "toy.json"
    write_results(collect(experiment, (0,), store), path)
    content = inner = json.loads(path.read_text())
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"toy\.json: .*{problem}"):
        read_results(path)


def test_choices_with_the_scores_of_their_trials(tiny: Callable[..., Run], measured: Callable[..., Finding]) -> None:
    complete, partial, never = (search_rate(tiny(name), (0.1, 0.3)) for name in ("CCE", "GCE", "MAE"))
    scores = zip((*complete.options, partial.options[0]), (0.4, 0.6125, 0.5), strict=True)
    store = {option.trial.folder_name(): measured(option.trial, validation=score) for option, score in scores}
    cells = (
        Cell("CCE", "own lr", complete),
        Cell("GCE", "own lr", partial),
        Cell("MAE", "own lr", never),
        Cell("CCE", "lr 0.1", tiny("CCE")),
    )
    experiment = Experiment("toy", "A toy", "ours", cells)
    found = choice_results(experiment, store)
    assert [(choice.place, choice.chosen) for choice in found] == [("CCE, own lr", "lr 0.3"), ("GCE, own lr", None)]
    assert found[0].scores == {"0.1": 0.4, "0.3": 0.6125}
    (grid,) = choice_tables(found)
    assert grid.columns == ("", "0.1", "0.3", "chosen")
    assert grid.rows == [("CCE, own lr", "40.0", "61.3", "lr 0.3"), ("GCE, own lr", "50.0", "-", "-")]
    assert "## Trials of lr: final accuracy on the hold-out\n\n|  | 0.1 | 0.3 | chosen |" in markdown(
        experiment, [], [grid]
    )


def test_a_trial_without_a_score_loses(tiny: Callable[..., Run], measured: Callable[..., Finding]) -> None:
    choice = search_rate(tiny("CCE"), (0.1, 0.3))
    diverged = search_rate(replace(tiny("CCE"), rate=0.2), (0.1, 0.3))
    store = {o.trial.folder_name(): measured(o.trial, validation=0.5) for o in choice.options}
    store |= {o.trial.folder_name(): measured(o.trial) for o in diverged.options}  # without a score: not a number
    cells = (Cell("CCE", "a", choice), Cell("CCE, less noise", "a", diverged))
    (grid,) = choice_tables(choice_results(Experiment("toy", "A toy", "ours", cells), store))
    assert grid.rows == [("CCE", "50.0", "50.0", "lr 0.1"), ("CCE, less noise", "-", "-", "lr 0.1")]
