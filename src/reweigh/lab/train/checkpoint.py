"""Checkpoints with a digest, which survive a kill or a damaged file because the previous one is kept.

    checkpoint.pt              b"reweigh checkpoint 1\\n", the sha256 of the rest (32 bytes), the bytes of torch.save
    checkpoint.previous.pt     the same, one save earlier

A new checkpoint is written to a temporary file and synced to disk before files are renamed, so that one of the two is
always intact. A truncated file, or one with a changed bit, is detected, and the other is used.
"""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reweigh.errors import DataError
from reweigh.lab.nets.weights import load_tensors
from reweigh.lab.record.files import open_file, replace_file

_MAGIC = b"reweigh checkpoint 1\n"
_DIGEST = 32
_PLAIN = (int, float, bool, str, bytes, type(None))


class Loaded(NamedTuple):
    """A checkpoint's content, its file, and a note for the user if that is not the latest."""

    state: dict[str, Any]
    path: Path
    note: str | None


def save(path: Path, state: dict[str, Any]) -> None:
    """Save `state` as the checkpoint at `path`; an intact one already there becomes the previous one.

    Args:
        path: the file.
        state: tensors, numbers, strings, bytes and None in dicts, lists and tuples, which is all that `load` accepts.

    Raises:
        TypeError: the state holds anything else.
        RecordError: the disk is full or the folder read-only; earlier checkpoints are unchanged.
    """
    _check(state, "state")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    digest = hashlib.sha256(content).digest()
    # a damaged checkpoint must not replace the intact one before it
    keep = _is_good(path)
    replace_file(
        path,
        lambda file: file.writelines((_MAGIC, digest, content)),
        before_rename=lambda: path.replace(previous(path)) if keep else None,
    )


def load(path: Path, *, map_location: str | torch.device = "cpu") -> Loaded | None:
    """Load the checkpoint at `path`, or the previous one if it is damaged; None if there is neither.

    Raises:
        DataError: there are files, but none is intact.
    """
    problems = []
    for candidate in (path, previous(path)):
        if not candidate.exists():
            continue
        try:
            state = _read(candidate, map_location)
        except DataError as error:
            problems.append(str(error))
            continue
        why = problems[0] if problems else f"{path}: there is no such file"
        return Loaded(state, candidate, None if candidate == path else f"{why}; resuming from {candidate.name}")
    if problems:
        raise DataError("no good checkpoint: " + "; ".join(problems))
    return None


def previous(path: Path) -> Path:
    """Return the path of the previous checkpoint.

    >>> previous(Path("runs/a/checkpoint.pt")).name
    'checkpoint.previous.pt'
    """
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def remove(path: Path) -> None:
    """Remove the checkpoint at `path` and the previous one, if they exist."""
    for file in (path, previous(path)):
        file.unlink(missing_ok=True)


def _read(path: Path, map_location: str | torch.device) -> dict[str, Any]:
    try:
        with open_file(path) as file:
            content = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    start = len(_MAGIC) + _DIGEST
    if content[: len(_MAGIC)] != _MAGIC:
        raise DataError(f"{path}: not a checkpoint of this format, or damaged at its start")
    payload = memoryview(content)[start:]
    if hashlib.sha256(payload).digest() != content[len(_MAGIC) : start]:
        raise DataError(f"{path}: damaged; its content does not match its digest")
    try:
        state = load_tensors(io.BytesIO(payload), map_location)
    except ValueError as error:
        raise DataError(f"{path}: cannot be loaded safely: {error}") from error
    if not isinstance(state, dict):
        raise DataError(f"{path}: holds a {type(state).__name__}, not a dict")
    return state


def _is_good(path: Path) -> bool:
    """Return whether the content of the file at `path` matches its digest."""
    try:
        with open_file(path) as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
            digest = file.read(_DIGEST)
            found = hashlib.sha256()
            while chunk := file.read(2**20):
                found.update(chunk)
    except OSError:
        return False
    return found.digest() == digest


def _check(value: object, where: str) -> None:
    """Raise TypeError for anything that could be saved but not be loaded again under weights_only."""
    if type(value) in (dict, OrderedDict) and isinstance(value, dict):
        for key, item in value.items():
            _check(key, f"a key of {where}")
            _check(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple) and isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check(item, f"{where}[{i}]")
    elif not isinstance(value, Tensor) and type(value) not in _PLAIN:
        raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds tensors, numbers, strings and None")
