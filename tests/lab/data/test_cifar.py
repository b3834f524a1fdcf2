from __future__ import annotations

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data import cifar, registry

VEHICLE_IDS = [8, 13, 41, 48, 58, 69, 81, 85, 89, 90]


def test_python_version_keeps_order_channels_and_names(cifar_files) -> None:
    cifar_files.python10()
    data = cifar.load(cifar_files.root)
    assert repr(data) == "Dataset('cifar10', images 32x32x3, 10 classes, 20 train + 4 test)"
    assert data.train.labels.tolist() == [i % 10 for i in range(20)]
    assert data.test.labels.tolist() == [0, 1, 2, 3]
    assert data.class_names[:2] == ("airplane", "automobile")
    assert data.groups is None
    record = data.train.inputs[7]
    assert (record[..., 0] == 7).all()
    assert (record[..., 1] == 107).all()
    assert (record[..., 2] == np.arange(32)).all()


def test_binary_version_agrees(cifar_files) -> None:
    python, binary = cifar_files.python10(), cifar_files.binary10()
    assert cifar.load(python).hash == cifar.load(binary).hash
    assert cifar.load(str(cifar_files.root)).hash == cifar.load(python).hash


def test_cifar100_versions_agree_and_superclasses_are_groups(cifar_files) -> None:
    python = cifar_files.python100(cifar.SUPERCLASS)
    binary = cifar_files.binary100(cifar.SUPERCLASS)
    one, other = cifar.load(python, "cifar100"), cifar.load(binary, "cifar100")
    assert one.hash == other.hash
    assert one.groups == other.groups == cifar.SUPERCLASS
    assert repr(one) == "Dataset('cifar100', images 32x32x3, 100 classes in 20 groups, 100 train + 20 test)"


def test_groups_come_from_the_files(cifar_files) -> None:
    swapped = (cifar.SUPERCLASS[1], cifar.SUPERCLASS[0], *cifar.SUPERCLASS[2:])
    cifar_files.binary100(swapped, count=10)
    groups = cifar.load(cifar_files.root, "cifar100").groups
    assert groups is not None
    assert groups[:10] == swapped[:10]
    assert groups[10:] == cifar.SUPERCLASS[10:]


def test_vehicles(cifar_files) -> None:
    cifar_files.python100(cifar.SUPERCLASS, count=200)
    data = cifar.load(cifar_files.root, "vehicles10")
    assert data.class_names == cifar.VEHICLES
    assert data.train.labels.tolist() == list(range(10)) * 2
    assert data.train.inputs[:10, 0, 0, 0].tolist() == VEHICLE_IDS
    assert data.groups == (0, 0, 1, 0, 0, 1, 1, 1, 1, 0)


def test_vehicles_need_the_classes(cifar_files) -> None:
    cifar_files.python10()
    with pytest.raises(DataError, match="bicycle"):
        cifar.vehicles(cifar.load(cifar_files.root))


def test_verification_is_an_option(cifar_files) -> None:
    cifar_files.python10()
    with pytest.raises(DataError, match=r"data_batch_1: md5 .* official file has c99cafc1"):
        cifar.load(cifar_files.root, verify=True)


def test_official_meta_passes_verification(cifar_files, monkeypatch) -> None:
    folder = cifar_files.python10()
    import hashlib

    found = {f"{folder.name}/{p.name}": hashlib.md5(p.read_bytes()).hexdigest() for p in folder.iterdir()}
    monkeypatch.setattr(cifar, "MD5", found)
    assert len(cifar.load(folder, verify=True).train) == 20


def test_binary_files_have_no_official_digests(cifar_files) -> None:
    cifar_files.binary10()
    with pytest.raises(DataError, match="no official md5"):
        cifar.load(cifar_files.root, verify=True)


def test_missing_files_are_named_together(cifar_files) -> None:
    folder = cifar_files.python10()
    (folder / "data_batch_2").unlink()
    (folder / "test_batch").unlink()
    with pytest.raises(DataError, match="data_batch_2, test_batch missing"):
        cifar.load(cifar_files.root)


def test_nothing_there(tmp_path) -> None:
    with pytest.raises(DataError, match="cifar-10-batches-py or cifar-10-batches-bin"):
        cifar.load(tmp_path)
    with pytest.raises(ValueError, match="'cifar1000'"):
        cifar.load(tmp_path, "cifar1000")


def test_real_cifar10(real_data) -> None:
    if not any((real_data / f"cifar-10-batches-{kind}").is_dir() for kind in ("py", "bin")):
        pytest.skip("no CIFAR-10 below REWEIGH_DATA")
    data = registry.load("cifar10")
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    assert data.train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert np.bincount(data.train.labels).tolist() == [5000] * 10
    assert np.bincount(data.test.labels).tolist() == [1000] * 10
    means = data.train.inputs.reshape(-1, 3).sum(axis=0, dtype=np.int64) / (50_000 * 1024 * 255)
    assert means.round(4).tolist() == [0.4914, 0.4822, 0.4465]
    assert data.class_names[9] == "truck"


def test_superclass_vector_is_that_of_the_real_labels(real_data) -> None:
    path = real_data / "cifar100_labels.npz"
    if not path.is_file():
        pytest.skip("no cifar100_labels.npz below REWEIGH_DATA")
    with np.load(path, allow_pickle=False) as labels:
        for part in ("train", "test"):
            fine, coarse = labels[f"y_{part}_fine"], labels[f"y_{part}_coarse"]
            assert (np.array(cifar.SUPERCLASS)[fine] == coarse).all()
        assert labels["fine_names"][VEHICLE_IDS].tolist() == list(cifar.VEHICLES)
        assert labels["y_train_fine"][:10].tolist() == [19, 29, 0, 11, 1, 86, 90, 28, 23, 31]
