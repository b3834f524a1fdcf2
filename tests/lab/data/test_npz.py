from __future__ import annotations

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data import npz

LABELS = np.arange(10) % 2
IMAGES = np.arange(10 * 4 * 4 * 3, dtype=np.uint8).reshape(10, 4, 4, 3)


def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def test_train_and_test(tmp_path) -> None:
    path = save(tmp_path / "own.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:4], y_test=LABELS[:4])
    data = npz.load(path)
    assert repr(data) == "Dataset('own', images 4x4x3, 2 classes, 10 train + 4 test)"
    assert (data.train.inputs == IMAGES).all()
    assert data.class_names == ("0", "1")


@pytest.mark.parametrize("keys", npz.KEYS, ids=lambda keys: f"{keys[0]}+{keys[1]}")
def test_every_documented_pair_of_names(tmp_path, keys) -> None:
    x, y, x_test, y_test = keys
    data = npz.load(save(tmp_path / "a.npz", **{x: IMAGES, y: LABELS}))
    assert data.holdout == "noisy hold-out"
    assert (len(data.train), len(data.test)) == (8, 2)
    data = npz.load(save(tmp_path / "b.npz", **{x: IMAGES, y: LABELS, x_test: IMAGES, y_test: LABELS}))
    assert data.holdout == "test"


@pytest.mark.parametrize("word", ["val", "valid", "validation"])
@pytest.mark.parametrize("keys", npz.KEYS, ids=lambda keys: f"{keys[0]}+{keys[1]}")
def test_a_validation_pair_is_read_where_there_is_no_test_pair(tmp_path, keys, word) -> None:
    x, y, x_test, y_test = keys
    arrays = {x: IMAGES, y: LABELS, x_test.replace("test", word): IMAGES[:4], y_test.replace("test", word): LABELS[:4]}
    data = npz.load(save(tmp_path / "a.npz", **arrays))
    assert (data.holdout, len(data.train), len(data.test)) == ("test", 10, 4)
    data = npz.load(save(tmp_path / "b.npz", **arrays, **{x_test: IMAGES[:6], y_test: LABELS[:6]}))
    assert len(data.test) == 6


def test_classes_may_be_grouped(tmp_path) -> None:
    arrays = {"x_train": IMAGES, "y_train": LABELS}
    assert npz.load(save(tmp_path / "a.npz", **arrays)).groups is None
    assert npz.load(save(tmp_path / "b.npz", **arrays, class_groups=np.array([1, 0]))).groups == (1, 0)
    for wrong, told in (
        (np.array([0.5, 1.5]), r"'class_groups' is float64 \(2,\); expected integers, one for each class"),
        (np.array([], np.int64), "expected integers, one for each class"),
        (np.array([0, 1, 1]), "groups must hold one id >= 0 for each of the 2 classes"),
        (np.array([0, -1]), "groups must hold one id >= 0 for each of the 2 classes"),
    ):
        with pytest.raises(DataError, match=told):
            npz.load(save(tmp_path / "c.npz", **arrays, class_groups=wrong))


def test_half_a_validation_pair_is_refused(tmp_path) -> None:
    with pytest.raises(DataError, match="array 'y_val' is missing"):
        npz.load(save(tmp_path / "a.npz", x_train=IMAGES, y_train=LABELS, x_val=IMAGES))


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (IMAGES, (4, 4, 3)),
        (IMAGES[..., 0], (4, 4, 1)),
        (IMAGES.transpose(0, 3, 1, 2), (4, 4, 3)),
        (np.asfortranarray(IMAGES), (4, 4, 3)),
        (np.ones((10, 7)), (7,)),
        (np.ones((10, 7), ">f4"), (7,)),
        (np.ones((10, 7), np.int16), (7,)),
        (np.ones((10, 7), bool), (7,)),
    ],
)
def test_input_layouts(tmp_path, array, shape) -> None:
    data = npz.load(save(tmp_path / "a.npz", x=array, y=LABELS, x_test=array, y_test=LABELS))
    assert data.train.shape == shape
    if shape == (4, 4, 3):
        assert (data.train.inputs == IMAGES).all()


def test_labels_as_a_column_of_small_integers(tmp_path) -> None:
    labels = LABELS.astype(np.uint8)[:, None]
    assert npz.load(save(tmp_path / "a.npz", x=IMAGES, y=labels)).train.labels.dtype == np.int64


def test_names_allow_classes_without_examples(tmp_path) -> None:
    path = save(tmp_path / "a.npz", x=IMAGES, y=LABELS, class_names=np.array(["a", "b", "c"]))
    assert npz.load(path).class_names == ("a", "b", "c")


def test_size_limit(tmp_path) -> None:
    path = save(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    with pytest.raises(DataError, match="more than the limit of 100"):
        npz.load(path, max_bytes=100)


def test_seed_moves_the_holdout(tmp_path) -> None:
    path = save(tmp_path / "a.npz", x=np.arange(200.0).reshape(100, 2), y=np.arange(100) % 2)
    assert npz.load(path, seed=1).hash == npz.load(path, seed=1).hash != npz.load(path, seed=2).hash


def test_real_tin100(real_data) -> None:
    if not (real_data / "tin100.npz").is_file():
        pytest.skip("no tin100.npz below REWEIGH_DATA")
    from reweigh.lab.data import registry

    data = registry.load("tin100")
    assert repr(data) == "Dataset('tin100', images 32x32x3, 100 classes in 20 groups, 50000 train + 5000 test)"
    assert np.bincount(data.train.labels).tolist() == [500] * 100
    assert data.groups is not None
    assert data.groups[:6] == (0, 0, 0, 0, 0, 1)
