from __future__ import annotations

import csv
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reweigh.lab.record import read_header, read_rows
from reweigh.lab.run.material import gather
from reweigh.lab.suspects import write_csv
from reweigh.lab.suspects.decisions import Decision, write_decisions
from reweigh.labels import Suspects


def listed(folder: Path) -> Suspects:
    """Return the suspects of a run by an oracle: exactly the wrong labels, with the true ones suggested."""
    material = gather(read_header(folder).run)
    given, clean = material.train.labels, material.clean
    assert clean is not None
    wrong = given != clean
    return Suspects(
        index=np.arange(len(given)),
        given=given,
        suggested=clean,
        score=np.where(wrong, np.linspace(0.6, 1, len(given)), 0.1),
        issue=wrong,
        p_given=np.where(wrong, 0.1, 0.9),
        p_suggested=np.full(len(given), 0.9),
        class_names=material.dataset.class_names,
        sources=tuple(map(str, range(len(given)))),
        description="by an oracle",
        noise=None,
    )


@pytest.fixture(scope="module")
def finished(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, because retraining adds runs to its folder."""
    return Path(shutil.copytree(finished, tmp_path_factory.mktemp("own") / finished.name))


@pytest.fixture(scope="module")
def suspects(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("suspects") / "suspects.csv"
    write_csv(path, listed(finished))
    return path


@pytest.fixture(scope="module")
def decisions(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = gather(read_header(finished).run).train.labels.tolist()
    made = [Decision(0, labels[0], "keep", labels[0]), Decision(1, labels[1], "fix", (labels[1] + 1) % 10)]
    made += [Decision(i, labels[i], "drop", labels[i]) for i in range(2, 12)]
    path = tmp_path_factory.mktemp("decisions") / "decisions.csv"
    write_decisions(path, made, [str(k) for k in range(10)])
    return path


def test_suggestions_are_applied_and_logged(reweigh, finished: Path, suspects: Path, tmp_path: Path) -> None:
    ended = reweigh("correct", finished, "--suspects", suspects, "-o", tmp_path / "new", "--json")
    assert ended.code == 0, ended.stderr
    result = ended.json
    material = gather(read_header(finished).run)
    assert result["fixed"] == int((material.train.labels != material.clean).sum())
    assert result["dropped"] == 0
    assert result["kept"] is None
    assert result["retrained"] is None
    np.testing.assert_array_equal(np.load(result["labels"]), material.clean)
    with Path(result["log"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == result["fixed"]
    assert all(row["before"] != row["after"] and "by an oracle" in row["why"] for row in rows)


def test_a_threshold_and_dropping(reweigh, finished: Path, suspects: Path, tmp_path: Path) -> None:
    line = ["correct", finished, "--suspects", suspects, "--threshold", 0.8, "--json"]
    fixed = reweigh(*line, "-o", tmp_path / "fixed").json
    dropped = reweigh(*line, "--drop", "-o", tmp_path / "dropped").json
    assert 0 < fixed["fixed"] == dropped["dropped"] < 400
    assert len(np.load(dropped["labels"])) == 1200 - dropped["dropped"] == np.load(dropped["kept"]).sum()


def test_the_printed_command_trains_on_the_corrected_labels(
    reweigh, finished: Path, decisions: Path, tmp_path: Path, tiny: list[str]
) -> None:
    ended = reweigh("correct", finished, "--decisions", decisions, "-o", tmp_path / "new")
    assert ended.code == 0, ended.stderr
    first, second = ended.stdout.splitlines()
    assert first == f"{tmp_path / 'new'}: 1 labels fixed and 10 examples dropped, of 1,200"
    words = shlex.split(second.partition(": ")[2])
    assert words[:4] == ["reweigh", "train", "--data", "digits"]
    rest = ["--net", "mlp-8", "--iterations", 10, "--device", "cpu", "--weighting", "CCE", "--runs", tmp_path / "runs"]
    trained = reweigh(*words[1:], *rest, "--json")
    assert trained.code == 0, trained.stderr
    assert read_header(Path(trained.json["folder"])).examples == 1190


def test_retraining_reports_both_models(reweigh, finished: Path, suspects: Path, tmp_path: Path) -> None:
    line = ["correct", finished, "--suspects", suspects, "-o", tmp_path / "new", "--retrain"]
    ended = reweigh(*line)
    assert ended.code == 0, ended.stderr
    shown = [row.split() for row in ended.stdout.splitlines()[3:]]
    assert shown[0] == ["before", "after"]
    assert [" ".join(row[:-2]) for row in shown[1:]] == [
        "final test accuracy",
        "best test accuracy",
        "training examples",
        "wrong labels",
    ]
    result: dict[str, Any] = reweigh(*line, "--json").json["retrained"]
    assert result["before"]["final"] == json.loads((finished / "result.json").read_text())["final"]["test_accuracy"]
    assert result["after"]["wrong_labels"] == 0
    assert result["runs"]["before"] == finished.name
    assert (finished.parent / result["runs"]["after"] / "result.json").exists()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    x = rng.normal(size=(200, 3)) + 2 * labels[:, None]
    labels[:10] = 1 - labels[:10]
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{'no' if k else 'yes'}" for (a, b, c), k in zip(x, labels, strict=True)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["a,b,c,verdict", *lines]) + "\n")
    return path


def test_data_are_read_as_by_suspects(reweigh, table: Path, tmp_path: Path) -> None:
    options = [
        "--label-column",
        "verdict",
        "--holdout",
        0.2,
        "--iterations",
        30,
        "--evaluate-every",
        10,
        "--device",
        "cpu",
    ]
    places = ["--runs", tmp_path / "runs", "--json"]
    before = table.read_bytes()
    found = reweigh("suspects", table, *options, *places, "-o", tmp_path / "suspects.csv")
    assert found.code == 0, found.stderr
    line = ["correct", table, *options, *places, "--suspects", tmp_path / "suspects.csv", "-o", tmp_path / "new"]
    ended = reweigh(*line, "--threshold", 0.3, "--drop", "--retrain")
    assert ended.code == 0, ended.stderr
    result = ended.json
    assert result["examples"] == 160  # a fifth is held out
    assert result["retrained"]["runs"]["before"] == Path(found.json["run"]).name
    assert result["retrained"]["after"]["examples"] == 160 - result["dropped"] < 160
    assert result["retrained"]["before"]["holdout"] == "noisy hold-out"
    assert result["retrained"]["before"]["wrong_labels"] is None  # unknown
    assert result["retrained"]["after"]["wrong_labels"] is None
    after = tmp_path / "runs" / result["retrained"]["runs"]["after"]
    assert "train_accuracy_clean" not in read_rows(after)[-1]  # the labels before correction are not the true ones
    assert result["options"]["label_column"] == "verdict"
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "give either --suspects FILE or --decisions FILE"),
        (["--suspects", "s.csv", "--decisions", "d.csv"], 2, "give either --suspects FILE or --decisions FILE"),
        (["--decisions", "d.csv", "--drop"], 2, "--threshold, --sure and --drop require --suspects"),
        (["--decisions", "d.csv"], 3, "d.csv: no such file"),
        (["--decisions", "d.csv", "--lr", "0.1"], 2, "--lr cannot be changed for an existing run"),
    ],
)
def test_wrong_input_is_one_message(reweigh, finished: Path, tmp_path: Path, options, code: int, message: str) -> None:
    ended = reweigh("correct", finished, "-o", tmp_path / "new", *options)
    assert ended.code == code
    assert message in ended.stderr
    assert not (tmp_path / "new").exists()


def test_suspects_of_other_labels_are_refused(reweigh, finished: Path, suspects: Path, tmp_path: Path) -> None:
    ended = reweigh("correct", "digits", "--suspects", suspects, "-o", tmp_path / "new", "--iterations", 10)
    assert ended.code == 3
    assert "; other data?" in ended.stderr
    ended = reweigh("correct", "nothing", "--suspects", suspects, "-o", tmp_path / "new")
    assert ended.code == 3
    assert "nothing: no such run" in ended.stderr
