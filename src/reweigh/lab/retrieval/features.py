"""Compute one feature per video: the net's penultimate layer on each frame, fused over frames, with unit length.

    mean          mean over frames (the paper's)
    max           element-wise maximum over frames (MARS's reference program's)
    confidence    mean weighted by the largest softmax probability of each frame

Only the fused feature is L2-normalised. A frame with larger activations therefore counts more, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.errors import DataError
from reweigh.lab.batches import AUGMENTATIONS, Augmentation, Loader
from reweigh.lab.batches.augment import canvas
from reweigh.lab.data.mars import Tracklets
from reweigh.lab.data.source.images import Files, Listing, Pixels, refuse_missing
from reweigh.lab.nets.net import Net, classify
from reweigh.lab.train.model import Card

Fusion: TypeAlias = Literal["mean", "max", "confidence"]
BATCH = 128


class Frames(NamedTuple):
    """Features of B frames.

    Attributes:
        features: (B, F) float32, the net's penultimate layer before dropout.
        confidence: (B,) float64, the largest softmax probability.
    """

    features: Tensor
    confidence: Tensor


def frame_features(
    net: Net,
    card: Card,
    files: Files,
    *,
    batch_size: int = BATCH,
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> Iterator[Frames]:
    """Yield the features of all frames in order, batch by batch, with the preprocessing of the model's training.

    Args:
        net: in evaluation mode, on `device`.
        card: the model's card, with the size and normalisation of its inputs.
        files: the frames.
        batch_size: frames per batch.
        workers: processes that decode frames.
        device: where to compute.
    """
    loader = loader_of(card, files, workers, device)
    with torch.no_grad():
        for batch in loader.evaluation(batch_size):
            features = net.features(batch.inputs)
            confidence = classify(net.classifier, features).double().softmax(1).amax(1)
            yield Frames(features.float(), confidence)


def loader_of(card: Card, files: Files, workers: int = 0, device: torch.device | str = "cpu") -> Loader:
    """Load frames with the preprocessing of evaluation during training."""
    unknown = np.zeros(len(files), dtype=np.int64)
    if card.kind == "files":  # the loader resizes and crops by default as in training
        return Loader(files, unknown, normalisation=card.normalisation, workers=workers, device=device)
    if card.kind != "images":
        raise DataError(f"the model reads {card.kind}, not images, so it cannot be applied to frames")
    height, width = card.shape[1:]
    more = enlargement(card)
    return Loader(
        Enlarged(files, (height, width), more),
        unknown,
        normalisation=card.normalisation,
        resize=(height + more, width + more),
        crop=(height, width),
        workers=workers,
        device=device,
    )


def enlargement(card: Card) -> int:
    """Return the pixels by which training, and its evaluation, enlarged images in memory before cropping."""
    if card.run is None or card.kind != "images":
        return 0
    return AUGMENTATIONS[card.run.augment].enlarge


@dataclass(frozen=True)
class Enlarged:
    """Image files that are resized in two steps, like images in memory; one step would be sharper.

    Args:
        files: the images.
        size: (height, width) of the first step.
        more: pixels that the second step adds to both.
    """

    files: Files
    size: tuple[int, int]
    more: int

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Pixels:
        image = self.files.decoded(index, self.size)
        return canvas(image[np.newaxis], Augmentation(enlarge=self.more))[0].permute(1, 2, 0).numpy()


class FeatureFusion:
    """Fuses the features of frames into those of tracklets; memory holds one feature per tracklet.

    Args:
        lengths: frames of each tracklet, 1 or more.
        fusion: see above.

    >>> fused = FeatureFusion([2], "mean")
    >>> fused.add(Frames(torch.tensor([[3.0, 0.0]]), torch.tensor([0.5])))
    >>> fused.add(Frames(torch.tensor([[3.0, 8.0]]), torch.tensor([0.5])))
    >>> fused.result()
    array([[0.6, 0.8]], dtype=float32)
    """

    def __init__(self, lengths: Iterable[int], fusion: Fusion = "mean") -> None:
        if fusion not in get_args(Fusion):
            raise ValueError(f"fusion must be one of {', '.join(get_args(Fusion))}, not {fusion!r}")
        self.fusion, self.seen = fusion, 0
        self.owner = torch.repeat_interleave(torch.tensor(list(lengths)))
        self.count = int(self.owner[-1]) + 1 if len(self.owner) else 0
        self.total: Tensor | None = None

    def add(self, frames: Frames) -> None:
        """Add the next frames."""
        features = frames.features.double()
        owner = self.owner[self.seen : self.seen + len(features)].to(features.device)
        self.seen += len(features)
        if self.total is None:
            start = -torch.inf if self.fusion == "max" else 0.0
            self.total = features.new_full((self.count, features.shape[1]), start)
        if self.fusion == "max":
            self.total.scatter_reduce_(0, owner[:, None].expand_as(features), features, "amax")
            return
        if self.fusion == "confidence":
            features = features * frames.confidence[:, None].to(features)
        self.total.index_add_(0, owner, features)  # a sum is enough, since the result is normalised

    def result(self) -> NDArray[np.float32]:
        """Return (tracklets, F) with unit length; a zero vector stays zero."""
        if self.total is None or self.seen != len(self.owner):
            raise ValueError(f"only {self.seen} of {len(self.owner)} frames were added")
        unit: NDArray[np.float32] = torch.nn.functional.normalize(self.total, dim=1).float().cpu().numpy()
        return unit


def video_features(
    net: Net,
    card: Card,
    tracklets: Tracklets,
    rows: range | None = None,
    fusion: Fusion = "mean",
    *,
    batch_size: int = BATCH,
    workers: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int], None] = lambda frames: None,
) -> NDArray[np.float32]:
    """Return the (rows, F) features of consecutive tracklets; `extract_features` also caches them.

    Args:
        net: the model.
        card: its card.
        tracklets: the videos.
        rows: rows of the tracklets; None for all.
        fusion: see above.
        batch_size: frames per batch.
        workers: processes that decode frames.
        device: where to compute.
        progress: called with the number of frames done.

    Raises:
        DataError: a tracklet is empty, its frames are unknown, or a frame cannot be read.
    """
    frames = check_frames(tracklets)
    rows = range(len(tracklets)) if rows is None else rows
    fused = FeatureFusion(tracklets.lengths[rows.start : rows.stop].tolist(), fusion)
    spans = [np.arange(tracklets.start[row], tracklets.stop[row]) for row in rows]
    files = frames.take(np.concatenate(spans))
    for batch in frame_features(net, card, files, batch_size=batch_size, workers=workers, device=device):
        fused.add(batch)
        progress(fused.seen)
    return fused.result()


def check_frames(tracklets: Tracklets, *, on_disk: bool = False) -> Files:
    """Return the frames; DataError if they are unknown, a tracklet is empty, or (with `on_disk`) files are missing."""
    if tracklets.frames is None:
        raise DataError("this index has no names of frames: info/*_name.txt is missing")
    if not len(tracklets):
        raise DataError("there are no tracklets to extract features of")
    empty = np.flatnonzero(tracklets.lengths < 1)
    if empty.size:
        raise DataError(
            f"tracklet {empty[0]} (person {tracklets.persons[empty[0]]}, camera {tracklets.cameras[empty[0]]}) is empty"
        )
    if on_disk:
        files = tracklets.frames
        present = Listing(files.root)
        refuse_missing(files.root, [name for name in files.names if name not in present], len(files))
    return tracklets.frames
