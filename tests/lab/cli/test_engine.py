"""What is said while a run goes on, and at its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reweigh.lab.cli.engine import print_result


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data without a test part."""
    path = tmp_path_factory.mktemp("mine") / "mine.npz"
    y = np.arange(100) % 3
    np.savez(path, x=np.eye(3, dtype=np.float32)[y], y=y)
    return path


def test_the_noisy_holdout_is_called_so_all_the_way(reweigh, mine: Path, tmp_path: Path) -> None:
    line = ["--data", mine, "--net", "linear", "--weighting", "CCE", "--iterations", 20, "--evaluate-every", 10]
    ended = reweigh("train", *line, "--device", "cpu", "--runs", tmp_path)
    assert ended.code == 0, ended.stderr
    assert "noisy hold-out accuracy" in ended.stdout
    assert ended.stderr.count("noisy hold-out accuracy") == 2
    shown = reweigh("show", ended.stdout.splitlines()[0]).stdout
    assert shown.count("noisy hold-out accuracy") == 2, "over time, and in the result"
    assert "noisy hold-out: a part of these data, set aside with its labels as given" in shown
    for said in (ended.stdout, ended.stderr, shown):
        assert "test accuracy" not in said


def test_the_accuracy_on_clean_labels_is_shown_where_they_are_known(
    reweigh, mine: Path, finished: Path, tmp_path: Path
) -> None:
    line = ["--data", mine, "--net", "linear", "--weighting", "CCE", "--iterations", 20, "--evaluate-every", 10]
    ended = reweigh("train", *line, "--device", "cpu", "--runs", tmp_path)
    shown = reweigh("show", ended.stdout.splitlines()[0]).stdout
    for said, times in ((ended.stdout, 1), (ended.stderr, 2), (shown, 2)):
        assert said.count("train accuracy") == times
        assert "train accuracy clean" not in said
    noisy = reweigh("show", finished).stdout
    assert noisy.count("train accuracy clean") == 2
    assert noisy.count("train accuracy") == 4


def test_a_run_that_diverged(reweigh, mine: Path, tmp_path: Path) -> None:
    line = ["--data", mine, "--net", "mlp-8", "--weighting", "CCE", "--iterations", 40, "--evaluate-every", 20]
    ended = reweigh("train", *line, "--device", "cpu", "--runs", tmp_path, "--lr", 1e12)
    assert ended.code == 0, ended.stderr
    assert ended.stderr.count("loss not finite") == 2
    assert ended.stderr.count("training diverged") == 1
    sentence = "training diverged: not finite at iteration 20; try a smaller --lr"
    assert ended.stdout.splitlines()[-1] == sentence
    folder = ended.stdout.splitlines()[0]
    assert reweigh("show", folder).stdout.splitlines()[-1] == sentence
    assert reweigh("show", folder, "--json").json["result"]["diverged"] == 20
    told = reweigh("predict", folder, mine)
    assert (told.code, told.stdout) == (3, "")
    assert "weights are not finite: training diverged; train again with a smaller lr" in told.stderr
    told = reweigh("suspects", folder, "-o", tmp_path / "suspects.csv")
    assert told.code == 3
    assert "training diverged" in told.stderr


@pytest.mark.parametrize(
    ("net", "shape", "told", "code"),
    [
        ("cnn9", (8, 8, 3), "net 'cnn9' cannot read images of 3x8x8", 2),
        ("resnet20", (8, 8, 4), "expected 3 channels", 2),
        ("mlp-999999999999", (8, 8, 3), "not enough memory: net 'mlp-999999999999' is too large", 1),
    ],
)
def test_a_net_that_cannot_be_used(reweigh, tmp_path: Path, net: str, shape, told: str, code: int) -> None:
    np.savez(tmp_path / "images.npz", x=np.zeros((20, *shape), np.uint8), y=np.arange(20) % 2)
    line = ["--data", tmp_path / "images.npz", "--net", net, "--weighting", "CCE", "--device", "cpu"]
    ended = reweigh("train", *line, "--runs", tmp_path / "runs")
    assert ended.code == code
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ([], ""),
        (["cat"], "1 collapsed class: cat (mean p of its labels below half of chance)"),
        (list("abcdefg"), "7 collapsed classes: a, b, c, d, e and 2 more (mean p"),
    ],
)
def test_collapsed_classes_are_shown_with_the_result(capsys, classes: list[str], told: str) -> None:
    print_result({"final": {"test_accuracy": 0.4}, "best": None, "diverged": None, "collapsed_classes": classes})
    said = capsys.readouterr().out.splitlines()
    assert (told in said[-1]) if told else not any("collapsed" in line for line in said)
