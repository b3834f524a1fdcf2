"""Suspects of real runs: one run, out of fold, and threshold samples; tables, texts and images."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.record.files import read_json, write_json
from reweigh.lab.run import Interrupted, Update, execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.suspects import default_run, suspects_of
from reweigh.lab.suspects.detect import out_of_fold
from reweigh.metrics import auroc

NOISY = {"noise": "symmetric", "rate": 0.3, "iterations": 150, "evaluate_every": 15, "device": "cpu"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on digits that recorded everything."""
    return execute(default_run("digits", NOISY), tmp_path_factory.mktemp("runs"))


def area(result: Any) -> float:
    return auroc(torch.from_numpy(result.suspects.score), torch.from_numpy(result.suspects.given != result.clean))


@pytest.mark.parametrize("method", ["auto", "final-p", "mean-p", "duel", "aum", "mixture"])
def test_one_run(finished: Path, method: Any) -> None:
    result = suspects_of(finished, method=method, bootstrap=10)
    assert len(result.suspects) == 1200
    assert area(result) > 0.93
    assert result.suspects.description.endswith(f"run {finished.name[-12:]}")
    assert result.suspects.class_names == tuple("0123456789")


def test_changed_data_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    lines = [f"{k % 7},{k % 3},{'ab'[k % 2]}" for k in range(60)]
    table.write_text("\n".join(["x,y,label", *lines]))
    folder = execute(default_run(str(table), {"iterations": 10, "evaluate_every": 5, "device": "cpu"}), tmp_path)
    assert len(suspects_of(folder, bootstrap=2).suspects) > 0
    table.write_text("\n".join(["x,y,label", *lines[1:], lines[0]]))
    with pytest.raises(DataError, match=r"mine.csv has .* now: it has changed since"):
        suspects_of(folder, bootstrap=2)


@pytest.mark.parametrize("how", [{"folds": 2}, {"threshold_samples": True}])
def test_more_runs_on_changed_data_are_refused(tmp_path: Path, how: dict[str, Any]) -> None:
    table = tmp_path / "mine.csv"
    lines = [f"{k % 7},{k % 3},{'ab'[k % 2]}" for k in range(60)]
    table.write_text("\n".join(["x,y,label", *lines]))
    run = default_run(str(table), {"iterations": 10, "evaluate_every": 5, "device": "cpu"})
    folder = execute(run, tmp_path)
    assert len(suspects_of(folder, bootstrap=2, **how).suspects) > 0
    table.write_text("\n".join(["x,y,label", *lines[1:], lines[0]]))
    shutil.rmtree(folder)  # as the message says
    with pytest.raises(DataError, match=r"mine.csv has .* now: it has changed since"):
        suspects_of(execute(run, tmp_path), bootstrap=2, **how)


def test_changed_labels_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "labels.npy"
    labels = gather(default_run("digits", {})).train.labels
    np.save(file, labels)
    given = {"noise": f"given({file.as_posix()!r})", "iterations": 10, "evaluate_every": 5, "device": "cpu"}
    folder = execute(default_run("digits", given), tmp_path)
    np.save(file, (labels + 1) % 10)
    with pytest.raises(DataError, match=r"trained on other labels than given\(.*\) gives now"):
        suspects_of(folder, bootstrap=2)


def refused_by_its_digest(path: Path, size: int, find: Callable[[], object]) -> None:
    """Check that a truncated file is refused; then remove the digests, which earlier versions did not write."""
    content = path.read_bytes()
    path.write_bytes(content[:size])
    with pytest.raises(DataError, match=rf"{path.name}: damaged; its content does not match its digest"):
        find()
    path.write_bytes(content)
    result = read_json(path.parent / "result.json")
    del result["sha256"]
    write_json(path.parent / "result.json", result)


@pytest.mark.parametrize("name", ["p.f16", "margins.bin"])
def test_truncated_records_are_refused(finished: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / finished.name
    shutil.copytree(finished, folder)
    refused_by_its_digest(folder / name, 100, lambda: suspects_of(folder, bootstrap=2))
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 5])
    with pytest.raises(DataError, match=rf"{name}: holds 2 records, expected 10; there is none of iteration 45"):
        suspects_of(folder, bootstrap=2)
    (folder / name).write_bytes(content[:100] + b"\xff" * 100 + content[200:])
    with pytest.raises(DataError, match=rf"{name}: contains values that are not finite; the file is damaged"):
        suspects_of(folder, bootstrap=2)


