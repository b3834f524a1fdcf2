from __future__ import annotations

import csv
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reweigh.lab.suspects import read_csv
from reweigh.lab.suspects.decisions import Decision, write_decisions

SMALL = ["--net", "mlp-8", "--iterations", "40", "--evaluate-every", "10", "--device", "cpu"]


@pytest.fixture(scope="module")
def recorded(reweigh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs with one that `reweigh suspects digits` has trained; not to be changed."""
    root = tmp_path_factory.mktemp("suspects") / "runs"
    ended = reweigh("suspects", "digits", *SMALL, "--noise", "symmetric", "--rate", "0.3", "--runs", root)
    assert ended.code == 0, ended.stderr
    assert "test accuracy" in ended.stderr, "progress"
    return root


def test_data_are_trained_on_and_the_worst_are_shown(reweigh, recorded: Path) -> None:
    line = ["suspects", "digits", *SMALL, "--noise", "symmetric", "--rate", "0.3", "--runs", recorded]
    ended = reweigh(*line)
    assert ended.code == 0
    assert "test accuracy" not in ended.stderr, "a finished run is not trained again"
    shown = ended.stdout.splitlines()
    assert shown[1].split() == ["example", "given", "suggested", "issue", "index", "score"]
    assert any("of 1,200 labels are suspects; scored by 1 - posterior of the given label" in line for line in shown)
    assert any("estimated noise rate: " in line and "95 % interval" in line for line in shown)
    assert "AUROC 0." in shown[-1]


@pytest.mark.parametrize("method", ["posterior", "final-p", "mean-p", "duel", "aum", "mixture"])
def test_a_run_by_its_hash_in_json_and_csv(reweigh, recorded: Path, method: str, tmp_path: Path) -> None:
    (folder,) = recorded.glob("digits-*")
    file = tmp_path / "suspects.csv"
    found = reweigh(
        "suspects", folder.name[-12:-6], "--runs", recorded, "--method", method, "--json", "-o", file, "--seed", 5
    ).json
    assert found["run"] == str(folder)
    assert found["examples"] == 1200
    assert 0.5 < found["truth"]["auroc"] <= 1
    assert found["noise"]["low"] <= found["noise"]["rate"] <= found["noise"]["high"]
    assert len(found["noise"]["transition"]) == 10
    written = read_csv(file, tuple("0123456789"))
    assert len(written) == 1200
    assert int(written.issue.sum()) == found["issues"]
    assert [str(k) for k in written.given[:10]] == [worst["given"] for worst in found["worst"]]
    with file.open(newline="") as opened:
        assert next(csv.DictReader(opened))["how"] == found["how"]


def test_out_of_fold_and_threshold_samples_train_more(reweigh, recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "runs")
    (folder,) = (tmp_path / "runs").glob("digits-*")
    found = reweigh("suspects", folder, "--folds", 2, "--json", "--runs", tmp_path / "runs").json
    assert "out of 2 folds" in found["how"]
    found = reweigh("suspects", folder, "--threshold-samples", "--json", "--runs", tmp_path / "runs").json
    assert "threshold samples" in found["how"]
    assert len(list((tmp_path / "runs").glob("digits-*"))) == 1 + 2 + 2


def test_written_files_are_listed(reweigh, recorded: Path, tmp_path: Path) -> None:
    (folder,) = recorded.glob("digits-*")
    ended = reweigh("suspects", folder, "-o", tmp_path / "s.csv", "--page", tmp_path / "s.html")
    assert ended.stdout.splitlines()[-2] == f"{tmp_path / 's.csv'}: 1200 examples, most suspicious first"
    assert ended.stdout.splitlines()[-1].startswith(f"{tmp_path / 's.html'}: review the most suspicious examples")
    assert (tmp_path / "s.html").read_text().startswith("<!doctype html>")


def test_the_printed_command_works(reweigh, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(recorded, tmp_path / "all runs")
    (folder,) = (tmp_path / "all runs").glob("digits-*")
    ended = reweigh("suspects", folder, "-o", tmp_path / "s.csv", "--page", tmp_path / "s.html")
    worst = read_csv(tmp_path / "s.csv", tuple("0123456789"))
    index, given = int(worst.index[0]), int(worst.given[0])
    monkeypatch.chdir(tmp_path)
    write_decisions(Path("decisions.csv"), [Decision(index, given, "drop", given)], worst.class_names)
    program, *words = shlex.split(ended.stdout.splitlines()[-1].partition("then run: ")[2])
    assert program == "reweigh"
    assert (done := reweigh(*words)).code == 0, done.stderr
    assert len((tmp_path / "corrected" / "changes.csv").read_text().splitlines()) == 2


def test_tracklets_by_their_folder(reweigh, tmp_path: Path) -> None:
    for i in range(16):
        frame = tmp_path / "videos" / "train" / "ab"[i % 2] / "front" / "1" / f"{i}.png"
        frame.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 8), (100 * (i % 2), i, 0)).save(frame)
    data, small = f"tracklets:{tmp_path / 'videos'}", ["--iterations", 4, "--image-size", 8, "--device", "cpu"]
    ended = reweigh("suspects", data, *small, "--runs", tmp_path / "runs", "--page", tmp_path / "s.html", "--json")
    assert ended.code == 0, ended.stderr
    assert {Path(worst["source"]).parents[2].name for worst in ended.json["worst"]} == {"a", "b"}


@pytest.mark.parametrize(("options", "count"), [([], 20), (["--holdout", 0.2], 16)])
def test_every_label_is_judged_unless_some_are_held_out(
    reweigh, tmp_path: Path, options: list[Any], count: int
) -> None:
    (tmp_path / "mine.csv").write_text("a,label\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(20)))
    small = ["--net", "linear", "--iterations", 4, "--batch-size", 8, "--device", "cpu", "--runs", tmp_path / "runs"]
    ended = reweigh("suspects", tmp_path / "mine.csv", *small, *options, "-o", tmp_path / "suspects.csv")
    assert ended.code == 0, ended.stderr
    assert f" of {count} labels are suspects; scored by" in ended.stdout
    note = "not scored: the examples held out to test the model"
    assert (note in ended.stdout.splitlines()) == bool(options)
    assert len((tmp_path / "suspects.csv").read_text().splitlines()) == count + 1


@pytest.fixture(params=["csv", "texts", "npz", "folder"])
def elsewhere(
    reweigh, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[str]]:
    """A run trained on a relative path in `there`, and its data, from the parent directory."""
    there, options = tmp_path / "there", []
    there.mkdir()
    names = "ab"
    if request.param == "npz":
        data = "mine.npz"
        x = np.arange(40, dtype=np.float32).reshape(20, 2)
        np.savez(there / data, x_train=x, y_train=np.arange(20) % 2)
    elif request.param == "folder":
        data, options = "pictures", ["--image-size", "8"]
        for i in range(20):
            (there / data / names[i % 2]).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (100 * (i % 2), i, 0)).save(there / data / names[i % 2] / f"{i}.png")
    else:
        data, options = "mine.csv", ["--text-column", "a"] if request.param == "texts" else []
        (there / data).write_text("a,label\n" + "".join(f"{i},{names[i % 2]}\n" for i in range(20)))
    monkeypatch.chdir(there)
    small = ["--net", "linear", "--weighting", "CCE", "--iterations", 4, "--batch-size", 8, "--device", "cpu"]
    ended = reweigh("train", "--data", data, *options, *small, "--json")
    assert ended.code == 0, ended.stderr
    monkeypatch.chdir(tmp_path)
    return Path("there", ended.json["folder"]), [data, *options]


def test_a_run_from_another_directory(reweigh, elsewhere: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, _ = elsewhere
    ended = reweigh("suspects", folder)
    assert ended.code == 3
    assert "set --data-root to the directory that the relative path starts from" in ended.stderr
    root = ["--data-root", "there"]
    ended = reweigh("suspects", folder, *root, "-o", "there/s.csv", "--page", "s.html")
    assert ended.code == 0, ended.stderr
    then = f"reweigh correct {folder} --data-root there --decisions"
    assert then in ended.stdout.splitlines()[-1]
    assert json.dumps(then.removeprefix("reweigh correct ").removesuffix(" --decisions")) in Path("s.html").read_text()
    assert reweigh("suspects", folder, *root, "--folds", 2, "--device", "cpu").code == 0
    line = ["correct", folder, "--suspects", "there/s.csv", "--threshold", 0.99, "-o", "new"]
    assert reweigh(*line).code == 3
    ended = reweigh(*line, *root, "--retrain", "--json")
    assert ended.code == 0, ended.stderr
    assert Path(ended.json["data"]).parent == Path("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "s.html", "there"]


def test_data_from_another_directory(reweigh, elsewhere: tuple[Path, list[str]]) -> None:
    _, data = elsewhere
    ended = reweigh("suspects", *data, "--data-root", "there", "--net", "linear", "--iterations", 4, "--device", "cpu")
    assert ended.code == 0, ended.stderr


def test_undefined_measures_are_left_out_where_no_label_is_wrong(reweigh, tmp_path: Path) -> None:
    line = ["suspects", "digits", *SMALL, "--noise", "symmetric", "--rate", "0", "--runs", tmp_path / "runs"]
    ended = reweigh(*line)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "true noise rate: 0.0%"
    truth = reweigh(*line, "--json").json["truth"]
    assert (truth["rate"], truth["auroc"], truth["average_precision"], truth["recall"]) == (0, None, None, None)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing"], 3, "nothing: no such run: not a folder, nor a name or hash"),
        (["nothing"], 3, "nor data: a name from reweigh data list, a folder, or a file"),
        (["RUN", "--net", "linear"], 2, "--net cannot be changed for an existing run"),
        (["RUN", "--method", "best"], 2, "--method is 'best'; expected one of auto, posterior, final-p"),
        (["RUN", "--method", "duel", "--folds", "3"], 2, "method is 'duel'; folds require final-p or mixture"),
        (["digits", "--net", "resnet65"], 2, "no net is named 'resnet65'"),
        (["digits", "--lr", "0"], 2, "lr is 0.0; expected a number in (0"),
    ],
)
def test_wrong_input_is_one_message(
    reweigh, recorded: Path, arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    (folder,) = recorded.glob("digits-*")
    line = [str(folder) if argument == "RUN" else argument for argument in arguments]
    ended = reweigh("suspects", *line, "--runs", tmp_path)
    assert ended.code == code
    assert message in ended.stderr


def test_training_that_diverges_has_its_own_exit_code(reweigh, tmp_path: Path) -> None:
    line = ["suspects", "digits", "--net", "mlp-4", "--weighting", "CCE", "--iterations", 8, "--device", "cpu"]
    ended = reweigh(*line, "--lr", "1e20", "--runs", tmp_path)
    assert ended.code == 5
    assert ended.stderr.endswith("reweigh: training diverged; try a smaller --lr\n")
