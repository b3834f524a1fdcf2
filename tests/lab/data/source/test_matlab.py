"""The reader of MATLAB v5 files, against files that scipy writes; broken ones are refused, never fatal."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import DataError
from reweigh.lab.data.source.matlab import read_integers

scipy_io = pytest.importorskip("scipy.io", reason="the test writes its files with scipy (extra retrieval)")

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")


def mat(compressed: bool = False, **variables: object) -> bytes:
    buffer = io.BytesIO()
    scipy_io.savemat(buffer, variables, do_compression=compressed)
    return buffer.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (1, 7), (5, 1), (0, 4)])
def test_numeric_matrices_come_back(tmp_path: Path, dtype: str, shape: tuple[int, int], compressed: bool) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = tmp_path / "a.mat"
    path.write_bytes(mat(compressed, before=np.ones(2), wanted=array, after="text"))
    found = read_integers(path, "wanted")
    assert found.dtype == np.int64
    assert found.shape == shape
    assert (found == array).all()


def test_numbers_stored_narrower_than_their_class(tmp_path: Path) -> None:
    """MATLAB writes whole doubles as integers, which scipy's writer does not; so this one is by hand."""
    path = tmp_path / "a.mat"
    for order in "<>":
        numbers = struct.pack(order + "II4h", 3, 8, 1, -2, 3, 400)
        parts = struct.pack(order + "4I", 6, 8, 6, 0) + struct.pack(order + "II2i", 5, 8, 2, 2)
        name = struct.pack(order + "I", 1 | 1 << 16) + b"x\0\0\0"
        variable = parts + name + numbers
        mark = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
        header = b"MATLAB 5.0 MAT-file".ljust(124) + mark
        path.write_bytes(header + struct.pack(order + "II", 14, len(variable)) + variable)
        assert read_integers(path, "x").tolist() == [[1, 3], [-2, 400]]


@settings(max_examples=150)
@given(
    compressed=st.booleans(),
    edits=st.lists(st.tuples(st.integers(124, 300), st.integers(0, 255)), max_size=4),
    keep=st.integers(0, 400),
)
def test_changed_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, compressed: bool, edits: list[tuple[int, int]], keep: int
) -> None:
    raw = bytearray(mat(compressed, wanted=np.arange(12, dtype=np.int32).reshape(3, 4)))
    for place, value in edits:
        raw[place % len(raw)] = value
    path = tmp_path_factory.getbasetemp() / "changed.mat"
    path.write_bytes(raw[:keep])
    with contextlib.suppress(DataError):
        assert read_integers(path, "wanted").dtype == np.int64


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reweigh.lab.data.source.matlab.MAX_BYTES", 10_000)
    stream = zlib.compress(bytes(1_000_000))
    path = tmp_path / "bomb.mat"
    path.write_bytes(mat()[:128] + struct.pack("<II", 15, len(stream)) + stream)
    with pytest.raises(DataError, match=r"bomb\.mat: .* larger than 10000 bytes"):
        read_integers(path, "wanted")


def test_the_limit_holds_for_all_variables_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(mat(True, a=np.zeros((10, 10)), b=np.zeros((10, 10)), c=np.zeros((1, 1))))
    needed = len(mat(a=np.zeros((10, 10)), b=np.zeros((10, 10)), c=np.zeros((1, 1)))) - 128
    monkeypatch.setattr("reweigh.lab.data.source.matlab.MAX_BYTES", needed)
    assert read_integers(path, "b").shape == (10, 10)
    monkeypatch.setattr("reweigh.lab.data.source.matlab.MAX_BYTES", needed - 1)
    with pytest.raises(DataError, match=rf"a\.mat: .* larger than {needed - 1} bytes"):
        read_integers(path, "b")


def test_what_is_there_instead_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(mat(one=np.ones(2), two="text", three={"a": 1}, four=np.array([np.nan]), five=np.array([1j])))
    with pytest.raises(DataError, match="no variable wanted; it holds one, two, three, four, five"):
        read_integers(path, "wanted")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("words", "x is text"),
        ({"a": 1}, "x is a struct"),
        (np.array([1j]), "x is complex"),
        (np.array([[1, "a"]], dtype=object), "x is a cell array"),
        (np.array([0.5]), "x holds fractions"),
        (np.array([np.nan]), "x holds fractions"),
        (np.array([np.inf]), "x holds fractions"),
        (np.array([1e300]), "x holds fractions"),
        (np.array([2**64 - 1], np.uint64), "x holds 18446744073709551615"),
        (np.array([2**63], np.uint64), "x holds 9223372036854775808"),
    ],
)
def test_other_variables_are_refused(tmp_path: Path, value: object, told: str) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(mat(x=value))
    with pytest.raises(DataError, match=f"{told}; expected"):
        read_integers(path, "x")


def test_unsigned_numbers_that_fit_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(mat(x=np.array([2**63 - 1], np.uint64)))
    assert read_integers(path, "x").tolist() == [[2**63 - 1]]


@pytest.mark.parametrize("count", [33, 65, 1000])
def test_too_many_dimensions_are_refused(tmp_path: Path, count: int) -> None:
    shape = struct.pack(f"<II{count}i", 5, 4 * count, *[1] * count) + bytes(-4 * count % 8)
    variable = struct.pack("<4I", 6, 8, 6, 0) + shape + struct.pack("<I", 1 | 1 << 16) + b"x\0\0\0"
    variable += struct.pack("<I", 2 | 1 << 16) + b"\7\0\0\0"
    path = tmp_path / "a.mat"
    path.write_bytes(mat()[:128] + struct.pack("<II", 14, len(variable)) + variable)
    with pytest.raises(DataError, match=r"a\.mat: .* not of 2 to 32 dimensions"):
        read_integers(path, "x")


def test_a_signalling_nan_is_refused_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(mat(x=np.array([1.0])).replace(np.float64(1).tobytes(), b"\x01\0\0\0\0\0\xf0\x7f"))
    with pytest.raises(DataError, match="x holds fractions"):
        read_integers(path, "x")
