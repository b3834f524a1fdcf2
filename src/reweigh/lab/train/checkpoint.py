"""Checkpoints that are whole or not there: a digest in front, the one before kept beside.

    checkpoint.pt              b"reweigh checkpoint 1\\n", the sha256 of the rest (32 bytes), what torch.save writes
    checkpoint.previous.pt     the same, one save earlier

A new one is written beside and on the disk before the names move on, so that at every moment one of the two is good.
A file that was cut short or changed by a single bit is recognised, and the other is used.
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
from reweigh.lab.record.files import replace_file

_MAGIC = b"reweigh checkpoint 1\n"
_DIGEST = 32
_PLAIN = (int, float, bool, str, bytes, type(None))


class Loaded(NamedTuple):
    """A checkpoint's content, the file it came from, and what to tell the user where that is not the latest."""

    state: dict[str, Any]
    path: Path
    note: str | None


def save(path: Path, state: dict[str, Any]) -> None:
    """Make `state` the checkpoint at `path`; the one there becomes the previous one, if it is still good.

    Args:
        state: tensors, numbers, texts, bytes and None in dicts, lists and tuples, which is all that `load` admits.

    Raises:
        TypeError: anything else is in the state.
        RecordError: the disk is full or the folder read-only; what was saved before is untouched.
    """
    _check(state, "state")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    digest = hashlib.sha256(content).digest()
    # A damaged checkpoint must not push the good one before it out.
    keep = _is_good(path)
    replace_file(
        path,
        lambda file: file.writelines((_MAGIC, digest, content)),
        before_rename=lambda: path.replace(previous(path)) if keep else None,
    )


def load(path: Path, *, map_location: str | torch.device = "cpu") -> Loaded | None:
    """The latest good checkpoint of `path` and the one before it, or None where there is neither.

    Raises:
        DataError: there are files, but none is good.
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
        return Loaded(state, candidate, None if candidate == path else f"{why}; going on from {candidate.name}")
    if problems:
        raise DataError("no good checkpoint: " + "; ".join(problems))
    return None


def previous(path: Path) -> Path:
    """Where the checkpoint before the one at `path` is kept.

    >>> previous(Path("runs/a/checkpoint.pt")).name
    'checkpoint.previous.pt'
    """
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _read(path: Path, map_location: str | torch.device) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    start = len(_MAGIC) + _DIGEST
    if content[: len(_MAGIC)] != _MAGIC:
        raise DataError(f"{path}: not a checkpoint of this format, or damaged at its start")
    payload = memoryview(content)[start:]
    if hashlib.sha256(payload).digest() != content[len(_MAGIC) : start]:
        raise DataError(f"{path}: damaged; its content does not have the digest it was saved with")
    try:
        state = torch.load(io.BytesIO(payload), map_location=map_location, weights_only=True)
    except Exception as error:  # a forged file can make the restricted unpickler fail in any way
        raise DataError(f"{path}: cannot be loaded safely ({str(error).splitlines()[0]})") from error
    if not isinstance(state, dict):
        raise DataError(f"{path}: holds a {type(state).__name__}, not a state")
    return state


def _is_good(path: Path) -> bool:
    """Whether the file at `path` has the digest it was saved with."""
    try:
        with path.open("rb") as file:
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
    """Refuse at once what could be saved but, under weights_only, not be loaded again."""
    if type(value) in (dict, OrderedDict) and isinstance(value, dict):
        for key, item in value.items():
            _check(key, f"a key of {where}")
            _check(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple) and isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check(item, f"{where}[{i}]")
    elif not isinstance(value, Tensor) and type(value) not in _PLAIN:
        raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds tensors, numbers, texts and None")
