"""Arrays that one run leaves for another in a .npy file: transition matrices, soft labels, difficulties."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reweigh.errors import DataError

DIGITS = 12  # of a file's sha256, as `hash` arguments have them


def read_array(
    path: str | os.PathLike[str], shape: tuple[int, ...], *, hash: str | None = None
) -> npt.NDArray[np.float64]:
    """The finite numbers in a .npy file, which is never unpickled.

    Args:
        path: the file.
        shape: which its array must have.
        hash: how the sha256 of the file must begin, if that is known.
    """
    file = Path(path)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from error
    if hash is not None and not (found := file_hash(raw, 64)).startswith(hash):
        raise DataError(f"{file}: its sha256 is {found[:DIGITS]}..., expected {hash}")
    try:
        array = np.load(io.BytesIO(raw), allow_pickle=False)
    except Exception as error:  # a broken header can raise nearly anything
        raise DataError(f"{file}: not a .npy file of numbers: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
        raise DataError(f"{file}: not a .npy file of numbers")
    if array.shape != shape:
        raise DataError(f"{file}: shape {array.shape}; expected {shape}")
    if not np.isfinite(array).all():
        raise DataError(f"{file}: {array[~np.isfinite(array)][0]} at {np.argwhere(~np.isfinite(array))[0].tolist()}")
    return array.astype(np.float64)


def array_bytes(array: npt.NDArray[np.generic]) -> bytes:
    """The content of the .npy file of an array."""
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()


def file_hash(content: bytes, digits: int = DIGITS) -> str:
    """The first digits of the sha256, as `hash` arguments have them.

    >>> file_hash(b"")
    'e3b0c44298fc'
    """
    return hashlib.sha256(content).hexdigest()[:digits]
