"""Files of arrays: plain .npy that one run leaves for another, and sealed .npz, in which a `Corruption` is saved.

A sealed file is an .npz that numpy can read. The seal is the zip archive's comment, the last 64 bytes of the file: the
sha256 of everything before it, so that any changed byte is found. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reweigh.errors import DataError
from reweigh.noise.corruption import Corruption

DIGITS = 12  # of a file's sha256, as `hash` arguments have them


def read_array(
    path: str | os.PathLike[str], shape: tuple[int, ...], *, hash: str | None = None
) -> npt.NDArray[np.float64]:
    """Read finite numbers from a .npy file, which is never unpickled.

    Args:
        path: the file.
        shape: the shape that its array must have.
        hash: the first digits of the expected sha256 of the file, if known.
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
    """Return an array as the content of a .npy file."""
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()


def file_hash(content: bytes, digits: int = DIGITS) -> str:
    """Return the first digits of the sha256, as `hash` arguments have them.

    >>> file_hash(b"")
    'e3b0c44298fc'
    """
    return hashlib.sha256(content).hexdigest()[:digits]


SEAL = 64


def write_sealed(path: str | os.PathLike[str], meta: dict[str, Any], **arrays: npt.NDArray[Any]) -> Path:
    """Write arrays and JSON `meta` atomically: to a file beside the target, flushed, then renamed."""
    buffer = io.BytesIO()
    words = np.frombuffer(json.dumps(meta, sort_keys=True, allow_nan=False).encode(), dtype=np.uint8)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in {**arrays, "meta": words}.items():
            # A fixed date, so that the same content is the same file.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.comment = b"0" * SEAL
    body = buffer.getvalue()[:-SEAL]
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(body)
            file.write(_seal(body))
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def read_sealed(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return the meta data and arrays that `write_sealed` wrote; raise DataError if any byte has changed."""
    file = Path(path)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    if raw[-SEAL:] != _seal(raw[:-SEAL]):
        raise DataError(f"{file}: changed, truncated, or not saved by reweigh: its sha256 seal does not match")
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(arrays.pop("meta").tobytes())
    except Exception as error:  # a broken archive or header can raise nearly anything
        raise DataError(f"{file}: sealed, but not in reweigh's format: {error}") from error
    if not isinstance(meta, dict):
        raise DataError(f"{file}: its meta data are not a JSON object")
    return meta, arrays


def _seal(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


FORMAT = "reweigh corruption 1"


def save_corruption(corruption: Corruption, path: str | os.PathLike[str]) -> Path:
    """Write a `Corruption` to a sealed file, atomically."""
    meta = {
        "format": FORMAT,
        "kind": corruption.kind,
        "rate": corruption.rate if math.isfinite(corruption.rate) else None,
        "seed": corruption.seed,
        "num_classes": corruption.num_classes,
        "hash": corruption.hash,
    }
    return write_sealed(path, meta, labels=corruption.labels, clean=corruption.clean)


def load_corruption(path: str | os.PathLike[str]) -> Corruption:
    """Read what `save_corruption` wrote, and measure rate and counts again; raise DataError if any byte has changed."""
    meta, arrays = read_sealed(path)
    try:
        labels, clean = arrays["labels"], arrays["clean"]
        if meta["format"] != FORMAT or labels.dtype != np.int64 or clean.dtype != np.int64:
            raise ValueError(f"found format {meta['format']!r} with {labels.dtype} and {clean.dtype}")
        if labels.ndim != 1 or labels.shape != clean.shape or labels.min(initial=0) < 0:
            raise ValueError(f"labels of shape {labels.shape} do not match clean ones of {clean.shape}")
        if max(labels.max(initial=0), clean.max(initial=0)) >= meta["num_classes"]:
            raise ValueError(f"a label is out of range for {meta['num_classes']} classes")
        rate = math.nan if meta["rate"] is None else float(meta["rate"])
        result = Corruption.from_labels(labels, clean, meta["num_classes"], str(meta["kind"]), rate, meta["seed"])
        if result.hash != meta["hash"]:
            raise ValueError(f"labels with sha256 {result.hash[:12]}, recorded {str(meta['hash'])[:12]}")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{os.fspath(path)}: expected a {FORMAT!r}: {error}") from error
    return result
