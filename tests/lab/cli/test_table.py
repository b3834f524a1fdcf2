"""`reweigh table` on a small experiment of one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FILE = """
from paper import Cell, Experiment, Reported
from paper.protocols import search_rate
from reweigh.lab.spec import Run

def run(weighting, **fields):
    return Run(data="digits", net="mlp-4", weighting=weighting, noise="symmetric", rate=0.4, iterations=6,
               evaluate_every=6, device="cpu", **fields)

EXPERIMENT = [
    Experiment("first", "The first", "ours", (
        Cell("CCE", "r = 0.4", run("CCE"), (Reported("final", 60.9),)),
        Cell("LS", "r = 0.4", None, (Reported("printed", 50.1, "SL"),)),
        Cell("DM", "own lr", search_rate(run("DM(0.5, 8)"), (0.01, 0.1), short=1)),
    ), differs="It is a toy."),
    Experiment("second", "The second", "text", (Cell("CCE", "clean", run("CCE", inputs="mean")),)),
]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_measured_beside_reported(reweigh, file: Path, tmp_path: Path) -> None:
    line = ["table", file, "--only", "first", "--runs", tmp_path / "runs", "--seeds", "0,1", "-o", tmp_path / "a.md"]
    ended = reweigh(*line)
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == "The first"
    assert "Differs: It is a toy." in lines
    assert "r = 0.4 (protocol ours, fp32, not deterministic)" in lines
    header = lines[lines.index("r = 0.4 (protocol ours, fp32, not deterministic)") + 1]
    assert header.split() == ["final", "paper", "best", "paper,", "unspecified", "seeds"]
    assert any(row.startswith("CCE ") and "±" in row and " 60.9 " in row and row.endswith(" 2") for row in lines)
    assert any(row.startswith("LS") and "50.1 [SL]" in row for row in lines)
    assert any(row.startswith("DM") and "lr 0." in row for row in lines)
    assert "| LS | - | - | - | 50.1 [SL] | - |" in (tmp_path / "a.md").read_text()
    assert len(list((tmp_path / "runs").iterdir())) == 2 + 2 + 2  # CCE, trials, chosen
    before = ended.stdout
    again = reweigh(*line)
    assert again.stdout == before
    assert not again.stderr  # nothing was left to do


def test_a_dry_run_runs_nothing(reweigh, file: Path, tmp_path: Path) -> None:
    line = ["table", file, "--dry-run", "--runs", tmp_path / "runs"]
    ended = reweigh(*line)
    assert ended.code == 0
    assert "4 of 4 runs are left to do" in ended.stdout
    assert not (tmp_path / "runs").exists()
    assert reweigh("table", file, "--only", "second", "--runs", tmp_path / "runs").code == 0
    found = reweigh(*line, "--json").json["runs"]
    assert [run["state"] for run in found] == ["missing"] * 3 + ["done"]
    assert [run["trial"] for run in found] == [True, True, False, False]


def test_several_files_are_one_queue(reweigh, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(FILE.replace('"first"', '"third"').replace('"second"', '"fourth"'))
    line = ["table", file, other, "--only", "CCE", "--runs", tmp_path / "runs"]
    ended = reweigh(*line, "--json")
    assert ended.code == 0, ended.stderr
    assert [each["experiment"] for each in ended.json["experiments"]] == ["first", "second", "third", "fourth"]
    assert len(list((tmp_path / "runs").iterdir())) == 2  # all tables share them
    assert "1/2 " in ended.stderr
    assert "1/1 " not in ended.stderr
    assert "0 of 4 runs are left to do" in reweigh(*line, "--dry-run").stdout


def test_results_are_saved_and_counted_as_measured(reweigh, file: Path, tmp_path: Path) -> None:
    line = ["table", file, "--only", "CCE", "--save", tmp_path / "results", "--json"]
    first = reweigh(*line, "--runs", tmp_path / "runs").json
    content = json.loads((tmp_path / "results" / "first.json").read_text())
    assert content["entries"][0]["finding"]["metrics"]["final"] is not None
    assert content["environments"][0]["torch"]
    elsewhere = reweigh(*line, "--runs", tmp_path / "elsewhere").json
    assert elsewhere == first
    assert not list((tmp_path / "elsewhere").iterdir())
    added = [*line[:4], "--add", tmp_path / "results" / "first.json", "--json", "--runs", tmp_path / "elsewhere"]
    assert reweigh(*added).json == first


def test_quick_needs_no_data(reweigh, file: Path, tmp_path: Path) -> None:
    ended = reweigh("table", file, "--quick", "--runs", tmp_path)
    assert ended.code == 0, ended.stderr
    assert "quick: toy data" in ended.stdout
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["quick"]
    runs = [path.name for path in (tmp_path / "quick").iterdir() if path.is_dir()]
    assert runs
    assert all(name.startswith("toy-pictures.npz-mlp-8-") for name in runs), "who looks there sees what they are of"
    assert "toy-pictures.npz" in reweigh("runs", tmp_path / "quick").stdout


def test_a_figure(reweigh, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = Path(__file__).resolve().parents[2] / "experiments" / "figure_1b.py"
    ended = reweigh("table", drawn, "--figure", tmp_path / "1b.svg")
    assert ended.code == 0
    assert (tmp_path / "1b.svg").read_text().startswith("<?xml")
    none = reweigh("table", file, "--quick", "--only", "second", "--runs", tmp_path, "--figure", tmp_path / "x.svg")
    assert none.code == 2
    assert "there is no figure to draw" in none.stderr


def test_time_that_is_over_ends_cleanly(reweigh, file: Path, tmp_path: Path) -> None:
    ended = reweigh("table", file, "--runs", tmp_path, "--minutes", "1e-9")
    assert ended.code == 4
    assert "the same command goes on" in ended.stderr


def test_one_sentence_for_what_is_wrong(reweigh, file: Path, tmp_path: Path) -> None:
    for line, code, told in (
        ([tmp_path / "none.py"], 3, "no such file"),
        ([file, "--only", "nothing"], 2, "no row, column"),
        ([file, "--seeds", "x"], 2, "seeds are 'x'"),
        ([file, "--save", tmp_path / "a.json"], 2, "one file, but there are first, second"),
        ([file, "--quick", "--save", tmp_path / "results"], 2, "mean nothing"),
        ([file, "--add", tmp_path / "none.json"], 3, "none.json"),
        ([file, "--precision", "fp8"], 2, "precision is 'fp8'"),
    ):
        ended = reweigh("table", *line, "--runs", tmp_path / "runs")
        assert (ended.code, told in ended.stderr) == (code, True), ended.stderr


def test_runs_that_fail_are_told_once(reweigh, file: Path, tmp_path: Path) -> None:
    file.write_text(FILE.replace('data="digits"', 'data="digitz"'))
    ended = reweigh("table", file, "--only", "first", "--runs", tmp_path / "runs")
    assert ended.code == 1
    assert ended.stderr.count("did you mean 'digits'?") == 1
    assert "3 runs failed" in ended.stderr


def test_the_help_says_that_the_file_is_executed(reweigh) -> None:
    assert "trust" in reweigh("table", "--help").stdout
