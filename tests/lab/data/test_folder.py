from __future__ import annotations

import os

import pytest

from reweigh.errors import DataError, DataWarning
from reweigh.lab.data import folder


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


@pytest.mark.parametrize(("train", "test"), [("Train", "Test"), ("TRAIN", "val"), ("train", "valid")])
def test_parts_by_other_names(tmp_path, paint, train, test) -> None:
    for part in (train, test):
        for name in ("a", "b"):
            paint(tmp_path / part / name / "x.jpg")
    data = folder.load(tmp_path)
    assert (data.class_names, data.holdout) == (("a", "b"), "test")
    assert data.test.inputs.names == (f"{test}/a/x.jpg", f"{test}/b/x.jpg")


def test_a_folder_beside_train_that_is_no_test_folder(tmp_path, paint) -> None:
    for name in ("train/a", "train/b", "holdout/a"):
        paint(tmp_path / name / "x.jpg")
    with pytest.raises(DataError, match=r"next to train there is holdout; expected only a test folder \(test, val"):
        folder.load(tmp_path)
    paint(tmp_path / "test" / "a" / "x.jpg")
    assert len(folder.load(tmp_path).test) == 1


def test_linked_folders_are_read_once(flat, tmp_path, paint) -> None:
    paint(tmp_path / "elsewhere" / "more" / "9.png")
    (flat / "cat" / "linked").symlink_to(tmp_path / "elsewhere")
    data = folder.load(flat)
    assert len(data.train) + len(data.test) == 11
    assert "cat/linked/more/9.png" in (*data.train.inputs.names, *data.test.inputs.names)
    (tmp_path / "elsewhere" / "more" / "back").symlink_to(flat / "cat")
    with pytest.raises(DataError, match=r"cat/linked/more/back: a link to the folder .*pets/cat"):
        folder.load(flat)


@pytest.mark.parametrize(
    ("link", "to", "first"), [("test", "train", "train/a"), ("test", ".kept", "train/b"), ("train/c", "b", "train/b")]
)
def test_the_same_pictures_are_not_read_twice_by_a_link(tmp_path, paint, link, to, first) -> None:
    for name in ("a", "b"):
        paint(tmp_path / "train" / name / "x.png")
    paint(tmp_path / ".kept" / "a" / "y.png")
    (tmp_path / ".kept" / "b").symlink_to(tmp_path / "train" / "b")
    (tmp_path / link).symlink_to(to)
    with pytest.raises(DataError, match=f": a link to the folder .*{first}, which is already read"):
        folder.load(tmp_path)


@pytest.mark.parametrize("twice", ["Train", "TEST"])
def test_parts_whose_names_differ_in_case_only_are_refused(tmp_path, paint, twice) -> None:
    for part in ("train", "test", twice):
        for name in ("a", "b"):
            paint(tmp_path / part / name / "x.png")
    if len(list(tmp_path.iterdir())) < 3:
        pytest.skip("this file system makes no difference")
    with pytest.raises(DataError, match=f"{twice} and {twice.lower()} differ only in case"):
        folder.load(tmp_path)


def test_a_link_to_a_class_that_is_gone(flat, tmp_path) -> None:
    (flat / "bird").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match="pets/bird: a broken link"):
        folder.load(flat)


@pytest.mark.parametrize("place", ["cat/closed", "cat", ""])
def test_a_folder_that_cannot_be_read(flat, monkeypatch, place) -> None:
    (flat / "cat" / "closed").mkdir()
    closed, scandir = str(flat / place), os.scandir

    def refusing(path="."):
        if os.fspath(path) == closed:  # a right taken away would not keep an administrator out
            raise PermissionError(13, "Permission denied", closed)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(DataError, match=f"{closed}: the folder cannot be read: Permission denied"):
        folder.load(flat)


def test_names_that_are_not_utf_8(flat) -> None:
    """File names are read as they are; class names are written into every record, and so refused."""
    try:
        (flat / "cat" / "0.png").rename(flat / "cat" / os.fsdecode(b"\xe9.png"))
    except OSError:
        pytest.skip("this file system takes no such names")
    assert len(folder.load(flat).hash) == 64
    (flat / "dog").rename(flat / os.fsdecode(b"d\xe9g"))
    with pytest.raises(DataError, match=r"class name 'd\\udce9g' is not valid UTF-8"):
        folder.load(flat)


def test_all_unreadable_images_are_reported_at_once(flat) -> None:
    (flat / "cat" / "broken.png").write_bytes(b"\x89PNG nothing")
    (flat / "dog" / "empty.jpg").write_bytes(b"")
    for size in (None, (4, 4)):
        with pytest.raises(DataError, match="2 of 12 images cannot be read") as caught:
            folder.load(flat, size=size)
        assert "cat/broken.png" in str(caught.value)
        assert "dog/empty.jpg" in str(caught.value)
    assert len(folder.load(flat, check=False).train) == 10


def test_other_files_and_empty_folders_are_skipped_with_their_number(flat) -> None:
    for name in ("cat/Thumbs.db", "dog/notes.txt", "dog/more/README"):
        (flat / name).parent.mkdir(exist_ok=True)
        (flat / name).write_text("no image")
    (flat / "bird").mkdir()
    with pytest.warns(DataWarning) as warned:
        data = folder.load(flat)
    assert data.class_names == ("cat", "dog")
    assert [str(warning.message) for warning in warned] == [
        f"{flat}: skipped files that are not images: 3 (cat/Thumbs.db, dog/more/README, dog/notes.txt), "
        "folders without an image: 1 (bird)"
    ]


def test_a_flat_folder_needs_classes_or_labels(tmp_path, paint) -> None:
    with pytest.raises(DataError, match="no images in folders; expected one subfolder per class"):
        folder.load(tmp_path)
    paint(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"1 images without a folder per class; .*--labels labels\.csv"):
        folder.load(tmp_path)


def test_a_folder_around_the_classes_is_named(flat) -> None:
    with pytest.raises(DataError, match=rf"1 class \(pets\).*if the classes are cat, dog, use {flat}$"):
        folder.load(flat.parent)


@pytest.fixture
def listed(tmp_path, paint):
    for i in range(10):
        paint(tmp_path / "photos" / f"{i}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("suffix", ["", ".png"])
def test_a_table_of_labels(listed, suffix) -> None:
    table = listed / "labels.csv"
    table.write_text("name,label\n" + "".join(f"{i}{suffix},{'ab'[i % 2]}\n" for i in range(9)) + f"9{suffix},\n")
    with pytest.warns(DataWarning, match="skipped images without a label: 1"):
        data = folder.load(listed, labels=table)
    assert data.class_names == ("a", "b")
    for part in (data.train, data.test):
        for name, label in zip(part.inputs.names, part.labels.tolist(), strict=True):
            assert int(name[0]) % 2 == label


def test_problems_of_a_table_of_labels(listed, paint) -> None:
    table = listed / "labels.csv"
    table.write_text("file,kind\n1.png,a\n")
    with pytest.raises(DataError, match="expected names of files and a column 'label'"):
        folder.load(listed, labels=table)
    paint(listed / "more" / "1.png")
    table.write_text("file,kind\n1,a\n2,b\n2.png,a\nx,b\n")
    with pytest.raises(DataError) as caught:
        folder.load(listed, labels=table, label="kind")
    for problem in (r"line 5 (x)", "several images in", "line 2 (1)", "listed more than once: 2.png"):
        assert problem in str(caught.value)
    table.write_text("file,label\n../1.png,a\n")
    with pytest.raises(DataError, match="leads out of the data folder"):
        folder.load(listed, labels=table)
