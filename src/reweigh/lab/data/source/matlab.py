"""Read matrices of integers from MATLAB v5 files.

This does not use scipy, whose reader crashes the process on some damaged files. Plain and compressed variables of any
numeric class are read, in either byte order.

    128 bytes of header, the last four the version and the byte order; then elements of (type, size, content):
    type 15 is a zlib stream of one element; type 14 a variable, of four elements: flags, dimensions, name, numbers
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.source.text import read_bytes

HEADER = 128
MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Element type -> storage of its numbers; may differ from the class, as MATLAB stores integral doubles as integers."""
NUMERIC = range(6, 16)
COMPLEX = 0x800
OTHERS = {0: "complex", 1: "a cell array", 2: "a struct", 3: "an object", 4: "text", 5: "a sparse matrix"}
MAX_BYTES = 2**28
MAX_DIMENSIONS = 32  # of numpy before version 2


def read_integers(path: Path, variable: str) -> NDArray[np.int64]:
    """Return the matrix `variable` as int64; its numbers must be integers."""
    raw = read_bytes(path, MAX_BYTES)
    names = []
    try:
        for order, matrix in _matrices(raw):
            name, array_class, shape, numbers = _parts(order, matrix)
            names.append(name)
            if name != variable:
                continue
            if array_class not in NUMERIC:
                what = OTHERS.get(array_class, f"of class {array_class}")
                raise DataError(f"{path}: {variable} is {what}; expected a matrix of integers")
            values = _numbers(order, numbers, shape)
            if values.dtype.kind == "f" and not _are_integers(values):
                raise DataError(f"{path}: {variable} holds fractions; expected integers")
            if values.dtype.kind == "u" and values.max(initial=0) >= 2**63:
                raise DataError(f"{path}: {variable} holds {values.max()}; expected integers below 2^63")
            return values.astype(np.int64)
    except (_BrokenError, zlib.error) as error:
        raise DataError(f"{path}: not a readable MATLAB v5 file: {error}") from error
    raise DataError(f"{path}: no variable {variable}; it holds {', '.join(names) or 'nothing'}")


class _BrokenError(Exception):
    """The bytes are malformed; the caller adds the name of the file."""


class _Element(NamedTuple):
    kind: int
    body: bytes
    end: int


def _matrices(raw: bytes) -> list[tuple[str, bytes]]:
    """Return (byte order, content) of every variable in the file."""
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(raw[HEADER - 4 : HEADER])
    if order is None:
        raise _BrokenError("it does not start with the header of version 5")
    variables, at, left = [], HEADER, MAX_BYTES
    while at < len(raw):
        element = _element(order, raw, at)
        at = element.end
        if element.kind == COMPRESSED:
            stream = zlib.decompressobj()
            content = stream.decompress(element.body, left + 1)
            left -= len(content)
            if not stream.eof or left < 0:
                raise _BrokenError(f"a variable is truncated, or all are larger than {MAX_BYTES} bytes together")
            element = _element(order, content, 0)
        if element.kind == MATRIX:
            variables.append((order, element.body))
    return variables


def _element(order: str, data: bytes, at: int) -> _Element:
    """Return the element at an offset; up to four bytes may be inside the tag, whose upper half is then the size."""
    if at + 8 > len(data):
        raise _BrokenError(f"an element is truncated at byte {at}")
    kind, size = struct.unpack_from(order + "II", data, at)
    start = at + 8
    if kind >> 16:
        kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
        if size > 4:
            raise _BrokenError(f"a small element of {size} bytes at byte {at}")
        return _Element(kind, data[start : start + size], at + 8)
    if start + size > len(data):
        raise _BrokenError(f"an element of {size} bytes at byte {at} ends after the file")
    padding = 0 if kind == COMPRESSED else -size % 8
    return _Element(kind, data[start : start + size], start + size + padding)


def _parts(order: str, matrix: bytes) -> tuple[str, int, tuple[int, ...], _Element]:
    """Return name, class, shape and numbers of a variable."""
    flags = _element(order, matrix, 0)
    dimensions = _element(order, matrix, flags.end)
    name = _element(order, matrix, dimensions.end)
    count, rest = divmod(len(dimensions.body), 4)
    if len(flags.body) != 8 or rest or not 2 <= count <= MAX_DIMENSIONS:
        raise _BrokenError(f"a variable without flags, or not of 2 to {MAX_DIMENSIONS} dimensions")
    shape = struct.unpack(f"{order}{count}i", dimensions.body)
    word = struct.unpack(order + "II", flags.body)[0]
    array_class = 0 if word & COMPLEX else word & 0xFF
    numbers = _element(order, matrix, name.end) if array_class in NUMERIC else name
    return name.body.decode("latin-1"), array_class, shape, numbers


def _are_integers(values: NDArray[np.generic]) -> bool:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return bool(((abs(values) <= 2**53) & (values == np.rint(values))).all())


def _numbers(order: str, element: _Element, shape: tuple[int, ...]) -> NDArray[np.generic]:
    if element.kind not in STORED:
        raise _BrokenError(f"numbers stored as type {element.kind}")
    dtype = np.dtype(order + STORED[element.kind])
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != len(element.body):
        raise _BrokenError(f"{len(element.body)} bytes of {dtype} for a matrix of {shape}")
    return np.frombuffer(element.body, dtype).reshape(shape, order="F")
