"""The output of commands that execute one run or several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.cli.exits import BAD_DATA, DIVERGED, FAILED, INTERRUPTED, ExitError
from reweigh.lab.cli.runner import RunOutcome, failed_run, print_result, print_runs
from reweigh.lab.record import read_rows, summarise
from reweigh.lab.record.files import write_json
from reweigh.lab.spec import read_seeds

LINE = "train --data digits --net mlp-8 --weighting CCE --iterations 8 --batch-size 32 --evaluate-every 4 --device cpu"


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data without a test part."""
    path = tmp_path_factory.mktemp("mine") / "mine.npz"
    y = np.arange(100) % 3
    np.savez(path, x=np.eye(3, dtype=np.float32)[y], y=y)
    return path


def test_the_noisy_holdout_is_named_everywhere(reweigh, mine: Path, tmp_path: Path) -> None:
    line = ["--data", mine, "--net", "linear", "--weighting", "CCE", "--iterations", 20, "--evaluate-every", 10]
    ended = reweigh("train", *line, "--device", "cpu", "--runs", tmp_path)
    assert ended.code == 0, ended.stderr
    assert "noisy hold-out accuracy" in ended.stdout
    assert ended.stderr.count("noisy hold-out accuracy") == 2
    shown = reweigh("show", ended.stdout.splitlines()[0]).stdout
    assert shown.count("noisy hold-out accuracy") == 2, "over time, and in the result"
    assert "noisy hold-out: part of these data, held out with its given labels" in shown
    for output in (ended.stdout, ended.stderr, shown):
        assert "test accuracy" not in output


def test_training_accuracy_names_its_labels_only_if_they_differ(
    reweigh, mine: Path, finished: Path, tmp_path: Path
) -> None:
    line = ["--data", mine, "--net", "linear", "--weighting", "CCE", "--iterations", 20, "--evaluate-every", 10]
    ended = reweigh("train", *line, "--device", "cpu", "--runs", tmp_path)
    shown = reweigh("show", ended.stdout.splitlines()[0]).stdout
    for output, times in ((ended.stdout, 1), (ended.stderr, 2), (shown, 2)):
        assert output.count("training accuracy") == times
        assert "labels)" not in output
    noisy = reweigh("show", finished).stdout
    for labels in ("given", "true"):
        assert noisy.count(f"training accuracy ({labels} labels)") == 2


def test_a_run_that_diverged(reweigh, mine: Path, tmp_path: Path) -> None:
    line = ["--data", mine, "--net", "mlp-8", "--weighting", "CCE", "--iterations", 40, "--evaluate-every", 20]
    ended = reweigh("train", *line, "--device", "cpu", "--runs", tmp_path, "--lr", 1e12)
    assert ended.code == DIVERGED, ended.stderr
    assert ended.stderr.count("loss not finite") == 2
    assert ended.stderr.count("training diverged") == 2
    message = "training diverged: not finite at iteration 20; try a smaller --lr"
    assert ended.stdout.splitlines()[-1] == message
    folder = ended.stdout.splitlines()[0]
    assert reweigh("show", folder).stdout.splitlines()[-1] == message
    assert reweigh("show", folder, "--json").json["result"]["diverged"] == 20
    predicted = reweigh("predict", folder, mine)
    assert (predicted.code, predicted.stdout) == (3, "")
    assert "weights are not finite: training diverged; train again with a smaller lr" in predicted.stderr
    listed = reweigh("suspects", folder, "-o", tmp_path / "suspects.csv")
    assert listed.code == 3
    assert "training diverged" in listed.stderr


@pytest.mark.parametrize(
    ("net", "shape", "message", "code"),
    [
        ("cnn9", (8, 8, 3), "net 'cnn9' cannot read images of 3x8x8", 2),
        ("resnet20", (8, 8, 4), "expected 3 channels", 2),
        ("mlp-999999999999", (8, 8, 3), "not enough memory: net 'mlp-999999999999' is too large", 1),
    ],
)
def test_a_net_that_cannot_be_used(reweigh, tmp_path: Path, net: str, shape, message: str, code: int) -> None:
    np.savez(tmp_path / "images.npz", x=np.zeros((20, *shape), np.uint8), y=np.arange(20) % 2)
    line = ["--data", tmp_path / "images.npz", "--net", net, "--weighting", "CCE", "--device", "cpu"]
    ended = reweigh("train", *line, "--runs", tmp_path / "runs")
    assert ended.code == code
    assert [message in line for line in ended.stderr.splitlines() if not line.startswith("chosen: ")] == [True]
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], ""),
        (["cat"], "1 collapsed class: cat (mean p of its labels below half of chance)"),
        (list("abcdefg"), "7 collapsed classes: a, b, c, d, e and 2 more (mean p"),
    ],
)
def test_collapsed_classes_are_printed_with_the_result(capsys, classes: list[str], message: str) -> None:
    print_result({"final": {"test_accuracy": 0.4}, "best": None, "diverged": None, "collapsed_classes": classes})
    lines = capsys.readouterr().out.splitlines()
    assert (message in lines[-1]) if message else not any("collapsed" in line for line in lines)


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
    assert ended.code == DIVERGED
    assert ended.stderr.endswith("reweigh: 2 of 2 runs diverged; try a smaller --lr\n")
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
    with pytest.raises(ExitError, match=f"{count} of {count + 2} runs diverged"):
        print_runs([*diverged, *well], as_json=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "mean" in line]
    assert line == f"mean ± standard deviation in per cent: final 91.0 ± 1.4, best 91.0 ± 1.4; {message}"
    with pytest.raises(ExitError):
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
        (["--seeds", "0-x"], "'0-x' is not a seed"),
        (["--seeds", "3-1"], "'3-1' is not a seed"),
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
