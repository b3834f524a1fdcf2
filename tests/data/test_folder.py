from __future__ import annotations

import pytest

from reweigh.data import folder
from reweigh.errors import DataError


@pytest.fixture
def flat(tmp_path, paint):
    for kind, colour in (("cat", (255, 0, 0)), ("dog", (0, 255, 0))):
        for i in range(5):
            paint(tmp_path / "pets" / kind / f"{i}.png", colour, size=(6 + i, 4))
    return tmp_path / "pets"


def test_classes_without_a_test_folder(flat) -> None:
    data = folder.load(flat)
    assert repr(data) == "Dataset('pets', files, 2 classes, 8 train + 2 noisy hold-out)"
    assert data.class_names == ("cat", "dog")
    for part in (data.train, data.test):
        for i, label in enumerate(part.labels):
            assert part.inputs[i][0, 0].tolist() == ([255, 0, 0] if label == 0 else [0, 255, 0])


def test_train_and_test_folders(tmp_path, paint) -> None:
    for part, names in (("train", ("b", "a")), ("val", ("b",))):
        for name in names:
            paint(tmp_path / part / name / "x.jpg")
    data = folder.load(tmp_path)
    assert data.holdout == "test"
    assert data.class_names == ("a", "b")
    assert data.train.inputs.names == ("train/a/x.jpg", "train/b/x.jpg")
    assert data.test.labels.tolist() == [1]


def test_size_makes_one_array(flat) -> None:
    data = folder.load(flat, size=(8, 7))
    assert data.kind == "images"
    assert data.train.shape == (8, 7, 3)
    assert data.train.inputs[0, 0, 0].tolist() == [255, 0, 0]


def test_hidden_files_are_passed_over_and_subfolders_read(flat, paint) -> None:
    (flat / "cat" / ".DS_Store").write_bytes(b"x")
    (flat / ".git").mkdir()
    (flat / "README").write_text("about these pets")
    paint(flat / "cat" / "more" / "9.png")
    data = folder.load(flat)
    assert len(data.train) + len(data.test) == 11


def test_a_class_may_be_called_train(tmp_path, paint) -> None:
    for kind in ("train", "bus"):
        for i in range(5):
            paint(tmp_path / kind / f"{i}.png")
    assert folder.load(tmp_path).class_names == ("bus", "train")


def test_all_unreadable_images_are_reported_at_once(flat) -> None:
    (flat / "cat" / "broken.png").write_bytes(b"\x89PNG nothing")
    (flat / "dog" / "notes.txt").write_text("woof")
    for size in (None, (4, 4)):
        with pytest.raises(DataError, match="2 of 12 images cannot be read") as caught:
            folder.load(flat, size=size)
        assert "cat/broken.png" in str(caught.value)
        assert "dog/notes.txt" in str(caught.value)


def test_without_a_check_names_still_count(flat) -> None:
    (flat / "cat" / "broken.png").write_bytes(b"\x89PNG nothing")
    assert len(folder.load(flat, check=False).train) == 9
    (flat / "dog" / "notes.txt").write_text("woof")
    with pytest.raises(DataError, match=r"dog/notes\.txt"):
        folder.load(flat, check=False)
