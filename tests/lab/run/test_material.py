"""Runs on given labels."""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.lab.run.material import gather, readable
from reweigh.lab.spec import Run
from reweigh.noise import instance_dependent

DIGITS = Run(data="digits", net="mlp-32", weighting="CCE", iterations=20, batch_size=50, device="cpu")


@pytest.fixture
def corrected(tmp_path: Path) -> Path:
    """The labels of digits with the first ten changed."""
    labels = gather(DIGITS).train.labels.copy()
    labels[:10] = (labels[:10] + 1) % 10
    np.save(tmp_path / "labels.npy", labels)
    return tmp_path / "labels.npy"


def test_given_labels_are_noise_on_the_true_ones(corrected: Path) -> None:
    material = gather(replace(DIGITS, noise=f"given({str(corrected)!r})"))
    assert material.corruption is not None
    assert material.corruption.flipped.nonzero()[0].tolist() == list(range(10))


@pytest.mark.parametrize("how", ["given({!r}, truth=False)", "given({!r}, key=None, truth=False)"])
def test_corrected_labels_are_no_noise(corrected: Path, how: str) -> None:
    run = replace(DIGITS, noise=how.format(str(corrected)))
    material = gather(run)
    assert np.array_equal(material.train.labels, np.load(corrected))
    assert material.clean is None
    assert material.corruption is None
    held = gather(replace(run, validation=0.2))
    assert held.validation is not None
    there = np.setdiff1d(np.arange(len(material.train)), held.rows)
    assert np.array_equal(np.sort(held.validation.labels), np.sort(np.load(corrected)[there]))


def test_what_given_refuses(corrected: Path) -> None:
    with pytest.raises(ValueError, match=r"truth is 3; expected True or False"):
        gather(replace(DIGITS, noise=f"given({str(corrected)!r}, truth=3)"))
    np.save(corrected, np.zeros(7, np.int64))
    with pytest.raises(DataError, match="7 labels; expected 1200"):
        gather(replace(DIGITS, noise=f"given({str(corrected)!r}, truth=False)"))


def test_pictures_become_vectors_also_where_none_are_for_testing() -> None:
    pictures = np.zeros((4, 3, 2, 3), np.uint8)
    parts = Part(pictures, np.array([0, 1, 0, 1])), Part(pictures[:0], np.zeros(0, np.int64))
    read = readable(Dataset("frames", *parts, ("a", "b")), DIGITS)
    assert (read.train.shape, read.test.shape) == ((18,), (18,))


@pytest.mark.parametrize("channels", [(), (1,), (3,)], ids=["no channel", "one channel", "colour"])
def test_noise_by_instance_is_the_same_whatever_net_reads_the_pictures(tmp_path: Path, channels: tuple[int]) -> None:
    draws = np.random.default_rng(0)
    pictures, labels = draws.integers(0, 256, (60, 8, 8, *channels), np.uint8), np.arange(60) % 4
    np.savez(tmp_path / "own.npz", x_train=pictures, y_train=labels, x_test=pictures[:8], y_test=labels[:8])
    run = replace(DIGITS, data="own.npz", data_root=str(tmp_path), noise="instance_dependent", rate=0.6)
    kept = np.arange(60) % 3 > 0
    np.save(tmp_path / "kept.npy", kept.astype(int))
    expected = instance_dependent(labels, 0.6, pictures, seed=run.seed).labels
    of_kept = instance_dependent(labels[kept], 0.6, pictures[kept], num_classes=4, seed=run.seed).labels
    for net in ("mlp-32", "resnet20"):
        assert np.array_equal(gather(replace(run, net=net)).train.labels, expected)
        some = gather(replace(run, net=net, imbalance=f"kept({str(tmp_path / 'kept.npy')!r})"))
        assert np.array_equal(some.train.labels, of_kept)


def test_a_validation_part_without_examples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"validation is 0\.0001, which is less than one of 1200 examples"):
        gather(replace(DIGITS, validation=0.0001))


@pytest.fixture
def cifar(tmp_path: Path) -> Run:
    """A run on a small CIFAR-10 beside which CIFAR-10N lies, where every third label is the next class."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    labels = np.arange(200) % 10
    for k in range(6):
        rows = np.zeros((40, 3073), np.uint8)
        rows[:, 0] = np.arange(40) % 10
        rows[:, 1] = k
        (folder / (f"data_batch_{k + 1}.bin" if k < 5 else "test_batch.bin")).write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text(
        "airplane automobile bird cat deer dog frog horse ship truck".replace(" ", "\n")
    )
    given = np.where(np.arange(200) % 3 == 0, (labels + 1) % 10, labels)
    with zipfile.ZipFile(tmp_path / "CIFAR-10_human.pt", "w") as pack:
        pack.writestr("CIFAR-10_human/data.pkl", pickle.dumps({"clean_label": labels, "worse_label": given}, 2))
    return replace(DIGITS, data="cifar10", data_root=str(tmp_path), noise="cifar_n('worse')")


@pytest.mark.parametrize("imbalance", [None, "long_tail(10)", "step(10)"])
def test_human_labels_also_of_a_part(cifar: Run, imbalance: str | None) -> None:
    material = gather(replace(cifar, imbalance=imbalance))
    assert material.rows is not None
    assert material.corruption is not None
    assert len(material.rows) == 200 if imbalance is None else len(material.rows) < 200
    assert np.array_equal(material.corruption.clean, material.rows % 10)
    assert np.array_equal(material.corruption.flipped, material.rows % 3 == 0)
