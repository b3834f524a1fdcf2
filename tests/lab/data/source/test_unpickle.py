from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from reweigh.errors import DataError
from reweigh.lab.data.source import unpickle

arrays = stn.arrays(
    st.sampled_from(["u1", "<i8", ">i4", "<f4", "<f8", "?"]), stn.array_shapes(min_dims=0, max_dims=3, min_side=0)
)


@given(arrays, st.integers(0, 5))
def test_arrays_of_every_protocol_come_back(array, protocol) -> None:
    found = unpickle.loads(pickle.dumps({"a": array, "n": 3}, protocol), "x")
    assert found["n"] == 3
    assert found["a"].dtype == array.dtype
    assert found["a"].shape == array.shape
    assert found["a"].tobytes() == array.tobytes()


@pytest.mark.parametrize("protocol", range(6))
def test_fortran_order_scalars_and_shared_objects(protocol) -> None:
    shared = np.arange(6, dtype=np.int64)
    content = {
        "f": np.asfortranarray(shared.reshape(2, 3)),
        "s": shared,
        "t": shared,
        "one": np.int64(7),
        "half": np.float32(0.5),
        "text": "é",
        "bytes": b"\xff\x00",
        "list": [1, "a", None],
    }
    found = unpickle.loads(pickle.dumps(content, protocol), "x")
    assert (found["f"] == content["f"]).all()
    assert (found["t"] == shared).all()
    assert (found["one"], found["half"]) == (7, 0.5)
    assert {key: found[key] for key in ("text", "bytes", "list")} == {
        key: content[key] for key in ("text", "bytes", "list")
    }


def test_python_2_byte_strings(py2_pickle) -> None:
    content = {b"labels": [3, 1], b"data": np.arange(12, dtype=np.uint8).reshape(2, 6), b"names": [b"a", b"b"]}
    found = unpickle.loads(py2_pickle(content), "x")
    assert found["labels"] == [3, 1]
    assert (found["data"] == content[b"data"]).all()
    assert found["names"] == [b"a", b"b"]


def test_files_have_a_size_limit(tmp_path) -> None:
    path = tmp_path / "big"
    path.write_bytes(pickle.dumps({"a": b"x" * 1000}))
    assert unpickle.load(path)["a"] == b"x" * 1000
    with pytest.raises(DataError, match="more than the limit of 100"):
        unpickle.load(path, max_bytes=100)


def outcome(raw: bytes) -> str:
    try:
        unpickle.loads(raw, "noise")
    except DataError as error:
        return f"refused: {error}"
    return "read"


@given(st.binary(max_size=200))
def test_noise_never_raises_anything_else(raw) -> None:
    assert outcome(raw).startswith(("read", "refused: noise: "))


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_one_changed_byte_never_raises_anything_else(position, value) -> None:
    raw = bytearray(pickle.dumps({"labels": [1, 2], "data": np.arange(9, dtype=np.int64)}, 2))
    raw[position % len(raw)] = value
    assert outcome(bytes(raw)).startswith(("read", "refused: noise: "))


class Sharing:
    """Pickled as an array of protocol 5 over bytes that are somebody else's too."""

    def __init__(self, shared: bytearray) -> None:
        self.shared = shared

    def __reduce__(self):
        function, (_, *rest) = np.zeros((1000, 1000), np.uint8).__reduce_ex__(5)
        return function, (self.shared, *rest)


def test_arrays_share_the_bytes_that_they_name(peak) -> None:
    """A pickle can name the same megabyte in every one of a hundred arrays."""
    shared = bytearray(10**6)
    raw = pickle.dumps({"shared": shared, **{str(k): Sharing(shared) for k in range(100)}}, 5)
    assert len(raw) < 2 * 10**6
    found = unpickle.loads(raw, "x")
    assert all(found[str(k)].shape == (1000, 1000) and not found[str(k)].flags.writeable for k in range(100))
    assert peak(lambda: unpickle.loads(raw, "x")) < 10**7
