"""Complete runs, interrupted and resumed, on every kind of user data."""

from __future__ import annotations

import csv
import json
import math
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from finished import contents
from reweigh.errors import DataError
from reweigh.lab.predict import predict
from reweigh.lab.record import read_header, read_p, read_rows
from reweigh.lab.record.files import sha256_of
from reweigh.lab.run import Interrupted, Update, execute
from reweigh.lab.run.material import Material, gather
from reweigh.lab.run.parts import mean_objective, net_of
from reweigh.lab.spec import Run
from reweigh.lab.train.model import load_model
from reweigh.lab.train.step import has_dropout

DIGITS = Run(
    data="digits",
    net="mlp-32",
    weighting="DM(0.5, 8)",
    noise="symmetric",
    rate=0.4,
    iterations=60,
    batch_size=50,
    evaluate_every=20,
    record_p=True,
    device="cpu",
)


def test_training_stops_early_and_resumes_to_the_same_end(tmp_path: Path) -> None:
    early = replace(DIGITS, weighting="CCE", iterations=3000, patience=2, lr=0.1, seed=4)
    notes: list[str] = []
    folder = execute(early, tmp_path / "whole", watch=lambda update: notes.append(update.note or ""))
    rows, result = read_rows(folder), json.loads((folder / "result.json").read_text())
    best = max(rows, key=lambda row: row["test_accuracy"])
    assert rows[-1]["step"] == best["step"] + 40 < 3000
    assert result["kept"]["step"] == best["step"]
    assert any(f"stopped early at iteration {rows[-1]['step']}: no better accuracy since" in note for note in notes)
    steps: list[int] = []
    with pytest.raises(Interrupted):
        execute(
            early,
            tmp_path / "twice",
            watch=lambda update: steps.append(update.step),
            should_stop=lambda: steps[-1] == rows[-1]["step"] - 7,
        )
    assert read_rows(execute(early, tmp_path / "twice")) == rows


def test_early_stopping_needs_a_part_to_test_on(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("x,label\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(40)))
    run = replace(DIGITS, data=str(table), noise=None, rate=None, holdout=0, patience=2)
    with pytest.raises(ValueError, match="patience is 2, but there is no test or validation part"):
        execute(run, tmp_path / "runs")


def test_a_run_leaves_a_record_and_a_model(tmp_path: Path) -> None:
    updates: list[Update] = []
    folder = execute(DIGITS, tmp_path, watch=updates.append)
    assert folder == tmp_path / DIGITS.folder_name()
    rows = read_rows(folder)
    assert [row["step"] for row in rows] == [20, 40, 60]
    assert [update.row for update in updates if update.row] == rows
    header = read_header(folder)
    assert header.details["noise"]["measured"] == pytest.approx(0.4, abs=0.01)
    assert np.sum(header.details["noise"]["counts"]) == header.examples == 1200
    assert read_p(folder).p.shape == (1200, 3)
    result = json.loads((folder / "result.json").read_text())
    assert result["final"]["test_accuracy"] == rows[-1]["test_accuracy"]
    assert result["best"]["test_accuracy"] == max(row["test_accuracy"] for row in rows)
    assert result["holdout"] == "test"
    assert len(result["per_class_accuracy"]) == 10
    assert not list(folder.glob("checkpoint*"))
    net, card = load_model(folder / "model")
    material = gather(DIGITS)
    assert card.normalisation is not None
    inputs = torch.from_numpy(card.normalisation.features(np.asarray(material.dataset.test.inputs)))
    right = net(inputs).argmax(1).numpy() == material.dataset.test.labels
    assert right.mean() == pytest.approx(rows[-1]["test_accuracy"])


def test_dynamics_match_the_recorded_probabilities(tmp_path: Path) -> None:
    folder = execute(DIGITS, tmp_path)
    row, p, material = read_rows(folder)[-1], read_p(folder).p[:, -1].astype(np.float64), gather(DIGITS)
    assert material.clean is not None
    wrong = material.train.labels != material.clean
    assert row["p_noisy"] == pytest.approx(p[wrong].mean(), abs=1e-3)
    assert row["p_clean"] == pytest.approx(p[~wrong].mean(), abs=1e-3)
    assert row["p_mean"] == pytest.approx(p.mean(), abs=1e-3)
    mixed = row["fit_noisy"] * wrong.mean() + row["fit_clean"] * (1 - wrong.mean())
    assert row["train_accuracy"] == pytest.approx(mixed)
    w = np.exp(8 * np.sqrt(p) * (1 - p))
    assert row["weight_noisy"] == pytest.approx(w[wrong].sum() / w.sum(), abs=5e-3)
    for name in ("p_histogram", "weight_histogram", "p_histogram_clean", "p_histogram_noisy"):
        assert len(row[name]) == 20
        assert sum(row[name]) == pytest.approx(1, abs=1e-4)
    assert row["p_by_class"][3] == pytest.approx(p[material.train.labels == 3].mean(), abs=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"weighting": "DM(0.5, linear(2, 16, until=0.5))", "taper": "linear(0.1, 0)"},
        {"net": "mlp-32", "dropout": 0.3, "optimiser": "adam", "lr": 1e-3},
        {"sampler": "balanced", "optimiser": "nesterov", "schedule": "step(0.1, at=[0.5])", "caffe_momentum": True},
        {"validation": 0.2, "checkpoint_every": 7},
    ],
    ids=str,
)
def test_stopping_anywhere_changes_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    run = replace(DIGITS, **change)
    unbroken = contents(execute(run, tmp_path / "unbroken"))
    folder = tmp_path / "broken" / run.folder_name()
    for stop in (1, 13, 20, 33, 59):
        done = [0]

        def watch(update: Update, done: list[int] = done) -> None:
            done[0] = update.step

        with pytest.raises(Interrupted) as stopped:
            execute(run, tmp_path / "broken", watch=watch, should_stop=lambda d=done, s=stop: d[0] >= s)
        assert (stopped.value.folder, stopped.value.step) == (folder, stop)
    execute(run, tmp_path / "broken")
    assert contents(folder) == unbroken


