"""An exported model reads raw inputs and returns the probabilities that `predict` returns."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab import export as exporting
from reweigh.lab.export import export
from reweigh.lab.predict import predict
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

BASE: dict[str, Any] = {"weighting": "CCE", "iterations": 4, "evaluate_every": 4, "batch_size": 8, "device": "cpu"}


def trained(root: Path, **fields: Any) -> tuple[Run, Path]:
    run = Run(**(BASE | fields))
    return run, execute(run, root / "runs")


def table(path: Path) -> np.ndarray[Any, Any]:
    rows = np.random.default_rng(0).normal(size=(40, 2)) * [1, 10] + [1.7e9, 5]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "size", "label"])
        writer.writerows([*row, "yes" if row[1] > 5 else "no"] for row in rows.tolist())
    return rows


def photos(path: Path) -> None:
    for name, value in (("cat", 60), ("dog", 200)):
        (path / name).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (40 + i, 30), (value, 10 * i, 90)).save(path / name / f"{i}.png")


def test_columns_of_a_table(tmp_path: Path) -> None:
    rows = table(tmp_path / "mine.csv")
    run, folder = trained(tmp_path, data=str(tmp_path / "mine.csv"), net="mlp-8")
    done = export(folder, tmp_path / "model.pt", gather(run).dataset.test, "torchscript")
    assert done.reads == "float64 columns (N, 2): time, size"
    assert (done.rows, done.difference < 1e-5) == (8, True)
    extra = {"class_names": ""}
    model = torch.jit.load(tmp_path / "model.pt", _extra_files=extra)
    assert json.loads(extra["class_names"]) == ["no", "yes"]
    expected = predict(folder / "model", tmp_path / "mine.csv").probabilities
    np.testing.assert_allclose(model(torch.from_numpy(rows)), expected, atol=1e-5)


@pytest.mark.parametrize("size", [32, None])
def test_images(tmp_path: Path, size: int | None) -> None:
    photos(tmp_path / "photos")
    run, folder = trained(
        tmp_path, data=str(tmp_path / "photos"), net="cifarnet" if size else "resnet18", image_size=size
    )
    done = export(folder, tmp_path / "model.pt", gather(run).dataset.test, "torchscript")
    assert done.reads.startswith(f"uint8 pixels (N, {size or 224}, {size or 224}, 3)")
    assert done.difference < 1e-5


def test_onnx_runtime_returns_the_same_with_any_number_of_rows(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run, folder = trained(tmp_path, data="digits", net="mlp-8", validation=0.2, calibrate=True)
    test = gather(run).dataset.test
    done = export(folder, tmp_path / "model.onnx", test)
    assert (done.rows, done.difference < 1e-5) == (64, True)
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == [str(k) for k in range(10)]
    np.savez(tmp_path / "new.npz", x=test.inputs[:3])
    (found,) = session.run(None, {"inputs": np.asarray(test.inputs[:3], dtype=np.float64)})
    np.testing.assert_allclose(found, predict(folder / "model", tmp_path / "new.npz").probabilities, atol=1e-5)


def test_a_file_that_differs_from_the_model_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = trained(tmp_path, data="digits", net="mlp-8")
    monkeypatch.setattr(exporting, "probabilities_of", lambda *args: np.full((64, 10), 0.1))
    with pytest.raises(DataError, match=r"model\.pt: not written: its probabilities differ"):
        export(folder, tmp_path / "model.pt", gather(run).dataset.test, "torchscript")
    assert not (tmp_path / "model.pt").exists()


def test_models_of_texts_are_refused(tmp_path: Path) -> None:
    lines = "".join(f"{'good' if i % 2 else 'bad'} {i},{i % 2}\n" for i in range(20))
    (tmp_path / "texts.csv").write_text("text,label\n" + lines)
    run, folder = trained(tmp_path, data=str(tmp_path / "texts.csv"), text_column="text", net="mlp-8")
    with pytest.raises(DataError, match="reads texts, which are hashed before the net"):
        export(folder, tmp_path / "model.pt", gather(run).dataset.test, "torchscript")
