"""`Corruption` on disk: round trip, and detection of changed bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh import noise
from reweigh.errors import DataError
from reweigh.noise import Corruption
from reweigh.noise.files import FORMAT, read_sealed, write_sealed

LABELS = np.arange(12) % 3
SAVED = noise.symmetric(LABELS, 0.5, seed=3)


def same(a: Corruption, b: Corruption) -> bool:
    arrays = ("labels", "clean", "counts")
    values = ("kind", "seed", "hash", "num_classes")
    rates = ("rate", "measured")
    return (
        all((getattr(a, name) == getattr(b, name)).all() for name in arrays)
        and all(getattr(a, name) == getattr(b, name) for name in values)
        and all(np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True) for name in rates)
    )


@pytest.mark.parametrize(
    "corruption",
    [SAVED, noise.given([0, 1, 2]), noise.pair(LABELS, 0.25, seed=np.random.default_rng(0))],
    ids=["seeded", "without truth", "generator"],
)
def test_save_and_load_round_trip(tmp_path: Path, corruption: Corruption) -> None:
    path = noise.save_corruption(corruption, tmp_path / "noise.npz")
    assert same(noise.load_corruption(path), corruption)
    assert [entry.name for entry in tmp_path.iterdir()] == ["noise.npz"], "a partial file was left"


def test_numpy_alone_can_read_it(tmp_path: Path) -> None:
    path = noise.save_corruption(SAVED, tmp_path / "noise.npz")
    with np.load(path, allow_pickle=False) as arrays:
        assert (arrays["labels"] == SAVED.labels).all()
        assert json.loads(arrays["meta"].tobytes())["kind"] == "symmetric(rate=0.5)"


def test_the_same_content_is_the_same_file(tmp_path: Path) -> None:
    first, second = (noise.save_corruption(SAVED, tmp_path / name).read_bytes() for name in ("a.npz", "b.npz"))
    assert first == second


def test_saving_replaces(tmp_path: Path) -> None:
    path = tmp_path / "noise.npz"
    noise.save_corruption(noise.given([0, 1]), path)
    noise.save_corruption(SAVED, path)
    assert same(noise.load_corruption(path), SAVED)


def test_every_changed_byte_is_detected(tmp_path: Path) -> None:
    path = noise.save_corruption(SAVED, tmp_path / "noise.npz")
    whole = path.read_bytes()
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 1
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"noise\.npz: changed"):
            noise.load_corruption(path)


@settings(max_examples=30)
@given(cut=st.integers(0, 1000), tail=st.binary(max_size=100))
def test_truncated_or_extended_files_are_refused(tmp_path_factory, cut: int, tail: bytes) -> None:
    path = noise.save_corruption(SAVED, tmp_path_factory.getbasetemp() / "cut.npz")
    whole = path.read_bytes()
    changed = whole[: -cut or None] + tail
    path.write_bytes(changed)
    if changed != whole:
        with pytest.raises(DataError, match=r"cut\.npz"):
            noise.load_corruption(path)


GOOD = {
    "format": FORMAT,
    "kind": "pair(rate=0.5)",
    "rate": 0.5,
    "seed": 1,
    "num_classes": 2,
    "hash": noise.label_hash(np.array([0, 1])),
}
ZERO_ONE = np.array([0, 1])


@pytest.mark.parametrize(
    ("meta", "arrays"),
    [
        ({"format": "something else"}, {}),
        ({"num_classes": 1}, {}),
        ({"num_classes": "2"}, {}),
        ({"rate": "high"}, {}),
        ({"hash": "0" * 64}, {}),
        ({}, {"labels": np.array([0, 2])}),
        ({}, {"labels": np.array([0, -1])}),
        ({}, {"labels": np.array([0.0, 1.0])}),
        ({}, {"labels": np.array([0, 1, 1])}),
        ({}, {"clean": np.array([[0, 1]])}),
        ({}, {"clean": np.array([0, 5])}),
    ],
)
def test_sealed_files_with_invalid_content_are_refused(tmp_path: Path, meta: dict, arrays: dict) -> None:
    path = tmp_path / "odd.npz"
    write_sealed(path, GOOD, labels=ZERO_ONE, clean=ZERO_ONE)
    noise.load_corruption(path)
    write_sealed(path, GOOD | meta, **{"labels": ZERO_ONE, "clean": ZERO_ONE, **arrays})
    with pytest.raises(DataError, match=r"odd\.npz"):
        noise.load_corruption(path)


def test_missing_parts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    write_sealed(path, GOOD, labels=ZERO_ONE)
    with pytest.raises(DataError, match="clean"):
        noise.load_corruption(path)
    write_sealed(path, {"format": FORMAT}, labels=ZERO_ONE, clean=ZERO_ONE)
    with pytest.raises(DataError, match="num_classes"):
        noise.load_corruption(path)
    with pytest.raises(DataError, match=r"absent\.npz: cannot be read"):
        noise.load_corruption(tmp_path / "absent.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = noise.save_corruption(SAVED, tmp_path / "noise.npz")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        noise.save_corruption(noise.given([0, 1]), path)
    assert same(noise.load_corruption(path), SAVED)
    assert len(list(tmp_path.iterdir())) == 1


def test_unknown_rates_are_not_written_as_nan(tmp_path: Path) -> None:
    path = noise.save_corruption(noise.given([0, 1]), tmp_path / "a.npz")
    assert read_sealed(path)[0]["rate"] is None
    assert math.isnan(noise.load_corruption(path).rate)
