"""Clothing1M: 28 solid pictures in the official layout, its real clean lists, and broken copies of both."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reweigh.errors import DataError
from reweigh.lab.data import clothing1m

NAMES = [
    *("T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker"),
    *("Jacket", "Downcoat", "Suit", "Shawl", "Dress", "Vest", "Underwear"),
]
NOISY = [f"images/0/{i:02d}/{1000 + i},{2000 + i}.jpg" for i in range(14)]
CLEAN = [f"images/1/{i:02d}/{3000 + i},{4000 + i} copy.jpg" for i in range(14)]
BOTH = CLEAN[:5]
"""Images with a label in both files, which disagree."""


def lines(rows: list[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "clothing1M"
    for colour, key in enumerate(NOISY + CLEAN):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 12), (8 * colour, 100, 200)).save(path, quality=95)
    noisy = [f"{key} {i}" for i, key in enumerate(NOISY)] + [f"{key} {i + 1}" for i, key in enumerate(BOTH)]
    clean = [f"{key} {i}" for i, key in enumerate(CLEAN)]
    for name, rows in {
        "category_names_eng.txt": NAMES,
        "noisy_label_kv.txt": noisy,
        "clean_label_kv.txt": clean[::-1],
        "noisy_train_key_list.txt": NOISY[::-1],
        "clean_train_key_list.txt": CLEAN[:5],
        "clean_val_key_list.txt": CLEAN[5:9],
        "clean_test_key_list.txt": CLEAN[9:],
    }.items():
        (folder / name).write_text(lines(rows))
    return folder


def test_train_on_the_noisy_list_and_test_on_the_clean_one(root: Path) -> None:
    data = clothing1m.load(root)
    assert data.name == "clothing1m"
    assert data.class_names == tuple(NAMES)
    assert data.train.labels.tolist() == list(range(13, -1, -1))
    assert data.test.labels.tolist() == [9, 10, 11, 12, 13]
    assert data.train.kind == "files"
    assert data.train.inputs[0].shape == (12, 8, 3)
    assert abs(int(data.train.inputs[0][0, 0, 0]) - 8 * 13) < 6
    assert abs(int(data.test.inputs[4][0, 0, 0]) - 8 * 27) < 6


def test_each_list_takes_its_own_labels(root: Path) -> None:
    """The five images with two labels are in clean_train, so their clean label counts."""
    assert clothing1m.load_labels(root, "clean_train").labels.tolist() == [0, 1, 2, 3, 4]
    assert clothing1m.load_labels(root, "clean_val").labels.tolist() == [5, 6, 7, 8]
    assert clothing1m.load_labels(root, "noisy_train").keys == tuple(NOISY[::-1])
    clean = clothing1m.load(root, train="clean_train")
    assert clean.name == "clothing1m-clean_train"
    assert clean.train.labels.tolist() == [0, 1, 2, 3, 4]


def test_the_images_with_two_labels_measure_the_noise(root: Path) -> None:
    keys, corruption = clothing1m.overlap(root)
    assert keys == tuple(BOTH)
    assert corruption.measured == 1.0
    assert corruption.num_classes == 14
    assert corruption.clean.tolist() == [0, 1, 2, 3, 4]


def test_without_a_noisy_list_the_clean_one_is_trained_on(root: Path) -> None:
    (root / "noisy_train_key_list.txt").unlink()
    assert clothing1m.load(root).name == "clothing1m-clean_train"


def hash_of(root: Path) -> str:
    return clothing1m.load(root).hash


def test_other_layouts_hold_the_same_data(root: Path) -> None:
    labels = clothing1m.load(root).train.labels.tolist()
    assert clothing1m.load(root.parent).hash == hash_of(root), "the parent folder finds it"

    (root / "annotations").mkdir()
    for path in root.glob("*.txt"):
        path.rename(root / "annotations" / path.name)
    assert clothing1m.load(root).train.labels.tolist() == labels

    for digit in ("0", "1"):
        (root / "images" / digit).rename(root / digit)
    moved = clothing1m.load(root)
    assert moved.train.labels.tolist() == labels
    assert moved.train.inputs.names[0] == NOISY[-1].removeprefix("images/")
    assert moved.train.inputs[0].shape == (12, 8, 3)


def test_windows_line_ends(root: Path) -> None:
    before = clothing1m.load(root)
    for path in root.glob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    after = clothing1m.load(root)
    assert after.hash == before.hash


def replace(name: str, text: str | bytes) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / name).write_bytes(text.encode() if isinstance(text, str) else text)

    return change


def remove(name: str) -> Callable[[Path], object]:
    return lambda root: (root / name).unlink()


KV = lines([f"{key} {i}" for i, key in enumerate(NOISY)])
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no names": (remove("category_names_eng.txt"), "no category_names_eng.txt"),
    "no test list": (remove("clean_test_key_list.txt"), r"clean_test_key_list\.txt: no such file"),
    "no noisy labels": (remove("noisy_label_kv.txt"), r"noisy_label_kv\.txt: no such file"),
    "no clean labels": (remove("clean_label_kv.txt"), r"clean_label_kv\.txt: no such file"),
    "empty list": (replace("noisy_train_key_list.txt", ""), r"noisy_train_key_list\.txt: empty"),
    "empty names": (replace("category_names_eng.txt", ""), r"category_names_eng\.txt: 0 names"),
    "blank name": (replace("category_names_eng.txt", "a\n\nb\n"), r"category_names_eng\.txt: line 2"),
    "name twice": (replace("category_names_eng.txt", "a\nb\na\n"), r"category_names_eng\.txt: line 3: 'a'"),
    "one name": (replace("category_names_eng.txt", "a\n"), r"category_names_eng\.txt: 1 names"),
    "key without label": (replace("noisy_label_kv.txt", KV.split("\n", 1)[1]), "line 14: .* has no label in noisy"),
    "label too large": (replace("noisy_label_kv.txt", KV + "x.jpg 14\n"), r"noisy_label_kv\.txt: line 15: label 14"),
    "label negative": (replace("noisy_label_kv.txt", KV + "x.jpg -1\n"), r"noisy_label_kv\.txt: line 15"),
    "label a word": (replace("noisy_label_kv.txt", KV + "x.jpg Shirt\n"), r"noisy_label_kv\.txt: line 15"),
    "label of 30 digits": (replace("noisy_label_kv.txt", KV + f"x.jpg {'0' * 30}\n"), "line 15"),
    "label missing": (replace("noisy_label_kv.txt", KV + "x.jpg\n"), r"noisy_label_kv\.txt: line 15"),
    "path missing": (replace("noisy_label_kv.txt", KV + " 3\n"), r"noisy_label_kv\.txt: line 15"),
    "label after a comma": (replace("noisy_label_kv.txt", KV + "x.jpg,3\n"), r"noisy_label_kv\.txt: line 15"),
    "empty line": (replace("noisy_label_kv.txt", "\n" + KV), r"noisy_label_kv\.txt: line 1"),
    "key twice": (replace("noisy_label_kv.txt", KV + f"{NOISY[3]} 3\n"), r"noisy_label_kv\.txt: line 15: .* earlier"),
    "not text": (replace("noisy_label_kv.txt", KV.encode() + b"\xff.jpg 1\n"), r"noisy_label_kv\.txt: line 15: byte"),
    "listed twice": (
        replace("clean_test_key_list.txt", lines([CLEAN[9], CLEAN[10], CLEAN[9]])),
        r"clean_test_key_list\.txt: line 3: .* also in line 1",
    ),
    "climbing": (replace("clean_test_key_list.txt", "images/../../x.jpg\n"), r"line 1: .* leads out"),
    "absolute": (replace("clean_test_key_list.txt", "/etc/passwd\n"), "line 1: .* leads out"),
    "absolute without images/": (replace("clean_test_key_list.txt", "images//etc/passwd\n"), "line 1: .* leads out"),
    "backslash": (replace("clean_test_key_list.txt", "images\\x.jpg\n"), "line 1: .* leads out"),
    "one image gone": (remove(NOISY[3]), r"1 of 14 listed files are missing: images/0/03/1003,2003\.jpg"),
    "all images gone": (
        lambda root: shutil.rmtree(root / "images"),
        "14 of 14 listed files are missing: .* and 9 more",
    ),
    "a folder for an image": (
        lambda root: ((root / NOISY[0]).unlink(), (root / NOISY[0]).mkdir()),
        "1 of 14 listed files are missing",
    ),
    "null byte": (
        lambda root: (
            replace("clean_test_key_list.txt", "im\0ages/x.jpg\n")(root),
            replace("clean_label_kv.txt", "im\0ages/x.jpg 1\n")(root),
        ),
        "1 of 1 listed files are missing",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_copies_are_refused_by_file_and_line(root: Path, what: str) -> None:
    change, told = BROKEN[what]
    change(root)
    with pytest.raises(DataError, match=told) as caught:
        clothing1m.load(root)
    assert str(root) in str(caught.value)


def test_unreadable_pictures_are_all_reported(root: Path) -> None:
    for key in NOISY[:2]:
        (root / key).write_bytes(b"no picture")
    files = clothing1m.load(root).train.inputs
    with pytest.raises(DataError, match=r"2 of 14 images cannot be read"):
        files.check()


def test_unknown_lists_and_no_overlap(root: Path) -> None:
    with pytest.raises(ValueError, match="split is 'train'"):
        clothing1m.load_labels(root, "train")
    (root / "noisy_label_kv.txt").write_text(KV)
    with pytest.raises(DataError, match="no image has both"):
        clothing1m.overlap(root)


@pytest.fixture
def real(real_data: Path) -> Path:
    if not (real_data / "clothing1M").is_dir():
        pytest.skip("no clothing1M below REWEIGH_DATA")
    return real_data


def test_real_clean_lists(real: Path) -> None:
    assert clothing1m.class_names(real) == tuple(NAMES)
    parts = [clothing1m.load_labels(real, split) for split in ("clean_train", "clean_val", "clean_test")]
    assert [len(part.keys) for part in parts] == [47_570, 14_313, 10_526]
    keys = {key for part in parts for key in part.keys}
    assert len(keys) == 72_409, "the three lists are disjoint"
    assert keys == set(clothing1m.read_kv(real, "clean"))
    assert np.bincount(parts[2].labels).tolist() == [
        845, 636, 527, 1171, 918, 824, 558, 297, 1017, 727, 523, 686, 946, 851,
    ]  # fmt: skip


def test_real_lists_without_their_images_are_refused(real: Path) -> None:
    if (real / "clothing1M" / "images").is_dir():
        pytest.skip("this copy has its images")
    with pytest.raises(DataError, match=r"47570 of 47570 listed files are missing|no such file"):
        clothing1m.load(real)
