"""`.npz` and `.pt` files that hold pickles, lie about their arrays or are broken."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from reweigh.lab.data import cifar_n, npz

LITTLE = 100_000  # bytes that a bomb claims
X, Y = np.zeros((10, 3), np.float32), np.arange(10) % 2
CLEAN = np.arange(6, dtype=np.int64)


def saved(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def member(shape: object, descr: str = "<f4", raw: bytes = b"", header: bytes | None = None) -> bytes:
    """An `.npy` whose header says what it likes."""
    text = header or f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + raw


def packed(method: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as pack:
        for name, raw in members.items():
            pack.writestr(f"{name}.npy", raw)
    return buffer.getvalue()


def claiming(raw: bytes, size: int) -> bytes:
    """The archive with another unpacked size in its directory for the first member."""
    at = raw.index(b"PK\x01\x02") + 24
    return raw[:at] + struct.pack("<I", size) + raw[at + 4 :]


def bomb(method: int) -> bytes:
    """An array that claims little, in the archive and in its own header, and goes on for 20 MB."""
    start = member((LITTLE // 4,))
    return claiming(packed(method, x=start + bytes(2 * 10**7)), len(start) + LITTLE)


def twice() -> bytes:
    return saved(x=X, y=Y, z=Y).replace(b"z.npy", b"y.npy")


GOOD = saved(x=X, y=Y)
OBJECTS = np.array([{}, None] * 5, dtype=object)

ARRAYS = {
    **{f"cut at {n}": GOOD[:n] for n in (0, 10, 100, 300, len(GOOD) - 30)},
    "empty archive": packed(),
    "not an archive": b"x,y\n1,2\n",
    "pickled labels": saved(x=X, y=OBJECTS),
    "pickled inputs": saved(x=OBJECTS, y=Y),
    "pickle beside good arrays": saved(x=X, y=Y, extra=OBJECTS),
    "a raw pickle for an array": packed(x=pickle.dumps([1]), y=pickle.dumps([1])),
    "array twice": twice(),
    "unknown names": saved(a=X, b=Y),
    "no labels": saved(x=X),
    "no test labels": saved(x_train=X, y_train=Y, x_test=X),
    "no test inputs": saved(x_train=X, y_train=Y, y_test=Y),
    "fewer labels": saved(x=X, y=Y[:9]),
    "labels of floats": saved(x=X, y=Y.astype(float)),
    "labels one-hot": saved(x=X, y=np.eye(2, dtype=int)[Y]),
    "labels of strings": saved(x=X, y=Y.astype(str)),
    "labels from one": saved(x=X, y=Y + 1),
    "labels with a gap": saved(x=X, y=Y * 2),
    "huge label": saved(x=X, y=Y * 2**62),
    "negative label": saved(x=X, y=Y - 1),
    "one class": saved(x=X, y=Y * 0),
    "test label unknown": saved(x_train=X, y_train=Y, x_test=X, y_test=Y + 1),
    "NaN": saved(x=X + np.nan, y=Y),
    "infinity": saved(x=X + np.inf, y=Y),
    "too large for float32": saved(x=X.astype(float) + 1e300, y=Y),
    "complex inputs": saved(x=X + 1j, y=Y),
    "images of floats": saved(x=np.zeros((10, 4, 4, 3)), y=Y),
    "inputs of one dimension": saved(x=np.zeros(10, np.float32), y=Y),
    "inputs of five dimensions": saved(x=np.zeros((10, 1, 1, 1, 1), np.uint8), y=Y),
    "parts of different width": saved(x_train=X, y_train=Y, x_test=X[:, :2], y_test=Y),
    "nothing in it": saved(x=X[:0], y=Y[:0]),
    "two examples": saved(x=X[:2], y=Y[:2]),
    "names of numbers": saved(x=X, y=Y, class_names=np.arange(2)),
    "too few names": saved(x=X, y=Y, class_names=np.array(["a"])),
    "names alike": saved(x=X, y=Y, class_names=np.array(["a", "a"])),
    "header claims a terabyte": packed(x=member((2**38,)), y=member((10,))),
    "header claims less": packed(x=member((1,), raw=bytes(400)), y=member((10,))),
    "negative shape": packed(x=member((-1, -400), raw=bytes(1600)), y=member((10,))),
    "shape is code": packed(x=member("__import__('os').getcwd()"), y=member((10,))),
    "header is code": packed(x=member((), header=b"__import__('os').mkdir('executed')\n"), y=member((10,))),
    "unknown type": packed(x=member((1,), descr="zz"), y=member((10,))),
    "unknown version": packed(x=b"\x93NUMPY\x09\x00" + bytes(20), y=member((10,))),
    "deflated bomb over the limit": packed(zipfile.ZIP_DEFLATED, x=member((10**7,), raw=bytes(4 * 10**7)), y=b""),
    "deflated bomb that claims little": bomb(zipfile.ZIP_DEFLATED),
    "bzip2 bomb that claims little": bomb(zipfile.ZIP_BZIP2),
    "lzma": packed(zipfile.ZIP_LZMA, x=member((10, 3), raw=bytes(120)), y=member((10,), "<i8", Y.tobytes())),
    "wrong check sum": saved(x=X + 1, y=Y).replace(b"\x00\x00\x80\x3f", b"\x00\x00\x80\x40", 1),
}


def pt(name: str = "archive/data.pkl", method: int = zipfile.ZIP_STORED, **content: object) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as pack:
        pack.writestr(name, pickle.dumps(content, protocol=2))
    return buffer.getvalue()


class Attack:
    def __reduce__(self):
        return open, ("executed", "w")


HUMAN = {
    **{f"cut at {n}": pt(clean_label=CLEAN, worse_label=CLEAN)[:n] for n in (0, 20, 200)},
    "not an archive": pickle.dumps({"clean_label": CLEAN, "worse_label": CLEAN}),
    "another member": pt("archive/other.pkl", clean_label=CLEAN, worse_label=CLEAN),
    "tries to call": pt(clean_label=CLEAN, worse_label=Attack()),
    "no clean labels": pt(worse_label=CLEAN),
    "other clean labels": pt(clean_label=CLEAN + 1, worse_label=CLEAN),
    "shorter": pt(clean_label=CLEAN[:5], worse_label=CLEAN[:5]),
    "shorter noisy labels": pt(clean_label=CLEAN, worse_label=CLEAN[:5]),
    "label out of range": pt(clean_label=CLEAN, worse_label=CLEAN + 1),
    "negative label": pt(clean_label=CLEAN, worse_label=CLEAN - 1),
    "labels of floats": pt(clean_label=CLEAN, worse_label=CLEAN * 1.0),
    "labels of strings": pt(clean_label=CLEAN, worse_label=["a"] * 6),
    "deflated bomb": claiming(pt(method=zipfile.ZIP_DEFLATED, clean_label=bytes(2 * 10**7)), LITTLE),
    "bzip2 bomb": claiming(pt(method=zipfile.ZIP_BZIP2, clean_label=bytes(2 * 10**7)), LITTLE),
    "labels in a square": pt(clean_label=CLEAN, worse_label=CLEAN.reshape(2, 3)),
}


def test_there_are_many() -> None:
    assert len(ARRAYS) + len(HUMAN) >= 60


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_are_refused(case, tmp_path, refused) -> None:
    path = tmp_path / "own.npz"
    path.write_bytes(ARRAYS[case])
    refused(lambda: npz.load(path, max_bytes=10**7), "own.npz")


@pytest.mark.parametrize("case", HUMAN)
def test_human_labels_are_refused(case, tmp_path, refused) -> None:
    path = tmp_path / "CIFAR-10_human.pt"
    path.write_bytes(HUMAN[case])
    refused(lambda: cifar_n.load(path, "cifar10", "worse_label", CLEAN), "CIFAR-10_human.pt")


@pytest.mark.parametrize("case", [case for case in (*ARRAYS, *HUMAN) if "bomb" in case])
def test_bombs_are_not_unpacked(case, tmp_path, peak) -> None:
    path = tmp_path / ("own.npz" if case in ARRAYS else "CIFAR-10_human.pt")
    path.write_bytes({**ARRAYS, **HUMAN}[case])
    assert peak(lambda: npz.read(path, 10**7) if case in ARRAYS else cifar_n.read(path)) < 4 * 10**6


def test_the_same_labels_under_many_names(tmp_path, refused, monkeypatch) -> None:
    monkeypatch.setattr(cifar_n, "MAX_LABELS", 100)
    for shared in (CLEAN, CLEAN.tolist()):
        path = tmp_path / "CIFAR-10_human.pt"
        path.write_bytes(pt(**{f"label{k}": shared for k in range(16)}))
        assert len(cifar_n.read(path)) == 16
        path.write_bytes(pt(**{f"label{k}": shared for k in range(17)}))
        assert "more than 100 labels" in refused(lambda path=path: cifar_n.read(path), "CIFAR-10_human.pt")