@pytest.mark.parametrize("number", [0, 1])
def test_truncated_records_of_threshold_samples_are_refused(finished: Path, tmp_path: Path, number: int) -> None:
    folder = tmp_path / finished.name
    shutil.copytree(finished, folder)
    suspects_of(folder, threshold_samples=True, bootstrap=2)
    (path,) = (
        each.parent / "margins.bin"
        for each in tmp_path.glob("*/run.json")
        if json.loads(each.read_text())["run"].get("threshold_set") == number
    )
    refused_by_its_digest(path, 0, lambda: suspects_of(folder, threshold_samples=True, bootstrap=2))
    content = path.read_bytes()
    for size in (0, len(content) // 5):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=r"margins.bin: holds [02] records, expected 10; there is none of"):
            suspects_of(folder, threshold_samples=True, bootstrap=2)
    path.write_bytes(content[:100] + b"\xff" * 100 + content[200:])
    with pytest.raises(DataError, match=r"margins.bin: contains values that are not finite; the file is damaged"):
        suspects_of(folder, threshold_samples=True, bootstrap=2)


def test_folds_are_trained_once(finished: Path) -> None:
    trained: list[Run] = []

    def run_one(run: Run, root: Path) -> Path:
        trained.append(run)
        return execute(run, root)

    result = suspects_of(finished, folds=3, bootstrap=10, run_one=run_one)
    assert [run.fold for run in trained] == ["1/3", "2/3", "3/3"]
    assert all(run.seed == 0 and not run.record_p for run in trained)
    assert area(result) > 0.9
    assert "out of 3 folds" in result.suspects.description
    again = suspects_of(
        finished,
        folds=3,
        bootstrap=10,
        run_one=lambda run, root: execute(run, root, watch=lambda update: pytest.fail("trained again")),
    )
    np.testing.assert_array_equal(again.suspects.score, result.suspects.score)


def test_interrupted_folds_resume(finished: Path, tmp_path: Path) -> None:
    run = default_run("digits", NOISY | {"iterations": 20})
    material = gather(run)
    unbroken = out_of_fold(run, tmp_path / "unbroken", 2, material)
    step = [0]

    def stopping(run: Run, root: Path) -> Path:
        def watch(update: Update) -> None:
            step[0] += 1

        return execute(run, root, watch=watch, should_stop=lambda: step[0] == 27)

    with pytest.raises(Interrupted):
        out_of_fold(run, tmp_path / "broken", 2, material, run_one=stopping)
    np.testing.assert_array_equal(out_of_fold(run, tmp_path / "broken", 2, material).pred_probs, unbroken.pred_probs)


def test_threshold_samples_separate_issues(finished: Path) -> None:
    result = suspects_of(finished, threshold_samples=True, bootstrap=10)
    assert area(result) > 0.9
    assert "threshold samples" in result.suspects.description
    wrong = result.suspects.given != result.clean
    assert wrong[result.suspects.issue].mean() > 0.7


def test_a_run_without_records_has_its_model(tmp_path: Path) -> None:
    fields = NOISY | {"record_p": False, "record_margins": False, "iterations": 60}
    folder = execute(default_run("digits", fields), tmp_path)
    assert suspects_of(folder, bootstrap=1).suspects.description.startswith("1 - p")
    with pytest.raises(ValueError, match=r"'mean-p' needs history, which run \w{12} did not record; train with"):
        suspects_of(folder, method="mean-p")


def test_invalid_arguments_are_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        suspects_of(finished, folds=3, threshold_samples=True)
    with pytest.raises(ValueError, match="threshold samples require aum"):
        suspects_of(finished, method="duel", threshold_samples=True)
    with pytest.raises(ValueError, match="folds must be 2 or more, not 1"):
        suspects_of(finished, folds=1)
    run = default_run("digits", NOISY | {"iterations": 4})
    with pytest.raises(ValueError, match="already holds examples out"):
        out_of_fold(replace(run, validation=0.1), tmp_path, 3, gather(run))
    with pytest.raises(Interrupted) as stopped:
        execute(run, tmp_path, should_stop=lambda: True)
    with pytest.raises(DataError, match="the run is not finished; resume it with: reweigh resume"):
        suspects_of(stopped.value.folder)
    with pytest.raises(DataError, match="trained with threshold samples"):
        suspects_of(execute(replace(run, threshold_set=0), tmp_path))


def table(path: Path) -> str:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(200) % 2)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "label"])
        for label in labels:
            writer.writerow([*(rng.normal(size=2) + 4 * label), "yes" if label else "no"])
    return str(path)


