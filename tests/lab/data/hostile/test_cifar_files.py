"""CIFAR folders in which one file is wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reweigh.lab.data import cifar

Damage = Callable[[bytes], bytes]
RECORD10, RECORD100 = 3073, 3074


def cut(at: int) -> Damage:
    return lambda raw: raw[:at]


def poke(at: int, value: int) -> Damage:
    return lambda raw: raw[:at] + bytes([value]) + raw[at + 1 :]


def batch(**changes: object) -> Damage:
    """A well-formed python batch of four records with some entries changed; None leaves one out."""
    content = {"labels": [0, 1, 2, 3], "data": np.zeros((4, 3072), np.uint8)} | changes
    kept = {key: value for key, value in content.items() if value is not None}
    return lambda _raw: pickle.dumps(kept, protocol=2)


def lines(*names: str) -> Damage:
    return lambda _raw: "\n".join(names).encode()


BINARY10: dict[str, tuple[str, Damage]] = {
    f"{file} cut at {at}": (file, cut(at))
    for file in ("data_batch_1.bin", "data_batch_5.bin", "test_batch.bin")
    for at in (0, 1, 1024, RECORD10 - 1, RECORD10 + 1, 2 * RECORD10 + 500, 4 * RECORD10 - 1)
}
BINARY10 |= {
    "one byte more": ("data_batch_3.bin", lambda raw: raw + b"\0"),
    "records of CIFAR-100's size": ("data_batch_3.bin", lambda raw: raw[: RECORD10 - 1] + b"\0\0" * 4),
    "label 10": ("data_batch_2.bin", poke(0, 10)),
    "label 255 in the last record": ("test_batch.bin", poke(3 * RECORD10, 255)),
    "three names": ("batches.meta.txt", lines(*"abc")),
    "one name": ("batches.meta.txt", lines("a")),
    "no names": ("batches.meta.txt", lines()),
    "the same name twice": ("batches.meta.txt", lines(*"abcdefghia")),
    "an empty name": ("batches.meta.txt", lines(*"abcd", "", *"efghi")),
    "names that are not UTF-8": ("batches.meta.txt", lambda raw: b"\xff" + raw),
}

PYTHON10: dict[str, tuple[str, Damage]] = {
    **{f"cut at {at}": ("data_batch_4", cut(at)) for at in (0, 1, 2, 10, 100, 1000, 5000, 12_000)},
    "no data": ("data_batch_1", batch(data=None)),
    "no labels": ("data_batch_1", batch(labels=None)),
    "data of int64": ("data_batch_1", batch(data=np.zeros((4, 3072), np.int64))),
    "data of 3071 columns": ("data_batch_1", batch(data=np.zeros((4, 3071), np.uint8))),
    "data in planes": ("data_batch_1", batch(data=np.zeros((4, 3, 32, 32), np.uint8))),
    "data as a scalar": ("data_batch_1", batch(data=np.zeros((), np.uint8))),
    "data as a list": ("data_batch_1", batch(data=[[0] * 3072] * 4)),
    "no records": ("data_batch_1", batch(data=np.zeros((0, 3072), np.uint8), labels=[])),
    "fewer labels": ("test_batch", batch(labels=[0, 1, 2])),
    "more labels": ("test_batch", batch(labels=[0, 1, 2, 3, 4])),
    "label 10": ("test_batch", batch(labels=[0, 1, 2, 10])),
    "label -1": ("test_batch", batch(labels=[0, -1, 2, 3])),
    "label 2**70": ("test_batch", batch(labels=[0, 1, 2, 2**70])),
    "labels of strings": ("test_batch", batch(labels=["0", "1", "2", "3"])),
    "labels of floats": ("test_batch", batch(labels=[0.0, 1.0, 2.0, 3.0])),
    "labels of booleans": ("test_batch", batch(labels=[True, False, True, False])),
    "labels as a column": ("test_batch", batch(labels=np.zeros((4, 1), np.int64))),
    "labels as float array": ("test_batch", batch(labels=np.zeros(4))),
    "meta without names": ("batches.meta", lambda _raw: pickle.dumps({"num_vis": 3072})),
    "meta with numbers for names": ("batches.meta", lambda _raw: pickle.dumps({"label_names": [1, 2]})),
    "meta with names that are not UTF-8": ("batches.meta", lambda _raw: pickle.dumps({"label_names": [b"\xff", b"b"]})),
    "meta with three names": ("batches.meta", lambda _raw: pickle.dumps({"label_names": ["a", "b", "c"]})),
}

BINARY100: dict[str, tuple[str, Damage]] = {
    **{f"cut at {at}": ("train.bin", cut(at)) for at in (0, 1, RECORD100 - 1, 10 * RECORD100 + 1)},
    "one byte more": ("test.bin", lambda raw: raw + b"\0"),
    "fine label 100": ("train.bin", poke(1, 100)),
    "coarse label 20": ("train.bin", poke(0, 20)),
    "no coarse names": ("coarse_label_names.txt", lines()),
    "a class in two superclasses": ("test.bin", poke(0, 5)),
    "101 names": ("fine_label_names.txt", lines(*(f"class {k}" for k in range(101)))),
}

PYTHON100: dict[str, tuple[str, Damage]] = {
    "no coarse labels": ("train", batch(labels=None, fine_labels=[0, 1, 2, 3])),
    "coarse label -1": ("train", batch(labels=None, fine_labels=[0, 1, 2, 3], coarse_labels=[0, 1, 2, -1])),
    "meta without coarse names": ("meta", lambda _raw: pickle.dumps({"fine_label_names": ["a", "b"]})),
    "fewer coarse labels": ("train", batch(labels=None, fine_labels=[0, 1, 2, 3], coarse_labels=[0, 1])),
}


def test_there_are_many() -> None:
    assert sum(map(len, (BINARY10, PYTHON10, BINARY100, PYTHON100))) >= 70


def harm(folder: Path, file: str, damage: Damage) -> None:
    (folder / file).write_bytes(damage((folder / file).read_bytes()))


def naming(case: str, file: str) -> str:
    """The file that is named: where names are too few or too many, that of the labels that do not fit them."""
    others = {"three names": "data_batch_1.bin", "meta with three names": "data_batch_1", "101 names": "train.bin"}
    return others.get(case, file)


@pytest.mark.parametrize("case", BINARY10)
def test_binary_cifar10(case, cifar_files, refused) -> None:
    file, damage = BINARY10[case]
    harm(cifar_files.binary10(), file, damage)
    refused(lambda: cifar.load(cifar_files.root), naming(case, file))


@pytest.mark.parametrize("case", PYTHON10)
def test_python_cifar10(case, cifar_files, refused) -> None:
    file, damage = PYTHON10[case]
    harm(cifar_files.python10(), file, damage)
    refused(lambda: cifar.load(cifar_files.root), naming(case, file))


@pytest.mark.parametrize("case", BINARY100)
def test_binary_cifar100(case, cifar_files, refused) -> None:
    file, damage = BINARY100[case]
    harm(cifar_files.binary100(cifar.SUPERCLASS), file, damage)
    refused(lambda: cifar.load(cifar_files.root, "cifar100"), naming(case, file))


@pytest.mark.parametrize("case", PYTHON100)
def test_python_cifar100(case, cifar_files, refused) -> None:
    file, damage = PYTHON100[case]
    harm(cifar_files.python100(cifar.SUPERCLASS), file, damage)
    refused(lambda: cifar.load(cifar_files.root, "cifar100"), naming(case, file))


def test_a_record_is_named_by_its_number(cifar_files, refused) -> None:
    harm(cifar_files.binary10(), "data_batch_2.bin", poke(2 * RECORD10, 77))
    assert "record 2: label 77" in refused(lambda: cifar.load(cifar_files.root), "data_batch_2.bin")
