"""Cache the features of videos on disk: an interrupted extraction resumes, a finished one is only read.

    <cache>/<key>/features.json          the settings that the key is a hash of
    <cache>/<key>/00000.safetensors      "features", float32 (tracklets of the block, F); 00001, ...

The key is a hash of the weights, the preprocessing of inputs, the tracklets and their frames (names, sizes, first and
last KiB), and the settings. Other weights, data or settings therefore have other files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.mars import Tracklets
from reweigh.lab.nets.net import Net
from reweigh.lab.record.files import Lock, make_folder, replace_file, write_json
from reweigh.lab.retrieval.features import BATCH, Fusion, check_frames, enlargement, video_features
from reweigh.lab.train.model import Card

BLOCK = 256  # tracklets per file


@dataclass(frozen=True)
class StoredFeatures:
    """Features on disk, (N, F) float32; `score` reads them in slices, and `all()` returns an array.

    Args:
        folder: directory of the blocks.
        tracklets: N.
        block: tracklets per file.
    """

    folder: Path
    tracklets: int
    block: int = BLOCK

    def __len__(self) -> int:
        return self.tracklets

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        start, stop, step = rows.indices(len(self))
        if step != 1 or start >= stop:
            raise ValueError(f"rows must be a non-empty slice with step 1, not {rows}")
        numbers = range(start // self.block, (stop - 1) // self.block + 1)
        blocks = np.concatenate([read_block(self.path(number)) for number in numbers])
        first = numbers[0] * self.block
        part: NDArray[np.float32] = blocks[start - first : stop - first]
        return part

    def all(self) -> NDArray[np.float32]:
        """Read all features."""
        return self[:]

    def path(self, number: int) -> Path:
        """Return the file of a block."""
        return self.folder / f"{number:05d}.safetensors"

    def blocks(self) -> Iterator[tuple[int, range]]:
        """Yield the number and rows of each block."""
        for number, start in enumerate(range(0, self.tracklets, self.block)):
            yield number, range(start, min(start + self.block, self.tracklets))


def extract_features(
    net: Net,
    card: Card,
    tracklets: Tracklets,
    cache: str | os.PathLike[str],
    fusion: Fusion = "mean",
    *,
    block: int = BLOCK,
    batch_size: int = BATCH,
    workers: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> StoredFeatures:
    """Compute the features of all tracklets that are not in the cache.

    Memory holds one block of features and a few batches of frames, for any number and length of tracklets.

    Args:
        net: the model; it is moved to `device` and set to evaluation mode.
        card: its card.
        tracklets: the videos.
        cache: directory of all caches; the features get a subdirectory named by their key.
        fusion: "mean", "max" or "confidence".
        block: tracklets per file; at most this many are computed again after an interruption.
        batch_size: frames per batch.
        workers: processes that decode frames.
        device: where to compute.
        progress: called with (frames done, frames).

    Raises:
        DataError: a tracklet is empty, or frames are missing (the message counts them) or cannot be read.
        RecordError: the cache cannot be written, or another process is writing to it.
    """
    if block < 1:
        raise ValueError(f"block must be 1 or more, not {block}")
    check_frames(tracklets, on_disk=True)
    settings = cache_settings(net, card, tracklets, fusion, block)
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    stored = StoredFeatures(Path(cache) / key, len(tracklets), block)
    make_folder(stored.folder)
    net = net.to(device).eval()
    ends = np.concatenate([[0], np.cumsum(tracklets.lengths)]).tolist()  # frames before each tracklet

    def compute(rows: range) -> bytes:
        features = video_features(
            net,
            card,
            tracklets,
            rows,
            fusion,
            batch_size=batch_size,
            workers=workers,
            device=device,
            progress=lambda frames: progress(ends[rows.start] + frames, ends[-1]),
        )
        return safetensors.numpy.save({"features": features})

    with Lock(stored.folder):
        write_json(stored.folder / "features.json", settings)
        for number, rows in stored.blocks():
            path = stored.path(number)
            if not is_complete(path, (len(rows), net.classifier.in_features)):
                replace_file(path, partial(_write, compute(rows)))
            progress(ends[rows.stop], ends[-1])
    return stored


def cache_settings(net: Net, card: Card, tracklets: Tracklets, fusion: Fusion, block: int) -> dict[str, Any]:
    """Return everything that determines the features, as JSON values."""
    weights = hashlib.sha256()
    for name, tensor in sorted(net.state_dict().items()):
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        weights.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    frames = check_frames(tracklets)
    spans = np.stack((tracklets.start, tracklets.stop)).astype("<i8").tobytes()
    normalisation, more = card.normalisation, enlargement(card)
    return {
        "weights": weights.hexdigest(),
        "frames": frames.digest().hex(),
        "tracklets": hashlib.sha256(spans).hexdigest(),
        "net": card.net,
        "kind": card.kind,
        "shape": list(card.shape),
        "normalisation": None if normalisation is None else [list(normalisation.mean), list(normalisation.std)],
        "fusion": fusion,
        "block": block,
    } | ({"enlarge": more} if more else {})  # only if set, so that older keys stay valid


def _write(content: bytes, file: IO[bytes]) -> int:
    return file.write(content)


def read_block(path: Path) -> NDArray[np.float32]:
    """Read the features of one file."""
    try:
        features: NDArray[np.float32] = safetensors.numpy.load(path.read_bytes())["features"]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); extract the features again") from error
    except (safetensors.SafetensorError, KeyError) as error:
        raise DataError(f"{path}: not a file of features ({error}); delete it and extract again") from error
    return features


def is_complete(path: Path, shape: tuple[int, int]) -> bool:
    """Return whether a block exists and has the expected shape and type."""
    if not path.is_file():
        return False
    try:
        with safetensors.safe_open(path, framework="np") as file:
            features = file.get_slice("features")
            return tuple(features.get_shape()) == shape and features.get_dtype() == "F32"
    except (OSError, safetensors.SafetensorError):
        return False
