"""Several runs from one command line: what each gives alone, a table, and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reweigh.errors import DataError
from reweigh.lab.cli.exits import BAD_DATA, FAILED, INTERRUPTED, ExitError
from reweigh.lab.cli.runner import RunOutcome, failed_run, print_runs
from reweigh.lab.record import read_rows, summarise
from reweigh.lab.record.files import write_json
from reweigh.lab.spec import read_seeds

LINE = "train --data digits --net mlp-8 --weighting CCE --iterations 8 --batch-size 32 --evaluate-every 4 --device cpu"


def test_seeds_together_give_the_rows_of_each_alone(reweigh, tmp_path: Path) -> None:
    ended = reweigh(*LINE.split(), "--seeds", "0-1", "--jobs", "2", "--runs", tmp_path / "together", "--json")
    assert ended.code == 0
    assert [run["state"] for run in ended.json["runs"]] == ["done", "done"]
    for seed, run in enumerate(ended.json["runs"]):
        assert reweigh(*LINE.split(), "--seed", seed, "--runs", tmp_path / "alone").code == 0
        assert read_rows(tmp_path / "together" / run["run"]) == read_rows(tmp_path / "alone" / run["run"])


def test_the_table_has_mean_and_spread(reweigh, tmp_path: Path) -> None:
    ended = reweigh(*LINE.split(), "--seeds", "3,4", "--runs", tmp_path)
    assert ended.code == 0
    assert ended.stdout.count("done") == 2
    assert "mean ± standard deviation in per cent: final" in ended.stdout
    assert {summarise(folder).state for folder in tmp_path.iterdir()} == {"done"}


def test_changed_data_are_refused_before_any_run_begins(reweigh, tmp_path: Path) -> None:
    table, line = tmp_path / "mine.csv", LINE.replace("digits", str(tmp_path / "mine.csv"))
    rows = [f"{k % 7},{k % 3},{'ab'[k % 2]}" for k in range(60)]
    table.write_text("\n".join(["x,y,label", *rows]))
    assert reweigh(*line.split(), "--seeds", "0-1", "--runs", tmp_path / "runs").code == 0
    table.write_text("\n".join(["x,y,label", *rows[1:], rows[0]]))
    ended = reweigh(*line.split(), "--seeds", "1-2", "--runs", tmp_path / "runs")
    assert ended.code == BAD_DATA
    assert "it has changed since" in ended.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_diverged_run_is_reported(reweigh, tmp_path: Path) -> None:
    ended = reweigh(*LINE.split(), "--seeds", "0,1", "--lr", "1e30", "--runs", tmp_path)
    assert ended.code == 0
    assert ended.stdout.count("training diverged by iteration 4") == 2
    assert ended.stdout.endswith("no mean; 2 diverged runs left out\n")


def of_a_run(folder: Path, accuracy: float, diverged: int | None = None, holdout: str = "test") -> RunOutcome:
    """Return the outcome of a finished run with this result."""
    scores = {"test_accuracy": accuracy}
    folder.mkdir()
    write_json(folder / "result.json", {"final": scores, "best": scores, "diverged": diverged, "holdout": holdout})
    return RunOutcome(folder, "done")


@pytest.mark.parametrize(("count", "message"), [(1, "1 diverged run left out"), (2, "2 diverged runs left out")])
def test_diverged_runs_are_left_out_of_the_mean(tmp_path: Path, capsys, count: int, message: str) -> None:
    diverged = [of_a_run(tmp_path / f"diverged{i}", 0.1, diverged=5) for i in range(count)]
    well = [of_a_run(tmp_path / "a", 0.9), of_a_run(tmp_path / "b", 0.92)]
    print_runs([*diverged, *well], as_json=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "mean" in line]
    assert line == f"mean ± standard deviation in per cent: final 91.0 ± 1.4, best 91.0 ± 1.4; {message}"
    print_runs([*diverged, well[0]], as_json=False)
    assert capsys.readouterr().out.endswith(f"no mean; {message}\n")


def test_a_noisy_hold_out_has_a_mean_of_its_own(tmp_path: Path, capsys) -> None:
    noisy = [of_a_run(tmp_path / name, 0.7, holdout="noisy hold-out") for name in "ab"]
    tested = [of_a_run(tmp_path / name, 0.9) for name in "cd"]
    print_runs([*noisy, *tested], as_json=False)
    header, *rows, first, second = capsys.readouterr().out.splitlines()
    where = slice(header.index("tested on"), header.index("final"))
    assert [row[where].strip() for row in rows] == ["noisy hold-out", "noisy hold-out", "test", "test"]
    assert first == "noisy hold-out, mean ± standard deviation in per cent: final 70.0 ± 0.0, best 70.0 ± 0.0"
    assert second == "mean ± standard deviation in per cent: final 90.0 ± 0.0, best 90.0 ± 0.0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0-x"], "'0-x' is none"),
        (["--seeds", "3-1"], "'3-1' is none"),
        (["--seeds", "0,1", "--seed", "2"], "either --seed or --seeds"),
        (["--jobs", "2"], "--jobs 2 needs several runs"),
        (["--jobs", "0", "--seeds", "0,1"], "--jobs"),
    ],
)
def test_wrong_options(reweigh, tmp_path: Path, words: list[str], message: str) -> None:
    ended = reweigh(*LINE.split(), *words, "--runs", tmp_path)
    assert ended.code == 2
    assert message in ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_seed_is_taken_once() -> None:
    assert read_seeds("2,0-2") == (2, 0, 1)


@pytest.mark.parametrize(
    ("outcomes", "code", "message"),
    [
        ([failed_run(Path("a"), DataError("x: bad"))], BAD_DATA, "1 of 1 runs failed"),
        (
            [failed_run(Path("a"), ZeroDivisionError("by zero")), RunOutcome(Path("b"), "done")],
            FAILED,
            "1 of 2 runs failed",
        ),
        (
            [failed_run(Path("a"), DataError("x: bad")), RunOutcome(Path("b"), "stopped", "at 3", INTERRUPTED)],
            INTERRUPTED,
            "1 of 2 runs failed, 1 were stopped; run the same command to resume them",
        ),
    ],
)
def test_failed_and_stopped_runs_decide_the_exit_code(outcomes: list[RunOutcome], code: int, message: str) -> None:
    with pytest.raises(ExitError, match=message) as caught:
        print_runs(outcomes, as_json=False)
    assert caught.value.code == code
