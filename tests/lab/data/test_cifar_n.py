from __future__ import annotations

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data import cifar_n

CLEAN = np.array([6, 9, 9, 4, 1], dtype=np.int64)
WORSE = np.array([6, 9, 0, 4, 2], dtype=np.int64)


@pytest.fixture
def root(tmp_path, human_labels):
    human_labels(tmp_path / "data" / "CIFAR-10_human.pt", {"clean_label": CLEAN, "worse_label": WORSE})
    return tmp_path


def test_labels_by_full_and_short_key(root) -> None:
    for key in ("worse_label", "worse"):
        labels = cifar_n.load(root, "cifar10", key, CLEAN)
        assert labels.dtype == np.int64
        assert labels.tolist() == WORSE.tolist()
    assert cifar_n.load(root / "data" / "CIFAR-10_human.pt", "cifar10", "worse", CLEAN).tolist() == WORSE.tolist()


def test_coarse_lists_of_cifar100n(tmp_path, human_labels) -> None:
    path = human_labels(
        tmp_path / "CIFAR-100_human.pt",
        {
            "clean_label": CLEAN,
            "noisy_label": WORSE,
            "clean_coarse_label": [0, 1, 1, 2, 3],
            "noisy_coarse_label": [0, 1, 2, 2, 3],
        },
    )
    coarse = np.array([0, 1, 1, 2, 3])
    assert cifar_n.load(path, "cifar100", "noisy_coarse", coarse).tolist() == [0, 1, 2, 2, 3]
    with pytest.raises(DataError, match=r"noisy_coarse_label holds superclasses.*; use noisy_label"):
        cifar_n.load(path, "cifar100", "noisy_coarse", CLEAN)
    assert sorted(cifar_n.read(path)) == ["clean_coarse_label", "clean_label", "noisy_coarse_label", "noisy_label"]


def test_labels_of_another_order_are_refused(root) -> None:
    with pytest.raises(DataError, match="python version"):
        cifar_n.load(root, "cifar10", "worse", CLEAN[::-1])
    with pytest.raises(DataError, match="python version"):
        cifar_n.load(root, "cifar10", "worse", CLEAN[:3])


def test_unknown_key_lists_the_keys(root) -> None:
    with pytest.raises(ValueError, match="clean_label, worse_label"):
        cifar_n.load(root, "cifar10", "worst", CLEAN)


def test_unknown_name(root) -> None:
    with pytest.raises(ValueError, match="'cifar20'"):
        cifar_n.load(root, "cifar20", "worse", CLEAN)


def test_ordered_variant_is_refused_with_an_explanation(tmp_path) -> None:
    path = tmp_path / "CIFAR-10_human_ordered.npy"
    np.save(path, np.array({"worse_label": WORSE}, dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"another library's order.*\.pt"):
        cifar_n.load(path, "cifar10", "worse", CLEAN)


def test_no_file(tmp_path) -> None:
    with pytest.raises(DataError, match=r"CIFAR-10_human\.pt"):
        cifar_n.load(tmp_path, "cifar10", "worse", CLEAN)
