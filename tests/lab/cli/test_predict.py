from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reweigh.lab.cli.predict import as_csv
from reweigh.lab.data.digits import load
from reweigh.lab.predict import Predictions


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    np.savez(tmp_path / "new.npz", x=load().test.inputs[:25])
    return tmp_path / "new.npz"


def test_csv_on_standard_output_and_in_a_file(reweigh, finished: Path, inputs: Path, tmp_path: Path) -> None:
    ended = reweigh("predict", finished, inputs)
    assert ended.code == 0
    rows = list(csv.DictReader(ended.stdout.splitlines()))
    assert len(rows) == 25
    assert rows[0].keys() == {"example", "class", "p"}
    assert all(row["class"] in "0123456789" and 0.1 <= float(row["p"]) <= 1 for row in rows)
    written = reweigh("predict", finished / "model", inputs, "-o", tmp_path / "out.csv")
    assert written.stdout == f"{tmp_path / 'out.csv'}: 25 predictions\n"
    assert (tmp_path / "out.csv").read_text() == ended.stdout


def test_json_and_all_probabilities(reweigh, finished: Path, inputs: Path) -> None:
    line = ["predict", finished.name[-12:-6], inputs, "--runs", finished.parent, "--best"]
    found = reweigh(*line, "--json", "--probabilities").json
    assert found["model"] == str(finished / "model")
    assert len(found["class"]) == len(found["p"]) == 25
    np.testing.assert_allclose(np.sum(found["probabilities"], axis=1), 1)
    header = reweigh(*line, "--probabilities").stdout.splitlines()[0]
    assert header.split(",")[3:] == [f"p({k})" for k in range(10)]


def test_a_terminal_gets_a_table(reweigh, finished: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reweigh.lab.cli.predict._is_terminal", lambda: True)
    shown = reweigh("predict", finished, inputs).stdout
    assert "... and 5 more" in shown


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [("nothing", "x.npz", "nothing: no such run"), ("finished", "x.npz", "x.npz: no such file")],
)
def test_wrong_input_is_one_message(reweigh, finished: Path, model: str, inputs: str, message: str) -> None:
    ended = reweigh("predict", finished if model == "finished" else model, inputs)
    assert ended.code == 3
    assert message in ended.stderr


def test_empty_texts_are_listed(reweigh, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("words,label\n" + "a fine film,pos\na dull film,neg\n" * 10)
    small = ["--net", "linear", "--weighting", "CCE", "--iterations", 4, "--device", "cpu", "--json"]
    line = ["train", "--data", tmp_path / "train.csv", "--text-column", "words", *small, "--runs", tmp_path / "runs"]
    run = reweigh(*line).json["folder"]
    (tmp_path / "new.txt").write_text("fine\n" + "\n" * 12 + "dull\n")
    ended = reweigh("predict", run, tmp_path / "new.txt")
    assert len(ended.stdout.splitlines()) == 1 + 14
    lines = ", ".join(f"line {k}" for k in range(2, 12))
    assert ended.stderr == (
        f"{tmp_path / 'new.txt'}: empty texts: {lines} and 2 more; their predictions are those for no words at all\n"
    )
    assert reweigh("predict", run, tmp_path / "new.txt", "--json").json["empty"] == [f"line {k}" for k in range(2, 14)]


def test_names_in_another_encoding() -> None:
    name = os.fsdecode(b"caf\xe9.png")
    found = Predictions((name, "b.png"), np.array([0, 1]), np.eye(2), ("a", "b"))
    assert as_csv(found, probabilities=False).encode().splitlines()[1] == b"caf\\udce9.png,a,1"


def test_keys_and_texts_are_beside_the_predictions(reweigh, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(
        "key,size,label\n" + "".join(f"a{i},{i},{'no' if i < 20 else 'yes'}\n" for i in range(40))
    )
    small = ["--net", "mlp-4", "--weighting", "CCE", "--iterations", 4, "--device", "cpu", "--json"]
    line = ["train", "--data", tmp_path / "train.csv", *small, "--runs", tmp_path / "runs"]
    ended = reweigh(*line)
    assert ended.code == 0, ended.stderr
    folder = ended.json["folder"]
    (tmp_path / "new.csv").write_text('key,size,p\nx7,3,a note\n"y,8",35,\n')
    rows = list(csv.DictReader(reweigh("predict", folder, tmp_path / "new.csv").stdout.splitlines()))
    assert [(row["example"], row["key"], row["p (input)"]) for row in rows] == [("1", "x7", "a note"), ("2", "y,8", "")]
    assert reweigh("predict", folder, tmp_path / "new.csv", "--json").json["beside"]["key"] == ["x7", "y,8"]


def test_standard_input(tmp_path: Path) -> None:
    def call(*words: object, given: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "reweigh", *map(str, words)]
        return subprocess.run(line, input=given, capture_output=True, text=True, check=False, cwd=tmp_path)

    (tmp_path / "train.csv").write_text("words,label\n" + "a fine film,pos\na dull film,neg\n" * 10)
    small = ["--net", "linear", "--weighting", "CCE", "--iterations", "4", "--device", "cpu"]
    trained = call("train", "--data", "train.csv", "--text-column", "words", *small, given="")
    folder = trained.stdout.splitlines()[0]
    texts = call("predict", folder, "-", given="fine, I think\ndull\n")
    assert [row["text"] for row in csv.DictReader(texts.stdout.splitlines())] == ["fine, I think", "dull"]
    empty = call("predict", folder, "-", given="\n")
    assert empty.returncode == 3
    assert empty.stderr.endswith("standard input: nothing to predict: all texts are empty\n")
