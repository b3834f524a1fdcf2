"""IMDB: a generated copy in the official layout, the real reviews, svmlight lines, and broken files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab.data import imdb

REVIEWS = {
    "train/pos/0_9.txt": "A GREAT film.",
    "train/pos/2_7.txt": "Third, by name!",
    "train/pos/10_10.txt": "Second by name",
    "train/neg/0_1.txt": 'He said "no".<br /><br />Don\'t.',
    "train/neg/1_4.txt": "Bad (very; very) bad: why?",
    "train/neg/11_2.txt": "Caf\u00e9 \u00c9T\u00c9",
    "train/unsup/0_0.txt": "who knows",
    "train/unsup/1_0.txt": "nobody",
    "train/unsup/10_0.txt": "a third",
    "test/pos/0_8.txt": "p0",
    "test/pos/1_8.txt": "p1",
    "test/pos/12_8.txt": "p12",
    "test/neg/0_3.txt": "n0",
    "test/neg/1_3.txt": "n1",
    "test/neg/12_3.txt": "n12",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "aclImdb"
    for name, text in REVIEWS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (folder / "imdb.vocab").write_text("the\nand\n")
    (folder / "train" / "labeledBow.feat").write_text("9 0:9 1:1\n7 0:3\n")
    return folder


def test_positive_first_and_by_the_bytes_of_the_names(root: Path) -> None:
    data = imdb.load(root)
    assert data.train.inputs == (
        "A GREAT film.",
        "Second by name",
        "Third, by name!",
        'He said "no".<br /><br />Don\'t.',
        "Caf\u00e9 \u00c9T\u00c9",
        "Bad (very; very) bad: why?",
    )
    assert data.train.labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert data.test.inputs == ("p0", "p12", "p1", "n0", "n12", "n1")
    assert data.class_names == ("neg", "pos")
    assert data.kind == "text"
    assert imdb.load_unlabelled(root) == ("who knows", "a third", "nobody")
    assert imdb.load(root.parent).hash == data.hash


NORMALISED = {
    "A GREAT film.": "a great film . ",
    "Third, by name!": "third ,  by name ! ",
    'He said "no".<br /><br />Don\'t.': 'he said  " no "  .   don\'t . ',
    "Bad (very; very) bad: why?": "bad  ( very ;  very )  bad :  why ? ",
    "Caf\u00e9 \u00c9T\u00c9": "caf\u00e9 \u00e9t\u00e9",
    "1.5/10 <BR /> it's -- o'k": "1 . 5/10   it's -- o'k",
    "<br/>x<br />": "<br/>x ",
    "": "",
}
"""Written out by hand."""


@pytest.mark.parametrize("text", NORMALISED)
def test_normalised_lines(text: str) -> None:
    assert imdb.normalise(text) == NORMALISED[text]


def write(name: str, content: bytes | str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_bytes(content.encode() if isinstance(content, str) else content)


def clear(name: str) -> Callable[[Path], object]:
    return lambda root: [path.unlink() for path in (root / name).iterdir()]


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "latin-1": (write("train/pos/0_9.txt", b"caf\xe9"), r"pos/0_9\.txt: line 1: byte 0xe9 at offset 3"),
    "utf-16": (write("test/neg/0_3.txt", "word".encode("utf-16")), r"test/neg/0_3\.txt: line 1: byte"),
    "cut in a character": (write("train/neg/0_1.txt", "\u00e9".encode()[:1]), r"neg/0_1\.txt"),
    "surrogate": (write("train/neg/0_1.txt", b"ok\n\xed\xa0\x80"), r"neg/0_1\.txt: line 2"),
    "empty review": (write("train/pos/0_9.txt", ""), r"pos/0_9\.txt: empty"),
    "blank review": (write("train/pos/0_9.txt", " \n"), r"pos/0_9\.txt: empty"),
    "rating of the other side": (write("train/pos/3_4.txt", "x"), r"pos/3_4\.txt: rating 4; expected 7 to 10"),
    "neutral rating": (write("train/neg/3_5.txt", "x"), r"neg/3_5\.txt: rating 5; expected 1 to 4"),
    "rating in unsup": (write("train/unsup/3_1.txt", "x"), r"unsup/3_1\.txt: rating 1; expected 0 to 0"),
    "rating 11": (write("test/pos/3_11.txt", "x"), r"pos/3_11\.txt: rating 11"),
    "huge rating": (write(f"test/pos/3_{'1' * 100}.txt", "x"), "rating 1111"),
    "no rating": (write("test/pos/3.txt", "x"), r"pos/3\.txt: expected a name"),
    "other digits": (write("test/pos/\u0663_8.txt", "x"), "expected a name"),
    "another kind of file": (write("test/pos/urls.csv", "x"), r"pos/urls\.csv: expected a name"),
    "id twice": (write("test/pos/1_9.txt", "x"), r"pos/1_9\.txt: the number 1 is also used by 1_8\.txt"),
    "a folder": (lambda root: (root / "test/pos/5_8.txt").mkdir(), r"pos/5_8\.txt: cannot be read"),
    "no reviews": (clear("test/pos"), "test/pos: no reviews"),
    "no folder": (lambda root: (root / "test/pos").rename(root / "gone"), "test/pos: cannot be read"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_copies_are_refused_by_file(root: Path, what: str) -> None:
    change, told = BROKEN[what]
    change(root)
    with pytest.raises(DataError, match=told) as caught:
        (imdb.load(root), imdb.load_unlabelled(root))
    assert str(root) in str(caught.value)


def test_hidden_files_are_nobodys_review(root: Path) -> None:
    before = imdb.load(root).hash
    (root / "train" / "pos" / ".DS_Store").write_bytes(b"\xff")
    assert imdb.load(root).hash == before


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no train/, nor aclImdb/train/"):
        imdb.load(tmp_path)


def test_word_counts(root: Path) -> None:
    counts = imdb.read_svmlight(root / "train" / "labeledBow.feat")
    assert counts.labels.tolist() == [9, 7]
    assert counts.dense().tolist() == [[9, 1], [3, 0]]
    assert counts.dense(4).shape == (2, 4)
    assert counts.dense().dtype == np.float32


def test_svmlight_lines(tmp_path: Path) -> None:
    path = tmp_path / "vectors.svm"
    path.write_text("1 1:0.1 2:-2.5e-1 100:3 # a review\n-1 2:7\n+1\r\n")
    rows = imdb.read_svmlight(path)
    assert rows.labels.tolist() == [1, -1, 1]
    assert len(rows) == 3
    assert rows.bounds.tolist() == [0, 3, 4, 4]
    assert rows.columns.tolist() == [1, 2, 100, 2]
    dense = rows.dense(first=1)
    assert dense.shape == (3, 100)
    assert dense[0, [0, 1, 99]].tolist() == pytest.approx([0.1, -0.25, 3])
    assert dense[1].sum() == 7
    for wrong in ({"width": 50}, {"first": 2}):
        with pytest.raises(ValueError, match="columns reach from 1 to 100"):
            rows.dense(**wrong)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "line 2: label: ''"),
        ("# only", "line 2: label"),
        ("pos 1:1", "line 2: label: 'pos'"),
        ("nan 1:1", "line 2: label"),
        ("1 1", "line 2: value of column 1: ''"),
        ("1 1:", "line 2: value of column 1"),
        ("1 :1", "line 2: ':1'"),
        ("1 a:1", "line 2: 'a:1'"),
        ("1 -1:1", "line 2: '-1:1'"),
        ("1 1:x", "line 2: value of column 1: 'x'"),
        ("1 1:inf", "line 2: value of column 1: 'inf'"),
        ("1 1:1:1", "line 2: value of column 1"),
        ("1 2:1 1:1", "line 2: '1:1'.* columns increasing"),
        ("1 2:1 2:1", "line 2: '2:1'.* columns increasing"),
        ("1 1234567890:1", "line 2: '1234567890:1'"),
        ("1 qid:3 1:1", "line 2: 'qid:3'"),
    ],
)
def test_broken_svmlight_lines_are_refused_by_line(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "rows.svm"
    path.write_text(f"1 1:1\n{line}\n1 1:1\n")
    with pytest.raises(DataError, match=told) as caught:
        imdb.read_svmlight(path)
    assert str(path) in str(caught.value)


def test_empty_svmlight_files(tmp_path: Path) -> None:
    (tmp_path / "rows.svm").write_text("\n\n")
    with pytest.raises(DataError, match=r"rows\.svm: empty"):
        imdb.read_svmlight(tmp_path / "rows.svm")


@pytest.fixture
def real(real_data: Path) -> Path:
    if not (real_data / "aclImdb").is_dir():
        pytest.skip("no aclImdb below REWEIGH_DATA")
    return real_data


def test_the_real_reviews(real: Path) -> None:
    data = imdb.load(real)
    assert (len(data.train), len(data.test)) == (25_000, 25_000)
    assert np.bincount(data.train.labels).tolist() == np.bincount(data.test.labels).tolist() == [12_500, 12_500]
    assert data.train.labels[:12_500].all()
    folder = real / "aclImdb" / "train"
    assert data.train.inputs[1] == (folder / "pos" / "10000_8.txt").read_text("utf-8")
    assert data.train.inputs[12_500].encode() == next(folder.glob("neg/0_*.txt")).read_bytes()
    assert any("<br />" in text for text in data.train.inputs[:100])
    assert not any("<br />" in imdb.normalise(text) for text in data.train.inputs[:100])


@pytest.mark.slow
def test_the_real_unlabelled_reviews(real: Path) -> None:
    assert len(imdb.load_unlabelled(real)) == 50_000