def test_a_finished_run_is_never_repeated(tmp_path: Path) -> None:
    folder = execute(DIGITS, tmp_path)
    before = contents(folder)
    execute(DIGITS, tmp_path, watch=lambda update: pytest.fail("it was trained again"))
    assert contents(folder) == before
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"final": 3}))
    with pytest.raises(DataError, match=r"result\.json: final is 3; expected a JSON object"):
        execute(DIGITS, tmp_path)


def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(tmp_path: Path) -> None:
    unbroken = contents(execute(DIGITS, tmp_path / "unbroken"))
    folder = tmp_path / "broken" / DIGITS.folder_name()
    step = [0]
    with pytest.raises(Interrupted):
        execute(
            DIGITS,
            tmp_path / "broken",
            watch=lambda update: step.__setitem__(0, update.step),
            should_stop=lambda: step[0] >= 45,
        )
    path = folder / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    notes: list[str] = []
    execute(DIGITS, tmp_path / "broken", watch=lambda update: notes.append(update.note) if update.note else None)
    assert "checkpoint.previous.pt" in notes[0]
    assert contents(folder) == unbroken


def test_streams_are_separate() -> None:
    one, other = gather(DIGITS), gather(replace(DIGITS, noise_seed=1))
    assert (one.train.labels != other.train.labels).any()
    assert one.clean is not None
    assert np.array_equal(one.clean, other.clean)


def test_validation_part_is_held_out_and_clean_or_noisy() -> None:
    clean = gather(replace(DIGITS, validation=0.2))
    noisy = gather(replace(DIGITS, validation=0.2, validation_labels="noisy"))
    assert clean.validation is not None
    assert noisy.validation is not None
    assert len(clean.validation) + len(clean.train) == 1200
    truth = gather(replace(DIGITS, noise=None, rate=None, validation=0.0))
    rows = np.asarray(truth.train.inputs)
    truth_of = {row.tobytes(): label for row, label in zip(rows, truth.train.labels, strict=True)}
    held = zip(np.asarray(clean.validation.inputs), clean.validation.labels, strict=True)
    assert all(truth_of[row.tobytes()] == label for row, label in held)
    wrong = noisy.validation.labels != clean.validation.labels
    assert 0.25 < wrong.mean() < 0.55


def test_divergence_is_recorded_as_it_is(tmp_path: Path) -> None:
    run = replace(DIGITS, weighting="CCE", lr=1e30, iterations=20, evaluate_every=10)
    rows = read_rows(execute(run, tmp_path))
    assert rows[-1]["loss"] is None
    assert rows[-1]["test_accuracy"] < 0.3


# User data


def small(data: Path, **change: Any) -> Run:
    base: dict[str, Any] = {"data": str(data), "net": "mlp-16", "weighting": "GCE(0.7)", "device": "cpu"}
    return Run(**(base | {"iterations": 20, "batch_size": 16, "evaluate_every": 10} | change))


