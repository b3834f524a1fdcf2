from __future__ import annotations

import pickle
import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data import Dataset, Part
from reweigh.lab.data.source.images import Files

LABELS = np.array([0, 1, 1], dtype=np.int64)


def images() -> Part:
    return Part(np.arange(3 * 4 * 4 * 3, dtype=np.uint8).reshape(3, 4, 4, 3), LABELS)


def toy(train: Part | None = None, **changes: object) -> Dataset:
    part = images() if train is None else train
    return replace(Dataset("toy", part, part, ("cat", "dog")), **changes)


def test_kinds_and_shapes() -> None:
    features = Part(np.zeros((3, 5), np.float32), LABELS)
    text = Part(("a", "b", "c"), LABELS)
    files = Part(Files(Path("x"), ("a", "b", "c")), LABELS)
    assert [part.kind for part in (images(), features, text, files)] == ["images", "features", "text", "files"]
    assert [part.shape for part in (images(), features, text, files)] == [(4, 4, 3), (5,), None, None]


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (np.zeros((2, 5), np.float32), LABELS),
        (("a",), LABELS),
        (np.zeros((3, 5), np.float32), np.array([0, -1, 0])),
        (np.array([[0.0], [np.nan], [0.0]], np.float32), LABELS),
        (np.array([[np.inf], [-np.inf], [0.0]], np.float32), LABELS),
        (np.zeros((3, 0), np.float32), LABELS),
        (np.zeros((3, 0, 4, 3), np.uint8), LABELS),
        (np.zeros((3, 4, 4, 0), np.uint8), LABELS),
    ],
)
def test_wrong_content_is_a_data_error(inputs: object, labels: object) -> None:
    with pytest.raises(DataError):
        Part(inputs, labels)


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (np.zeros((3, 5)), LABELS),
        (np.zeros((3, 4, 4), np.uint8), LABELS),
        (["a", "b", "c"], LABELS),
        (("a", b"b", "c"), LABELS),
        (("a", "b", "c"), LABELS.astype(np.int32)),
        (("a", "b", "c"), [0, 1, 1]),
    ],
)
def test_wrong_types_are_refused(inputs: object, labels: object) -> None:
    with pytest.raises(TypeError, match=r"inputs|labels"):
        Part(inputs, labels)


def test_message_points_at_the_value_that_is_not_finite() -> None:
    values = np.zeros((3, 2), np.float32)
    values[2, 1] = np.nan
    with pytest.raises(DataError, match="example 2, feature 1"):
        Part(values, LABELS)


def test_arrays_are_read_only_and_the_callers_are_not() -> None:
    own = np.zeros((3, 5), np.float32)
    part = Part(own, LABELS)
    with pytest.raises(ValueError, match="read-only"):
        part.inputs[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        part.labels[0] = 1
    own[0, 0] = 1


def test_values_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        toy().name = "other"
    with pytest.raises(FrozenInstanceError):
        images().labels = LABELS


def test_take_keeps_order_and_kind() -> None:
    part = Part(("a", "b", "c"), LABELS).take([2, 0])
    assert part.inputs == ("c", "a")
    assert part.labels.tolist() == [1, 0]
    files = Part(Files(Path("x"), ("a", "b", "c")), LABELS).take(np.array([1]))
    assert files.inputs.names == ("b",)
    assert images().take([]).shape == (4, 4, 3)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"class_names": ("cat",)}, "two or more"),
        ({"class_names": ("cat", "cat")}, "more than once"),
        ({"groups": (0,)}, "groups"),
        ({"groups": (0, -1)}, "groups"),
        ({"test": Part(("a", "b", "c"), LABELS)}, "differ"),
        ({"train": images().take([])}, "empty"),
        ({"test": Part(np.zeros((1, 4, 4, 3), np.uint8), np.array([2]))}, "label 2 at index 0 is out of range"),
        ({"holdout": "validation"}, "holdout"),
    ],
)
def test_inconsistent_data_sets_are_refused(changes: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        toy(**changes)


def test_class_names_must_be_strings() -> None:
    with pytest.raises(TypeError, match="class_names"):
        toy(class_names=["cat", "dog"])


@pytest.mark.parametrize("name", ["a\0b", "\x1b[31mcat", "two\nlines", "a\tb", "a\r", "\x7f", "\x9b31m"])
def test_class_names_with_control_characters_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=f"toy: class name {re.escape(repr(name))} holds a control character"):
        toy(class_names=(name, "dog"))


@pytest.mark.parametrize("name", ["", " ", "a\u00a0b", "\u3000", "👩\u200d🔬", "می\u200cخواهم"])
def test_other_class_names_are_taken_as_they_are(name: str) -> None:
    assert toy(class_names=(name, "dog")).class_names == (name, "dog")


def test_a_test_part_may_be_empty() -> None:
    assert len(toy(test=images().take([])).test) == 0


def test_hash_follows_content_only() -> None:
    assert toy().hash == toy(name="other", groups=(0, 0), holdout="noisy hold-out").hash
    assert len(toy().hash) == 64
    pixels = images().inputs.copy()
    pixels[2, 3, 3, 2] ^= 1
    different = {
        toy().hash,
        toy(class_names=("cat", "god")).hash,
        toy(train=Part(pixels, LABELS), test=images()).hash,
        toy(train=Part(images().inputs, LABELS[::-1]), test=images()).hash,
        toy(test=images().take([0, 1])).hash,
    }
    assert len(different) == 5


def test_hash_ignores_memory_layout() -> None:
    fortran = np.asfortranarray(images().inputs)
    assert toy(train=Part(fortran, LABELS)).hash == toy().hash


def test_text_hash_knows_where_texts_end() -> None:
    one, other = Part(("ab", "c", ""), LABELS), Part(("a", "bc", ""), LABELS)
    assert toy(one).hash != toy(other).hash


def test_files_hash_follows_names_and_bytes(tmp_path: Path) -> None:
    def digest(content: bytes) -> str:
        (tmp_path / "a").write_bytes(content)
        part = Part(Files(tmp_path, ("a", "a", "a")), LABELS)
        return toy(part).hash

    assert digest(b"x" * 5000) == digest(b"x" * 5000)
    assert len({digest(b"x"), digest(b"xx"), digest(b"y" + b"x" * 4999), digest(b"x" * 4999 + b"y")}) == 4


def test_repr_says_what_it_is() -> None:
    assert repr(toy()) == "Dataset('toy', images 4x4x3, 2 classes, 3 train + 3 test)"
    held = toy(Part(("a", "b", "c"), LABELS), groups=(0, 0), holdout="noisy hold-out")
    assert repr(held) == "Dataset('toy', text, 2 classes in 1 groups, 3 train + 3 noisy hold-out)"


def test_survives_pickling_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(toy())).hash == toy().hash
