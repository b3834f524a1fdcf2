"""Existing labels: reading, measuring and error messages."""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from reweigh import noise
from reweigh.errors import DataError

LABELS = [3, 0, 1, 2, 2]


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


GOOD = {
    "lines.txt": "3\n0\n1\n2\n2\n",
    "no-end.txt": "3\n0\n1\n2\n2",
    "crlf.txt": "3\r\n0\r\n1\r\n2\r\n2\r\n",
    "bom.txt": "\ufeff3\n0\n1\n2\n2\n",
    "blank-end.txt": "3\n0\n1\n2\n2\n\n \n",
    "blank-end.csv": "label\n3\n0\n1\n2\n2\r\n\r\n",
    "plain.csv": "3\n0\n1\n2\n2\n",
    "header.csv": "label\n3\n0\n1\n2\n2\n",
    "int64.npy": npy(np.array(LABELS)),
    "uint8.npy": npy(np.array(LABELS, dtype=np.uint8)),
    "big-endian.npy": npy(np.array(LABELS, dtype=">i4")),
    "one.npz": npz(worse_label=np.array(LABELS)),
}


@pytest.mark.parametrize("name", GOOD)
def test_every_format_gives_the_same_labels(tmp_path: Path, name: str) -> None:
    labels = noise.read_labels(write(tmp_path, name, GOOD[name]))
    assert labels.dtype == np.int64
    assert labels.tolist() == LABELS


def test_keys_choose_an_array_or_a_column(tmp_path: Path) -> None:
    pack = write(tmp_path, "a.npz", npz(clean_label=np.zeros(5, np.int64), worse_label=np.array(LABELS)))
    table = write(tmp_path, "a.csv", 'id,given\n7,3\n8,0\n9,"1"\n10,2\n11,2\n')
    assert noise.read_labels(pack, key="worse_label").tolist() == LABELS
    assert noise.read_labels(table, key="given").tolist() == LABELS


def test_the_rate_is_measured_against_the_truth(tmp_path: Path) -> None:
    path = write(tmp_path, "worse.txt", GOOD["lines.txt"])
    result = noise.given(path, clean=[3, 0, 0, 2, 1])
    assert result.kind == "given(file='worse.txt')"
    assert result.measured == result.rate == 0.4
    assert result.counts[0].tolist() == [1, 1, 0, 0]
    assert result.seed is None


def test_a_truth_known_in_part_is_measured_in_part() -> None:
    result = noise.given(LABELS, clean=[-1, 0, 0, -1, -1])
    assert result.measured == 0.5
    assert result.counts.sum() == 2
    assert result.flipped.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8])
def test_the_truth_may_be_any_integers(dtype: type[np.integer]) -> None:
    result = noise.given(np.array(LABELS, dtype), clean=np.array([3, 0, 0, 2, 1], dtype))
    assert result.measured == 0.4
    assert result.clean.dtype == np.int64


def test_without_truth_the_rate_is_nan() -> None:
    result = noise.given(LABELS)
    assert math.isnan(result.measured)
    assert math.isnan(result.rate)
    assert result.counts.sum() == 0
    assert not result.flipped.any()
    assert (result.clean == -1).all()


def test_classes_come_from_both_sides() -> None:
    assert noise.given([0, 1], clean=[4, 0]).num_classes == 5
    assert noise.given([0, 4], clean=[1, 0]).num_classes == 5
    assert noise.given([0, 1], num_classes=7).num_classes == 7
    with pytest.raises(ValueError, match=r"clean\[0\] is 4"):
        noise.given([0, 1], clean=[4, 0], num_classes=3)


def test_lengths_must_agree(tmp_path: Path) -> None:
    path = write(tmp_path, "short.txt", "1\n0\n")
    with pytest.raises(DataError, match=r"short.txt: 2 labels; expected 3"):
        noise.given(path, clean=[0, 1, 1])
    with pytest.raises(ValueError, match="source: 2 labels; expected 3"):
        noise.given([1, 0], clean=[0, 1, 1])


class Caller:
    """A pickle that would leave a mark if it were loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_pickles_are_never_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    array = np.array([Caller(mark)], dtype=object)
    for name, content in {
        "object.npy": npy(array, allow_pickle=True),
        "raw.npy": pickle.dumps(Caller(mark)),
        "object.npz": npz_member(npy(array, allow_pickle=True)),
    }.items():
        with pytest.raises(DataError, match=name):
            noise.read_labels(write(tmp_path, name, content))
    assert not mark.exists()


def npz_member(raw: bytes, name: str = "labels.npy") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, raw)
    return buffer.getvalue()


def deflated() -> bytes:
    """A compressed .npz with a few bytes of its stream overwritten."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a=np.arange(1000))
    raw = bytearray(buffer.getvalue())
    raw[60:90] = b"\xff" * 30
    return bytes(raw)


