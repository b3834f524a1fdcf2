"""Corrected data in the form in which they came, and the comparison of models where there is no test part."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reweigh.lab.data.registry import load
from reweigh.lab.procedures import read_journal
from reweigh.lab.run.defaults import default_run
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.suspects.correction import Correction, apply_decisions, retrain, write_correction
from reweigh.lab.suspects.decisions import Decision

SMALL = {"net": "mlp-8", "iterations": 20, "device": "cpu"}


def table(folder: Path, name: str = "mine.csv") -> Path:
    mark = "\t" if name.endswith("tsv") else ","
    lines = [f"{k % 7}{mark}{'ab'[k % 2]}{mark}{k * 0.10:.2f}" for k in range(40)]
    path = folder / name
    path.write_text("\n".join([mark.join(("x", "label", "y")), *lines]) + "\n")
    return path


def parquet(folder: Path) -> Path:
    import pyarrow
    from pyarrow import parquet as format_

    path = folder / "mine.parquet"
    columns = {"x": [float(k % 7) for k in range(40)], "label": [k % 2 for k in range(40)]}
    format_.write_table(pyarrow.table(columns), path)
    return path


def arrays(folder: Path) -> Path:
    path = folder / "mine.npz"
    np.savez(path, x=np.arange(80, dtype=np.float32).reshape(40, 2), y=np.arange(40) % 2, class_names=["a", "b"])
    return path


def pictures(folder: Path) -> Path:
    for k in range(40):
        place = folder / "mine" / "ab"[k % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (6 * k, 0, 0)).save(place / f"{k // 2}.png")  # the same names in both classes
    return folder / "mine"


def correct(data: Path, folder: Path, **fields: Any) -> tuple[Correction, Run]:
    """Fix example 0, drop example 1, and return the correction and its run."""
    run = default_run(str(data), SMALL | fields)
    material = gather(run)
    labels = material.train.labels
    made = [Decision(0, int(labels[0]), "fix", 1 - int(labels[0])), Decision(1, int(labels[1]), "drop", int(labels[1]))]
    corrected = apply_decisions(labels, made)
    sources = [str(i) for i in range(len(labels))]
    return write_correction(folder, corrected, run, material, sources=sources, made_from="decisions.csv"), run


@pytest.mark.parametrize("name", ["mine.csv", "mine.tsv"])
def test_a_table_keeps_its_columns_and_has_the_old_labels(tmp_path: Path, name: str) -> None:
    path = table(tmp_path, name)
    content = path.read_bytes()
    correction, _ = correct(path, tmp_path / "new")
    assert correction.data == f"data.{name[-3:]}"
    with (tmp_path / "new" / correction.data).open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if name.endswith("tsv") else ","))
    assert list(rows[0]) == ["x", "label", "label_before", "y"]
    assert rows[0] == {"x": "0", "label": "b", "label_before": "a", "y": "0.00"}
    assert rows[1] == {"x": "2", "label": "a", "label_before": "a", "y": "0.20"}, "the second row was dropped"
    assert len(rows) == 39
    assert path.read_bytes() == content
    again = load(str(tmp_path / "new" / correction.data))
    assert again.columns is not None
    assert "label_before" not in [column.name for column in again.columns], "old labels are no feature"


@pytest.mark.parametrize("make", [table, parquet, arrays, pictures])
def test_corrected_data_have_the_corrected_labels(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    data = make(tmp_path)
    before = load(str(data), holdout=0)
    correction, _ = correct(data, tmp_path / "new", **({"image_size": 4} if make is pictures else {}))
    assert correction.data is not None
    after = load(str(tmp_path / "new" / correction.data), holdout=0)
    assert len(after.train) == 39
    assert after.class_names == before.class_names
    counts = np.bincount(before.train.labels)
    first, second = before.train.labels[:2].tolist()
    counts[first] -= 1
    counts[1 - first] += 1
    counts[second] -= 1
    np.testing.assert_array_equal(np.bincount(after.train.labels), counts)
    correct(data, tmp_path / "new", **({"image_size": 4} if make is pictures else {}))  # repeating it changes nothing
    assert len(load(str(tmp_path / "new" / correction.data), holdout=0).train) == 39


def test_held_out_rows_keep_their_labels(tmp_path: Path) -> None:
    correction, _ = correct(table(tmp_path), tmp_path / "new", holdout=0.2)
    assert correction.data is not None
    assert correction.examples == 32
    assert len((tmp_path / "new" / correction.data).read_text().splitlines()) == 1 + 39


def test_a_second_correction_keeps_the_oldest_labels(tmp_path: Path) -> None:
    first, _ = correct(table(tmp_path), tmp_path / "one")
    assert first.data is not None
    second, _ = correct(tmp_path / "one" / first.data, tmp_path / "two")
    assert second.data is not None
    rows = (tmp_path / "two" / second.data).read_text().splitlines()
    assert rows[0] == "x,label,label_before,y"
    assert rows[1] == "0,a,a,0.00"  # changed to b and back


def test_noise_and_named_data_have_no_data_to_write(tmp_path: Path) -> None:
    assert correct(table(tmp_path), tmp_path / "new", noise="symmetric", rate=0.2)[0].data is None
    run = default_run("digits", SMALL)
    material = gather(run)
    made = apply_decisions(material.train.labels, [])
    sources = [""] * len(made.labels)
    assert write_correction(tmp_path / "d", made, run, material, sources=sources, made_from="d.csv").data is None


def test_models_are_compared_on_the_same_held_out_examples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(200) % 2
    given = truth.copy()
    given[:40] = 1 - given[:40]
    np.savez(tmp_path / "mine.npz", x=truth[:, None] + 0.1 * rng.normal(size=(200, 3)), y=given)
    run = default_run(str(tmp_path / "mine.npz"), SMALL | {"iterations": 60, "weighting": "CCE"})
    material = gather(run)
    made = [Decision(i, int(given[i]), "fix", int(truth[i])) for i in range(40)]
    corrected = apply_decisions(material.train.labels, made)
    sources = [str(i) for i in range(200)]
    correction = write_correction(tmp_path / "new", corrected, run, material, sources=sources, made_from="d.csv")
    result = read_journal(retrain(run, tmp_path / "runs", correction, corrected, material)).result
    assert result is not None
    before, after = result["before"], result["after"]
    assert (before["held"], before["examples"], after["examples"]) == (40, 160, 160)
    assert after["corrected_labels"] == 1.0
    assert after["given_labels"] == pytest.approx(0.8, abs=0.1)
    assert after["corrected_labels"] >= before["corrected_labels"]
