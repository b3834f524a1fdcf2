"""A Corruption on disk, in a sealed .npz: `labels`, `clean` and what else is not measured on them."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np

from reweigh.errors import DataError
from reweigh.noise import sealed
from reweigh.noise.corruption import Corruption, measure

FORMAT = "reweigh corruption 1"


def save(corruption: Corruption, path: str | os.PathLike[str]) -> Path:
    """Write a Corruption; the file is there whole or not at all."""
    meta = {
        "format": FORMAT,
        "kind": corruption.kind,
        "rate": corruption.rate if math.isfinite(corruption.rate) else None,
        "seed": corruption.seed,
        "num_classes": corruption.num_classes,
        "hash": corruption.hash,
    }
    return sealed.write(path, meta, labels=corruption.labels, clean=corruption.clean)


def load(path: str | os.PathLike[str]) -> Corruption:
    """Read what `save` wrote, rate and counts measured again; refuse it when a single byte has changed."""
    meta, arrays = sealed.read(path)
    try:
        labels, clean = arrays["labels"], arrays["clean"]
        if meta["format"] != FORMAT or labels.dtype != np.int64 or clean.dtype != np.int64:
            raise ValueError(f"found format {meta['format']!r} with {labels.dtype} and {clean.dtype}")
        if labels.ndim != 1 or labels.shape != clean.shape or labels.min(initial=0) < 0:
            raise ValueError(f"labels of shape {labels.shape} do not fit clean ones of {clean.shape}")
        if max(labels.max(initial=0), clean.max(initial=0)) >= meta["num_classes"]:
            raise ValueError(f"a label is out of range for {meta['num_classes']} classes")
        rate = math.nan if meta["rate"] is None else float(meta["rate"])
        result = measure(labels, clean, meta["num_classes"], str(meta["kind"]), rate, meta["seed"])
        if result.hash != meta["hash"]:
            raise ValueError(f"labels with sha256 {result.hash[:12]}, recorded {str(meta['hash'])[:12]}")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{os.fspath(path)}: expected a {FORMAT!r}: {error}") from error
    return result