def finished(run: Run, root: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((execute(run, root) / "result.json").read_text())
    return result


def test_a_result_has_the_confusion_of_the_test_set(tmp_path: Path) -> None:
    result = finished(DIGITS, tmp_path)
    confusion = np.array(result["confusion"])
    assert confusion.sum(1).tolist() == result["per_class_count"]
    assert confusion.trace() / confusion.sum() == pytest.approx(result["final"]["test_accuracy"])
    assert np.mean(result["per_class_accuracy"]) == pytest.approx(result["final"]["test_balanced_accuracy"])
    assert sum(row["count"] for row in result["reliability"]) == confusion.sum()


def test_temperature_scaling_on_request(tmp_path: Path) -> None:
    run = replace(
        DIGITS, weighting="CCE", net="mlp-256", iterations=300, evaluate_every=300, validation=0.2, calibrate=True
    )
    result = finished(run, tmp_path)
    assert result["temperature"] != 1
    folder = tmp_path / run.folder_name()
    _, card = load_model(folder / "model")
    assert card.temperature == result["temperature"]
    with pytest.raises(ValueError, match="calibrate is True, which has no effect"):
        replace(run, validation=0.0)
    np.savez(tmp_path / "new.npz", x=np.asarray(gather(run).dataset.test.inputs)[:5])
    probabilities = predict(folder / "model", tmp_path / "new.npz").probabilities
    plain = replace(run, calibrate=False)
    finished(plain, tmp_path)
    logits = np.log(predict(tmp_path / plain.folder_name() / "model", tmp_path / "new.npz").probabilities)
    expected = torch.from_numpy(logits / card.temperature).softmax(1)
    np.testing.assert_allclose(probabilities, expected, atol=1e-9)


@pytest.mark.parametrize("weighting", ["CCE", "GCE(0.7)", "DM(0.5, 8)"])
def test_the_objective_falls_during_training(tmp_path: Path, weighting: str) -> None:
    run = replace(DIGITS, weighting=weighting, iterations=200, evaluate_every=50)
    rows = read_rows(execute(run, tmp_path))
    objective = [row["objective"] for row in rows]
    assert objective == sorted(objective, reverse=True)
    assert objective[0] > objective[-1] >= 0


def test_the_objective_of_cross_entropy_is_cross_entropy() -> None:
    cross_entropy = torch.tensor([0.0, 1e-20, 0.3, 5.0, 900.0], dtype=torch.float64)
    assert mean_objective(replace(DIGITS, weighting="CCE"), cross_entropy, 0) == pytest.approx(
        cross_entropy.mean().item()
    )
    assert mean_objective(replace(DIGITS, weighting="MAE"), torch.tensor([math.log(2.0)]).double(), 0) == pytest.approx(
        0.5
    )


def test_a_batch_larger_than_the_data_is_reduced_with_a_note(tmp_path: Path) -> None:
    notes: list[str] = []
    run = replace(DIGITS, batch_size=5000, iterations=4, evaluate_every=4)
    folder = execute(run, tmp_path, watch=lambda update: notes.append(update.note or ""))
    assert "batch_size 5000 is reduced to 1200, the number of training examples" in notes
    full = read_rows(execute(replace(run, batch_size=1200), tmp_path))
    assert read_rows(folder) == full


def test_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 4)).astype(np.float32), np.arange(100) % 3
    x[np.arange(100), y] += 3
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    result = finished(small(tmp_path / "mine.npz", iterations=100, evaluate_every=50), tmp_path / "runs")
    assert result["holdout"] == "noisy hold-out"
    assert result["final"]["test_accuracy"] > 0.8


def test_grey_images_in_an_npz_and_a_convolutional_net(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "grey.npz", x=rng.integers(0, 255, (40, 32, 32, 1), dtype=np.uint8), y=np.arange(40) % 2)
    run = small(tmp_path / "grey.npz", net="cifarnet", augment="pad-crop-flip", iterations=2, evaluate_every=2)
    assert finished(run, tmp_path / "runs")["final"]["step"] == 2


def test_csv_of_features_and_of_texts(tmp_path: Path) -> None:
    rows = [{"a": i % 2 + 0.1 * (i % 5), "b": i % 7, "kind": "yes" if i % 2 else "no"} for i in range(60)]
    texts = [{"review": "a good good film" if i % 2 else "a bad bad film", "kind": f"{i % 2}"} for i in range(60)]
    for name, table in (("features.csv", rows), ("texts.csv", texts)):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    result = finished(small(tmp_path / "features.csv", label_column="kind", iterations=60), tmp_path / "runs")
    assert result["final"]["test_accuracy"] == 1
    run = small(tmp_path / "texts.csv", label_column="kind", text_column="review", net="linear", iterations=60)
    assert finished(run, tmp_path / "runs")["final"]["test_accuracy"] == 1
    with pytest.raises(DataError, match="labell"):
        finished(small(tmp_path / "features.csv", label_column="labell"), tmp_path / "runs")


