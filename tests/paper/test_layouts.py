"""Experiments on CIFAR-100, Clothing1M and MARS in their official layouts, with two iterations."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paper import Experiment
from paper.experiment import load
from paper.runner import RunOptions, run_experiments
from paper.tables import blocks
from reweigh.lab.spec import Run

FOLDER = Path(__file__).resolve().parents[2] / "paper" / "experiments"


def brief(experiment: Experiment, root: Path, batch: int) -> Experiment:
    """Return the experiment with its own nets and settings, but two iterations of a few images."""

    def change(run: Run) -> Run:
        schedule = "constant"
        where = {"data_root": str(root), "device": "cpu"}
        return replace(run, iterations=2, evaluate_every=2, batch_size=batch, schedule=schedule, **where)

    return experiment.map_runs(change)


def run_part(name: str, only: str, root: Path, batch: int, tmp_path: Path) -> Any:
    experiment = load(FOLDER / f"{name}.py")[0]
    (saved,), ended = run_experiments([brief(experiment, root, batch)], RunOptions(tmp_path / "runs", only=(only,)))
    assert not ended.failed, ended.failed
    return saved


def test_cifar100(layouts: Any, tmp_path: Path) -> None:
    from reweigh.lab.data.cifar import SUPERCLASS

    writer = layouts.Cifar(tmp_path / "data")
    writer.python100(tuple(SUPERCLASS), 100)
    (entry,) = run_part("cifar100_table1", "GCE-DN asymmetric 0.4", tmp_path / "data", 16, tmp_path).entries
    assert entry.finding.run.net == "resnet44-projection"
    assert entry.finding.run.noise == "superclass_pair"
    assert entry.finding.header.details["noise"]["kind"].startswith("superclass_pair")


def test_vehicles10(layouts: Any, tmp_path: Path) -> None:
    from reweigh.lab.data.cifar import SUPERCLASS

    layouts.Cifar(tmp_path / "data").binary100(tuple(SUPERCLASS), 300)
    saved = run_part("vehicles10", "DM+L2+Dropout r = 0.4", tmp_path / "data", 8, tmp_path)
    assert saved.entries[0].finding.header.examples == 30


def paint(path: Path, seed: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16))
    Image.fromarray(draws.integers(0, 255, (24, 12, 3)).astype(np.uint8)).save(path)


@pytest.mark.slow
def test_clothing1m(tmp_path: Path) -> None:
    folder = tmp_path / "clothing1M"
    noisy, clean = ([f"images/{side}/{i:02d}/{i},{i}.jpg" for i in range(14)] for side in (0, 1))
    for key in (*noisy, *clean):
        paint(folder / key, key)
    labels = {"noisy_label_kv.txt": noisy, "clean_label_kv.txt": clean}
    lists = {"noisy_train": noisy, "clean_train": clean[:4], "clean_val": clean[4:8], "clean_test": clean[8:]}
    for name, keys in labels.items():
        (folder / name).write_text("".join(f"{key} {i}\n" for i, key in enumerate(keys)))
    for name, keys in lists.items():
        (folder / f"{name}_key_list.txt").write_text("".join(f"{key}\n" for key in keys))
    (folder / "category_names_eng.txt").write_text("".join(f"class {i}\n" for i in range(14)))
    saved = run_part("clothing1m", "authors DM", folder, 4, tmp_path)
    (entry,) = [entry for entry in saved.entries if entry.row == "DM"]
    assert entry.finding.run.net == "resnet50"
    assert entry.finding.metrics["final"] is not None


def write_mars(folder: Path) -> None:
    """Write three persons for training and three for retrieval, with two cameras each, and junk and distractors."""
    scipy_io = pytest.importorskip("scipy.io")

    def side(name: str, tracks: Sequence[tuple[int, int]]) -> None:
        names, rows = [], []
        for number, (person, camera) in enumerate(tracks):
            word = "00-1" if person == -1 else f"{person:04d}"
            rows.append((len(names) + 1, len(names) + 2, person, camera))
            names += [f"{word}C{camera}T{number + 1:04d}F{frame:03d}.jpg" for frame in (1, 2)]
        for each in names:
            paint(folder / f"bbox_{name}" / each[:4] / each, each[:4])
        (folder / "info" / f"{name}_name.txt").write_text("".join(f"{each}\n" for each in names))
        scipy_io.savemat(folder / "info" / f"tracks_{name}_info.mat", {f"track_{name}_info": np.array(rows, np.int32)})

    (folder / "info").mkdir(parents=True)
    side("train", [(person, camera) for person in (1, 3, 5) for camera in (1, 2)])
    side("test", [(-1, 1), (0, 2), *((person, camera) for person in (2, 4, 6) for camera in (1, 2))])
    scipy_io.savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([[3, 5, 7]], np.uint16)})


@pytest.mark.slow
def test_mars(tmp_path: Path) -> None:
    """All frames of a person are the same here, so that any net retrieves them."""
    folder = tmp_path / "MARS"
    write_mars(folder)
    saved = run_part("mars", "GCE", folder, 4, tmp_path)
    (entry,) = saved.entries
    assert entry.finding.run.net == "bn-inception"
    assert entry.finding.metrics["mAP"] == pytest.approx(1)
    assert entry.finding.metrics["CMC-1"] == 1
    (block,) = blocks(saved)
    assert next(line for line in block.lines if line.row == "GCE").measured["mAP"].mean == pytest.approx(1)
