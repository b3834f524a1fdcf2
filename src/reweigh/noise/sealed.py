"""Arrays on disk: one .npz that numpy can read, sealed with the sha256 of its own bytes.

The seal is the zip archive's comment, the last 64 bytes of the file, over everything before it; so any changed
byte is found. Nothing is pickled. `meta` is kept as JSON.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reweigh.errors import DataError

SEAL = 64


def write(path: str | os.PathLike[str], meta: dict[str, Any], **arrays: npt.NDArray[Any]) -> Path:
    """Write beside the place, flush, then rename: the file is there whole or not at all."""
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


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The meta data and arrays that `write` wrote; refused when a single byte has changed since."""
    file = Path(path)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    if raw[-SEAL:] != _seal(raw[:-SEAL]):
        raise DataError(f"{file}: changed, cut short, or never saved by reweigh: its sha256 seal does not fit")
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(arrays.pop("meta").tobytes())
    except Exception as error:  # a broken archive or header can raise nearly anything
        raise DataError(f"{file}: sealed, but not as reweigh does: {error}") from error
    if not isinstance(meta, dict):
        raise DataError(f"{file}: its meta data are no JSON object")
    return meta, arrays


def _seal(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