def texts(path: Path) -> str:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "label"])
        file.write("\n\n")  # blank lines count, too
        for i in range(120):
            writer.writerow([f"{'dull' if i % 2 else 'great'} film\nnumber {i} " + "and so on " * 40, i % 2])
    return str(path)


def images(path: Path) -> str:
    for i in range(60):
        name = path / ("dark" if i % 2 else "light") / f"{i}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 20 if i % 2 else 230, np.uint8)).save(name)
    return str(path)


def videos(path: Path) -> str:
    for i in range(24):
        name = path / "train" / ("dark" if i % 2 else "light") / "front" / str(i % 4) / f"{i}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 4, 3), 20 if i % 2 else 230, np.uint8)).save(name)
    return f"tracklets:{path}"


def arrays(path: Path) -> str:
    labels = np.arange(100) % 2
    np.savez(path, x=np.column_stack([labels, labels]).astype(np.float32), y=labels)
    return str(path)


@pytest.mark.parametrize(
    ("make", "name", "fields"),
    [
        (table, "t.csv", {}),
        (texts, "t.csv", {"text_column": "review"}),
        (images, "photos", {"image_size": 8, "net": "resnet20"}),
        (images, "photos", {"image_size": 8, "net": "mlp-8"}),
        (videos, "videos", {"image_size": 8, "net": "resnet20"}),
        (arrays, "t.npz", {}),
    ],
    ids=["table", "text", "images", "images for an mlp", "tracklets", "arrays"],
)
def test_data_of_a_user(make: Callable[[Path], str], name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    path = make(tmp_path / name)
    small = {"iterations": 4, "evaluate_every": 2, "batch_size": 8, "device": "cpu"}
    run = default_run(path, fields | small)
    result = suspects_of(execute(run, tmp_path / "runs"), bootstrap=1)
    suspects = result.suspects
    assert result.clean is None
    for source, given in zip(suspects.sources, suspects.given, strict=True):
        label = suspects.class_names[given]
        if make is images:
            assert Path(source).is_file()
            assert Path(source).parent.name == label
        elif make is videos:
            assert Path(source).is_file()
            assert Path(source).parents[2].name == label
        elif make is texts:
            place, _, text = source.partition(": ")
            assert text.startswith("dull film number" if label == "1" else "great film number")
            assert len(text) <= 201
            line = int(place.removeprefix("line ")) - 1
            beginning, number = (tmp_path / name).read_bytes().decode().split("\n")[line : line + 2]
            assert beginning.startswith('"dull film' if label == "1" else '"great film')
            assert number.split()[1] == text.split()[3], "the line where it starts, although texts span several"
        elif make is table:
            line = (tmp_path / name).read_text().splitlines()[int(source.removeprefix("line ")) - 1]
            assert line.endswith(f",{label}")
        else:
            assert int(source) % 2 == given


def test_fields_replace_defaults(tmp_path: Path) -> None:
    run = default_run("digits", {"weighting": "CCE", "batch_size": 600, "seed": 3})
    assert (run.weighting, run.batch_size, run.seed, run.net) == ("CCE", 600, 3, "mlp-256")
    assert (run.iterations, run.evaluate_every, run.record_p, run.record_margins) == (250, 25, True, True)
    few = default_run("digits")
    assert (few.method, few.sampler, few.batch_size, few.iterations) == ("Auto", "shuffled", 64, 750)
    wide = np.random.default_rng(0).normal(size=(500, 800)).astype(np.float32)
    np.savez(tmp_path / "wide.npz", x=wide, y=np.arange(500) % 2)
    assert default_run(str(tmp_path / "wide.npz")).lr < few.lr
    assert default_run("digits", {"imbalance": "long_tail(10)"}).sampler == "balanced"
    assert default_run("digits", {"imbalance": "long_tail(10)", "sampler": "cyclic"}).sampler == "cyclic"
    rare = np.repeat([0, 1], [40, 10])
    np.savez(tmp_path / "rare.npz", x=np.zeros((50, 2), np.float32), y=rare, x_test=np.zeros((1, 2)), y_test=rare[:1])
    assert default_run(str(tmp_path / "rare.npz")).sampler == "balanced"
