"""Weights from a local file: safetensors, or a state dict that `torch.load(weights_only=True)` accepts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from reweigh.errors import DataError
from reweigh.lab.nets.net import Net

COUNTER = "num_batches_tracked"
"""A buffer of batch norm that older weight files lack."""


def load_weights(net: Net, path: str | os.PathLike[str], *, replace_classifier: bool = False) -> None:
    """Load the weights of a file into `net`; if names or shapes differ, nothing is changed.

    A classifier named `last_linear` in the file is loaded as `fc`.

    Args:
        net: filled in place.
        path: a `.safetensors` file, or a state dict saved by torch (plain, or under the key `state_dict`).
        replace_classifier: keep the net's own classifier where the file has none, or one with another number of
            classes.

    Raises:
        DataError: the file is missing or unreadable, or names or shapes differ (all are listed).
    """
    path = Path(path)
    loaded = {_own_name(name): tensor for name, tensor in read_weights(path).items()}
    expected = net.state_dict()
    classes = loaded["fc.weight"].shape[0] if "fc.weight" in loaded else None
    if replace_classifier and classes != net.classifier.out_features:
        loaded |= {name: tensor for name, tensor in expected.items() if name.startswith("fc.")}
    for name, tensor in expected.items():
        if name.endswith(COUNTER):
            loaded.setdefault(name, torch.zeros_like(tensor))

    problems = [
        *_listed("missing", (name for name in expected if name not in loaded)),
        *_listed("unexpected", (name for name in loaded if name not in expected)),
        *_listed(
            "of another shape",
            (
                f"{name} {tuple(loaded[name].shape)} for {tuple(tensor.shape)}"
                for name, tensor in expected.items()
                if name in loaded and loaded[name].shape != tensor.shape
            ),
        ),
    ]
    if problems:
        hint = ""
        if not replace_classifier and classes not in (None, net.classifier.out_features):
            hint = (
                f" (the file has {classes} classes, the net {net.classifier.out_features}: "
                "replace_classifier=True keeps the net's own classifier)"
            )
        raise DataError(f"{path} does not fit {type(net).__name__}: {'; '.join(problems)}{hint}")
    net.load_state_dict(loaded)


def load_tensors(source: Path | IO[bytes], map_location: str | torch.device = "cpu") -> object:
    """Load a file of `torch.save` without executing code from it; raise ValueError with the reason if that fails.

    torch's own message advises to load the file with code, so it is not passed on.
    """
    try:
        return torch.load(source, map_location=map_location, weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a forged file can make the restricted unpickler fail in any way
        named = re.search(r"GLOBAL ([\w.]{1,100})", str(error))
        reason = "damaged, or not written by torch.save"
        if named is not None:
            reason = f"it refers to {named[1]}; only tensors, numbers, strings and containers are read"
        raise ValueError(reason) from None


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read name -> tensor on the CPU, without executing code from the file."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; weights must be in a local file")
    content: object
    try:
        if path.suffix == ".safetensors":
            content = safetensors.torch.load_file(path)
        else:
            content = load_tensors(path)
    except (safetensors.SafetensorError, ValueError) as error:
        raise DataError(f"{path} is not a safetensors file or a torch state dict: {error}") from error
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, not a state dict (name -> tensor)")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise DataError(f"{path}: entry {name!r} is a {type(tensor).__name__}, not a tensor with a name")
    return dict(content)


def _own_name(name: str) -> str:
    head, dot, rest = name.partition(".")
    return f"fc{dot}{rest}" if head == "last_linear" else name


def _listed(what: str, names: Iterable[str]) -> list[str]:
    found = list(names)
    if not found:
        return []
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    return [f"{what}: {', '.join(found[:8])}{more}"]