def test_folder_of_images_in_memory_and_in_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, tone in (("dark", 40), ("light", 200)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(12):
            pixels = np.clip(rng.normal(tone, 10, (20, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i}.png")
    flat = small(tmp_path / "pictures", image_size=8, iterations=40)
    assert finished(flat, tmp_path / "runs")["final"]["test_accuracy"] == 1
    files = small(tmp_path / "pictures", net="resnet20", iterations=2, evaluate_every=2, batch_size=4)
    assert finished(files, tmp_path / "runs")["holdout"] == "noisy hold-out"
    with pytest.raises(ValueError, match="set image_size"):
        execute(small(tmp_path / "pictures"), tmp_path / "runs")


def test_imbalance_and_given_labels(tmp_path: Path) -> None:
    tail = gather(replace(DIGITS, imbalance="long_tail(10)", noise=None, rate=None))
    counts = np.bincount(tail.train.labels)
    assert counts.max() / counts.min() > 8
    labels = gather(DIGITS).train.labels
    np.save(tmp_path / "labels.npy", labels)
    given = gather(replace(DIGITS, noise=f"given('{tmp_path}/labels.npy')", rate=None))
    assert (given.train.labels == labels).all()
    assert given.corruption is not None
    assert given.corruption.measured == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"net": "mlpp"}, "no net is named 'mlpp'"),
        ({"weighting": "DMM(1, 2)"}, "no weighting is named 'DMM'"),
        ({"noise": "symetric"}, "no noise is named 'symetric'"),
        ({"imbalance": "tail(3)"}, "imbalance is tail"),
        ({"data": "digit"}, "did you mean 'digits'"),
        ({"data_hash": "0" * 12}, "the data's hash is"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        execute(replace(DIGITS, **change), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_loss_may_follow_a_schedule_and_a_cosine_head_loads_again(tmp_path: Path) -> None:
    warm = replace(DIGITS, weighting=None, loss="BootstrapHard(linear(1, 0.8, until=0.5))")
    assert read_rows(execute(warm, tmp_path))[-1]["step"] == 60
    folder = execute(replace(DIGITS, weighting=None, method="LDAM"), tmp_path)
    net, _ = load_model(folder / "model")
    assert net.classifier.bias is None


def test_other_weights_to_start_from_are_another_run_and_another_second_net(tmp_path: Path) -> None:
    weights = execute(replace(DIGITS, iterations=20), tmp_path) / "model" / "model.safetensors"
    run = replace(DIGITS, init_file=str(weights), init_hash=sha256_of(weights)[:12])
    assert run.folder_name() != DIGITS.folder_name()
    material = gather(run)
    first, second = (net_of(run, material, torch.device("cpu"), stream) for stream in ("init", "second"))
    assert torch.equal(first.get_parameter("hidden.0.weight"), second.get_parameter("hidden.0.weight"))
    assert not torch.equal(first.classifier.weight, second.classifier.weight)
    with pytest.raises(DataError, match="its sha256 is"):
        net_of(replace(run, init_hash="0" * 12), material, torch.device("cpu"))


def test_every_kind_of_dropout_is_drawn_from_the_seed() -> None:
    assert has_dropout(nn.Sequential(nn.Dropout2d(0.1)))
    assert not has_dropout(nn.Sequential(nn.Dropout2d(0.0), nn.ReLU()))


def test_a_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"run must be a reweigh.Run, got a dict: Run.from_mapping reads a dict"):
        execute(DIGITS.to_mapping(), tmp_path)  # type: ignore[arg-type]


def test_checkpoints_left_by_a_kill_at_the_end_are_removed(tmp_path: Path) -> None:
    folder = execute(DIGITS, tmp_path)
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (folder / name).write_bytes(b"left by a kill between the result and the removal")
    assert execute(DIGITS, tmp_path) == folder
    assert not list(folder.glob("checkpoint*"))


def test_a_run_that_another_process_finished_meanwhile_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates: list[Update] = []
    module = sys.modules["reweigh.lab.run.execute"]

    def gather_while_another_finishes(run: Run) -> Material:
        with monkeypatch.context() as other:
            other.setattr(module, "gather", gather)
            other.setattr(module, "_GATHERING", nullcontext())
            execute(run, tmp_path)
        return gather(run)

    monkeypatch.setattr(module, "gather", gather_while_another_finishes)
    folder = execute(DIGITS, tmp_path, watch=updates.append)
    assert (folder / "result.json").exists()
    assert [update.note for update in updates] == ["finished meanwhile by another process"]
