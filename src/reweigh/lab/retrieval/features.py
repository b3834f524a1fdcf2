"""One feature for each video: the net's penultimate layer on every frame, fused over the frames, at unit length.

    mean          average over frames (the paper's)
    max           the largest of every number over frames (MARS's reference program's)
    confidence    average weighted by the largest softmax probability of each frame

Frames are not normalised before they are fused; the video's feature is L2-normalised after. So a frame on which the net
says much counts more than one on which it says little, as in the paper.
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
    """What a net makes of B frames.

    Attributes:
        features: (B, F), its penultimate layer, before dropout, as float32.
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
    """The features of all frames in order, batch by batch; frames are brought to what the model was trained on.

    Args:
        net: in evaluation mode, on `device`.
        card: of the model: how large its inputs are and how they are normalised.
        files: the frames.
        batch_size: frames decoded and computed together.
        workers: processes that decode.
        device: where to compute.
    """
    loader = loader_of(card, files, workers, device)
    with torch.no_grad():
        for batch in loader.evaluation(batch_size):
            features = net.features(batch.inputs)
            confidence = classify(net.classifier, features).double().softmax(1).amax(1)
            yield Frames(features.float(), confidence)


def loader_of(card: Card, files: Files, workers: int = 0, device: torch.device | str = "cpu") -> Loader:
    """Frames as the model's inputs, as evaluation in training saw them."""
    nobody = np.zeros(len(files), dtype=np.int64)
    if card.kind == "files":  # resized and cropped in the middle as in training, whose sizes are the loader's own
        return Loader(files, nobody, normalisation=card.normalisation, workers=workers, device=device)
    if card.kind != "images":
        raise DataError(f"the model reads {card.kind}, not images: it has no features of frames")
    height, width = card.shape[1:]
    more = enlargement(card)
    return Loader(
        Enlarged(files, (height, width), more),
        nobody,
        normalisation=card.normalisation,
        resize=(height + more, width + more),
        crop=(height, width),
        workers=workers,
        device=device,
    )


def enlargement(card: Card) -> int:
    """Pixels by which images in memory were enlarged in training before they were cropped, in evaluation as well."""
    if card.run is None or card.kind != "images":
        return 0
    return AUGMENTATIONS[card.run.augment].enlarge


@dataclass(frozen=True)
class Enlarged:
    """Files as images in memory are: brought to a size first and enlarged after, which is less sharp than at once.

    Args:
        files: the images.
        size: (height, width) they are brought to.
        more: pixels by which both grow then.
    """

    files: Files
    size: tuple[int, int]
    more: int

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Pixels:
        image = self.files.decoded(index, self.size)
        return canvas(image[np.newaxis], Augmentation(enlarge=self.more))[0].permute(1, 2, 0).numpy()


class Fused:
    """Tracklets being fused, frame by frame: memory is one feature for each, however long they are.

    Args:
        lengths: frames of each tracklet, 1 or more.
        fusion: see above.

    >>> fused = Fused([2], "mean")
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
        """The next frames."""
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
        self.total.index_add_(
            0, owner, features
        )  # no need to divide by the frames or the weights: the length is 1 after

    def result(self) -> NDArray[np.float32]:
        """(tracklets, F), each at unit length; a zero vector stays."""
        if self.total is None or self.seen != len(self.owner):
            raise ValueError(f"{self.seen} frames of {len(self.owner)} were added")
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
    """(rows, F): the features of consecutive tracklets, frames read in one stream; `cache.extract` keeps them on disk.

    Args:
        net: the model.
        card: its card.
        tracklets: the videos.
        rows: which of them; None is all.
        fusion: see above.
        batch_size: frames computed together.
        workers: processes that decode.
        device: where to compute.
        progress: called with the number of frames done.

    Raises:
        DataError: a tracklet is empty or its frames are not known, or a frame cannot be read.
    """
    frames = check_frames(tracklets)
    rows = range(len(tracklets)) if rows is None else rows
    fused = Fused(tracklets.lengths[rows.start : rows.stop].tolist(), fusion)
    spans = [np.arange(tracklets.start[row], tracklets.stop[row]) for row in rows]
    files = frames.take(np.concatenate(spans))
    for found in frame_features(net, card, files, batch_size=batch_size, workers=workers, device=device):
        fused.add(found)
        progress(fused.seen)
    return fused.result()


def check_frames(tracklets: Tracklets, *, there: bool = False) -> Files:
    """The frames of an index, if it knows them, no tracklet is empty, and (where asked for) all lie on the disk."""
    if tracklets.frames is None:
        raise DataError("the frames of this index are not known: info/*_name.txt is missing")
    if not len(tracklets):
        raise DataError("there are no tracklets to extract features of")
    empty = np.flatnonzero(tracklets.lengths < 1)
    if empty.size:
        raise DataError(
            f"tracklet {empty[0]} (person {tracklets.persons[empty[0]]}, camera {tracklets.cameras[empty[0]]}) is empty"
        )
    if there:
        files = tracklets.frames
        present = Listing(files.root)
        refuse_missing(files.root, [name for name in files.names if name not in present], len(files))
    return tracklets.frames