BROKEN = {
    "empty.txt": ("", "no labels"),
    "word.txt": ("1\ncat\n0\n", "line 2: 'cat'"),
    "gap.txt": ("1\n\n0\n", "line 2"),
    "float.txt": ("1\n0.5\n", "line 2: '0.5'"),
    "two.txt": ("1\n0 1\n", "line 2: '0 1'"),
    "negative.txt": ("1\n-1\n", "line 2: label -1"),
    "large.txt": ("1\n4\n", "line 2: label 4; expected 0 to 3"),
    "huge.txt": ("1\n" + "9" * 400 + "\n", "line 2"),
    "underscore.txt": ("1\n1_0\n", "line 2"),
    "arabic.txt": ("1\n\u0661\n", "line 2"),
    "hex.txt": ("1\n0x1\n", "line 2"),
    "latin.txt": (b"1\n\xff\n", "UTF-8|utf-8"),
    "utf16.txt": ("1\n2\n".encode("utf-16"), "UTF-8|utf-8"),
    "null.txt": ("1\n\x00\n", "line 2"),
    "blank.txt": ("\n\n", "no labels"),
    "float-first.csv": ("1.0\n2\n", "line 1: '1.0'"),
    "sign-first.csv": ("+3\n2\n", r"line 1: '\+3'"),
    "gap.csv": ("label\n1\n\n0\n", "line 3"),
    "empty.csv": ("", "no labels"),
    "header-only.csv": ("label\n", "no labels"),
    "word.csv": ("label\n1\nx\n", "line 3: 'x'"),
    "columns.csv": ("a,b\n1,2\n", "line 1: 2 columns"),
    "ragged.csv": ("label\n1\n1,2\n", "line 3: 2 fields"),
    "quote.csv": ('label\n"1\n', "line"),
    "large.csv": ("label\n1\n4\n", "line 3: label 4"),
    "float.npy": (npy(np.array([1.0, 0.0])), "float64"),
    "bool.npy": (npy(np.array([True])), "bool"),
    "text.npy": (npy(np.array(["1"])), "<U1"),
    "matrix.npy": (npy(np.zeros((2, 2), np.int64)), r"shape \(2, 2\)"),
    "scalar.npy": (npy(np.array(1)), r"shape \(\)"),
    "none.npy": (npy(np.zeros(0, np.int64)), r"shape \(0,\)"),
    "negative.npy": (npy(np.array([0, -1])), "record 1: label -1"),
    "large.npy": (npy(np.array([0, 1, 4])), "record 2: label 4"),
    "cut.npy": (npy(np.arange(4))[:-3], "not a plain numpy file"),
    "head.npy": (npy(np.arange(4))[:20], "not a plain numpy file"),
    "empty.npy": (b"", "not a plain numpy file"),
    "text-inside.npy": (b"1\n2\n", "not a plain numpy file"),
    "two.npz": (npz(a=np.arange(2), b=np.arange(2)), "a, b; choose one"),
    "nothing.npz": (npz(), "no arrays"),
    "cut.npz": (npz(a=np.arange(4))[:-30], "not a plain numpy file"),
    "float.npz": (npz(a=np.zeros(3)), "float64"),
    "junk.npz": (b"PK\x03\x04" + b"\x00" * 60, "not a plain numpy file"),
    "not-npy.npz": (npz_member(b"1\n2\n", "labels.txt"), "labels.txt|expected a vector|plain"),
    "bomb.npz": (npz_member(npy(np.zeros(2, np.int64)).replace(b"(2,)", b"(9" + b"9" * 11 + b",)")), "plain"),
    "claims.npy": (npy(np.zeros(20, np.int64)).replace(b"(20,), }     ", b"(99999999,),}"), "plain"),
    "deflated.npz": (deflated(), "plain"),
    "labels.pt": (b"PK", "suffix '.pt'"),
    "labels": ("1\n", "suffix ''"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_by_name_and_place(tmp_path: Path, name: str) -> None:
    content, told = BROKEN[name]
    path = write(tmp_path, name, content)
    with pytest.raises(DataError, match=told) as caught:
        noise.read_labels(path, num_classes=4)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["a.npz", "a.csv"])
def test_a_missing_key_is_named(tmp_path: Path, name: str) -> None:
    content = npz(clean=np.arange(2)) if name.endswith("npz") else "clean\n1\n0\n"
    with pytest.raises(DataError, match=r"'worse'.* has clean"):
        noise.read_labels(write(tmp_path, name, content), key="worse")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    for name in ("absent.txt", "folder.npy"):
        with pytest.raises(DataError, match=f"{name}: cannot be read"):
            noise.read_labels(tmp_path / name)


def test_a_huge_label_does_not_exhaust_the_memory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="label 4000000000"):
        noise.read_labels(write(tmp_path, "a.txt", "0\n4000000000\n"))
