"""Abnormal frames: the exact number, seeded, with the truth, in files and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.lab.data import mars
from reweigh.lab.data.dataset import Part
from reweigh.lab.data.source.images import Files
from reweigh.lab.retrieval.corrupt import BACKGROUND, CLEAN, IDENTITY, KINDS, STRANGER, Corners, corner, corrupt_frames

SIZE = (12, 8)


def pictures(labels: Any) -> Part:
    """Frames with a colour each, and white corners."""
    pixels = np.zeros((len(labels), *SIZE, 3), np.uint8)
    pixels[:] = np.arange(len(labels), dtype=np.uint8)[:, None, None, None]
    pixels[:, :2, :2] = pixels[:, :2, -2:] = 255
    return Part(pixels, np.array(labels, dtype=np.int64))


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=40).filter(lambda labels: len(set(labels)) > 1),
    rate=st.floats(0, 1),
    seed=st.integers(0, 99),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, unique=True),
)
def test_kinds_describe_the_changes(labels: list[int], rate: float, seed: int, kinds: list[str]) -> None:
    part = pictures(labels)
    noisy = corrupt_frames(part, rate, seed, kinds)
    assert noisy.is_noisy.sum() == round(rate * len(labels))
    counts = [int((noisy.kinds == KINDS.index(kind) + 1).sum()) for kind in kinds]
    assert max(counts) - min(counts) <= 1
    seen = np.asarray(noisy.part.inputs)
    for i, done in enumerate(noisy.kinds):
        colour = int(seen[i, -1, 0, 0])
        if done == CLEAN:
            assert (seen[i] == np.asarray(part.inputs)[i]).all()
            assert noisy.part.labels[i] == noisy.clean[i] == labels[i]
        elif done == BACKGROUND:
            assert colour == 255
            assert (noisy.clean[i], noisy.part.labels[i]) == (-1, labels[i])
        elif done == STRANGER:
            assert noisy.part.labels[i] == labels[i] != noisy.clean[i]
            assert labels[colour] == noisy.clean[i]
        else:
            assert done == IDENTITY
            assert colour == i
            assert noisy.clean[i] == labels[i] != noisy.part.labels[i]
    assert (noisy.is_noisy == (noisy.part.labels != noisy.clean)).all()
    again = corrupt_frames(part, rate, seed, kinds)
    assert again.part.digest() == noisy.part.digest()


def test_another_seed_is_another_draw_of_unchanged_frames() -> None:
    part = pictures([0, 1] * 50)
    before = part.digest()
    one, two = corrupt_frames(part, 0.4, 1), corrupt_frames(part, 0.4, 2)
    assert (one.kinds != two.kinds).any()
    assert part.digest() == before


def test_strangers_are_drawn_from_all_others() -> None:
    part = pictures([0] * 30 + [1] * 20 + [2] * 10)
    noisy = corrupt_frames(part, 1.0, 0, ["stranger"])
    sources = np.asarray(noisy.part.inputs)[:, -1, 0, 0]
    assert {int(label) for label in noisy.clean[:30]} == {1, 2}
    assert len(np.unique(sources)) > 20


def test_files_are_changed_on_reading(small_mars: Path) -> None:
    part = mars.load(small_mars).train
    noisy = corrupt_frames(part, 0.6, seed=3)
    lazy = noisy.part.inputs
    assert isinstance(lazy, Corners)
    memory = corrupt_frames(Part(part.inputs.array((16, 8)), part.labels), 0.6, seed=3)  # type: ignore[union-attr]
    assert (memory.kinds == noisy.kinds).all()
    assert (memory.clean == noisy.clean).all()
    assert (memory.part.inputs == lazy.array((16, 8))).all()
    assert all((lazy[i] == np.asarray(memory.part.inputs)[i]).all() for i in range(len(lazy)))
    some = lazy.take([4, 1])
    assert (some[0] == lazy[4]).all()
    assert (some[1] == lazy[1]).all()
    assert lazy.digest() != Files(lazy.root, lazy.names).digest()


def test_a_corner_is_left_or_right() -> None:
    image = np.zeros((24, 16, 3), np.uint8)
    image[:4, :4], image[:4, -4:] = 100, 200
    assert np.unique(corner(image, 1, (6, 5))).tolist() == [100]
    assert np.unique(corner(image, 2, (6, 5))).tolist() == [200]
    assert corner(np.zeros((2, 2, 3), np.uint8), 1, (2, 2)).shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 1.5}, "rate must be from 0 to 1, not 1.5"),
        ({"rate": 0.1, "kinds": ["blur"]}, "kinds must be some of background, stranger, identity, not blur"),
        ({"rate": 0.1, "kinds": []}, "not none"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrupt_frames(pictures([0, 1]), **arguments)


def test_frames_that_cannot_be_corrupted_are_refused() -> None:
    with pytest.raises(ValueError, match="frames must have two classes or more, not 1"):
        corrupt_frames(pictures([0, 0]), 0.5)
    with pytest.raises(ValueError, match="frames must be images, not features"):
        corrupt_frames(Part(np.zeros((2, 3), np.float32), np.array([0, 1])), 0.5)
