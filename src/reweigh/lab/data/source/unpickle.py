"""Read pickled dictionaries of numpy arrays without running any code of the file.

A pickle is a program. This reader only builds dictionaries, lists, numbers, strings and plain numeric arrays: the few
numpy names that such files need are bound to stand-ins, so that not even numpy's constructors receive the file's
arguments, and every other name raises DataError.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.source.text import read_bytes

MAX_BYTES = 2**30

# opcodes that load objects without `find_class`; no supported file needs them
_FORBIDDEN = {"EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER"}


def load(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, object]:
    """Return the dictionary pickled in `path`; see `loads`."""
    return loads(read_bytes(path, max_bytes), str(path))


def loads(raw: bytes, where: str) -> dict[str, object]:
    """Return the dictionary pickled in `raw`, with str keys and read-only numpy arrays.

    Files of Python 2 (byte keys, byte strings) and Python 3 (protocols 0 to 5, in band) are supported. Arrays may only
    be values of the dictionary itself, not nested deeper.

    Args:
        raw: the pickle.
        where: the file's name, for messages.

    >>> loads(pickle.dumps({"labels": [3, 1], "data": np.arange(2, dtype=np.uint8)}), "batch")
    {'labels': [3, 1], 'data': array([0, 1], dtype=uint8)}
    >>> loads(pickle.dumps(print), "batch")
    Traceback (most recent call last):
        ...
    reweigh.errors.DataError: batch: the pickle uses builtins.print, which is not allowed (nothing was run)
    """
    try:
        _scan(raw, where)
        content = _Reader(raw, where).load()
        if not isinstance(content, dict):
            raise DataError(f"{where}: expected a pickled dictionary, not {type(content).__name__}")
        return _named(content, where)
    except DataError:
        raise
    except Exception as error:  # a hostile pickle can raise nearly anything
        reason = str(error) or type(error).__name__
        raise DataError(f"{where}: not a readable pickle, or truncated: {reason:.200}") from error


def _scan(raw: bytes, where: str) -> None:
    """Raise DataError for forbidden opcodes, lengths beyond the file, and memo numbers that would reserve memory."""
    for count, (opcode, argument, position) in enumerate(pickletools.genops(raw)):
        if opcode.name in _FORBIDDEN:
            raise DataError(f"{where}: pickle opcode {opcode.name} at byte {position} is not allowed (nothing was run)")
        if opcode.name.endswith("PUT") and not 0 <= int(argument or 0) <= count:
            raise DataError(f"{where}: pickle memo number {argument} at byte {position} is out of range")


def _named(content: dict[Any, object], where: str) -> dict[str, object]:
    named: dict[str, object] = {}
    for key, value in content.items():
        name = _text(key)
        if name in named:
            raise DataError(f"{where}: key {name!r} occurs twice")
        named[name] = value.numpy() if isinstance(value, _Array) else value
    return named


class _Reader(pickle.Unpickler):
    """An unpickler whose only names are stand-ins, created for each file so that files cannot affect each other."""

    def __init__(self, raw: bytes, where: str) -> None:
        super().__init__(io.BytesIO(raw), encoding="bytes")
        self._where = where
        self._names = _stand_ins(budget=len(raw))

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        # numpy 2 renamed numpy.core to numpy._core
        key = f"{module_name.replace('numpy._core', 'numpy.core')}.{global_name}"
        if key not in self._names:
            raise DataError(
                f"{self._where}: the pickle uses {module_name}.{global_name}, which is not allowed (nothing was run)"
            )
        return self._names[key]


def _stand_ins(budget: int) -> dict[str, Callable[..., object]]:
    left = budget

    def encode(text: str, encoding: str = "latin1") -> bytes:
        # protocol 2 writes bytes as latin1 text; a valid file cannot create more bytes this way than it has
        nonlocal left
        if encoding != "latin1":
            raise ValueError(f"_codecs.encode to {encoding!r:.20}")
        left -= len(text)
        if left < 0:
            raise ValueError("_codecs.encode creates more bytes than the file has")
        return text.encode("latin1")

    def nothing() -> bytes:
        return b""  # protocols 0 to 2 write an empty byte string as a call of bytes without arguments

    def reconstruct(kind: object, _shape: object, _code: object) -> _Array:
        if kind is not _Array:
            raise ValueError("_reconstruct of something else than an ndarray")
        return _Array()

    def from_buffer(raw: bytes, dtype: _Type, shape: tuple[int, ...], order: str) -> _Array:
        array = _Array()
        array.__setstate__((1, shape, dtype, order == "F", raw))
        return array

    def scalar(dtype: _Type, raw: bytes) -> object:
        array = _Array()
        array.__setstate__((1, (), dtype, False, raw))
        return array.numpy().item()

    return {
        "_codecs.encode": encode,
        "__builtin__.bytes": nothing,
        "builtins.bytes": nothing,
        "numpy.dtype": _Type,
        "numpy.ndarray": _Array,
        "numpy.core.multiarray._reconstruct": reconstruct,
        "numpy.core.multiarray.scalar": scalar,
        "numpy.core.numeric._frombuffer": from_buffer,
    }


class _Type:
    """Stand-in for `numpy.dtype`: boolean, integer and floating types only."""

    __slots__ = ("_code", "_order")

    def __init__(self, code: str | bytes, _align: object = False, _copy: object = True) -> None:
        self._code = _text(code)
        self._order = "="
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", self._code):
            raise ValueError(f"an array of type {self._code!r:.20}; only plain numbers are allowed")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = _text(state[1])
        if self._order not in ("<", ">", "=", "|") or any(part is not None for part in state[2:5]):
            raise ValueError("an array of a structured type; only plain numbers are allowed")

    def numpy(self) -> np.dtype[Any]:
        """Return the numpy type."""
        return np.dtype(self._order + self._code)


class _Array:
    """Stand-in for `numpy.ndarray`; pickles pass its content to `__setstate__`."""

    __slots__ = ("_state",)

    _state: tuple[tuple[int, ...], _Type, bool, bytes | bytearray]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Type) or not isinstance(raw, (bytes, bytearray)):
            raise ValueError("an array of objects; only plain numbers are allowed")
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError("an array without a shape")
        self._state = (shape, dtype, bool(fortran), raw)  # not a copy, as many arrays may share the same bytes

    def numpy(self) -> NDArray[Any]:
        """Return the array; raise ValueError if its bytes do not fit its shape."""
        if not hasattr(self, "_state"):
            raise ValueError("an array without content")
        shape, dtype, fortran, raw = self._state
        flat = np.frombuffer(raw, dtype.numpy()) if raw else np.empty(0, dtype.numpy())
        if flat.size != math.prod(shape):
            raise ValueError(f"an array of shape {shape} with {len(raw)} bytes of {dtype.numpy()}")
        flat.flags.writeable = False
        return flat.reshape(shape, order="F" if fortran else "C")


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii")
    if isinstance(value, str):
        return value
    raise ValueError(f"a {type(value).__name__} instead of a name")
