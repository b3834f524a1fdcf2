"""Make some frames of videos abnormal, to measure robustness with known truth.

    background    the frame is replaced by one of its corners, as if the detector had found nobody
    stranger      the frame is replaced by another person's, as if the tracker had jumped
    identity      the label is replaced by another person's

The boxes of MARS are tight around people, so that only their corners show background. A background is the upper left or
right corner, a sixth of the frame's height and a quarter of its width, enlarged to the frame's size. Some corners still
show a shoulder or another person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from reweigh.lab.data.dataset import Labels, Part
from reweigh.lab.data.source.images import Files, Pixels, decode
from reweigh.streams import numpy_generator

KINDS = ("background", "stranger", "identity")
CLEAN, BACKGROUND, STRANGER, IDENTITY = range(4)
NOBODY = -1
FULL, LEFT, RIGHT = range(3)


class NoisyFrames(NamedTuple):
    """Frames of which some are abnormal.

    Attributes:
        part: the frames to train on: a lazy view of the files, or an array if they were in memory.
        clean: (N,) int64, the class of the person in the frame; -1 if there is none.
        kinds: (N,) int8, 0 for a clean frame, else the position in `KINDS` plus 1.
    """

    part: Part
    clean: Labels
    kinds: NDArray[np.int8]

    @property
    def is_noisy(self) -> NDArray[np.bool_]:
        """(N,), whether each frame is abnormal."""
        mask: NDArray[np.bool_] = self.kinds != CLEAN
        return mask


def corrupt_frames(part: Part, rate: float, seed: int = 0, kinds: Sequence[str] = KINDS) -> NoisyFrames:
    """Make a share of the frames abnormal, in equal parts by each of `kinds`.

    round(rate N) frames are drawn, regardless of class and tracklet. A stranger is drawn uniformly from the frames of
    all other classes, an identity uniformly from all other classes.

    Args:
        part: frames, as files or in memory, and the classes of their persons.
        rate: from 0 to 1.
        seed: the stream is "frames".
        kinds: some of `KINDS`.

    >>> part = Part(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 0, 1, 1]))
    >>> noisy = corrupt_frames(part, 0.5, seed=0, kinds=["identity"])
    >>> int(noisy.is_noisy.sum()), bool((noisy.is_noisy == (noisy.part.labels != noisy.clean)).all())
    (2, True)
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must be from 0 to 1, not {rate}")
    if not kinds or any(name not in KINDS for name in kinds) or len(set(kinds)) != len(kinds):
        raise ValueError(f"kinds must be some of {', '.join(KINDS)}, not {', '.join(map(str, kinds)) or 'none'}")
    if part.kind not in ("files", "images"):
        raise ValueError(f"frames must be images, not {part.kind}")
    labels = part.labels
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(f"frames must have two classes or more, not {len(classes)}")
    random = numpy_generator(seed, "frames")
    chosen = random.permutation(len(labels))[: round(rate * len(labels))]
    kind = np.zeros(len(labels), dtype=np.int8)
    kind[chosen] = np.array([KINDS.index(name) + 1 for name in kinds])[np.arange(len(chosen)) % len(kinds)]

    corners = np.where(kind == BACKGROUND, random.integers(LEFT, RIGHT + 1, len(labels)), FULL)
    source, given = np.arange(len(labels)), labels.copy()
    by_class = np.argsort(labels, kind="stable")
    ordered = labels[by_class]
    for frame in np.flatnonzero(kind == STRANGER):
        first, last = np.searchsorted(ordered, (labels[frame], labels[frame] + 1))
        other = random.integers(len(labels) - (last - first))
        source[frame] = by_class[other if other < first else other + last - first]
    for frame in np.flatnonzero(kind == IDENTITY):
        others = classes[classes != labels[frame]]
        given[frame] = others[random.integers(len(others))]
    clean = np.where(kind == BACKGROUND, NOBODY, labels[source])
    return NoisyFrames(Part(_replaced(part.inputs, source, corners), given), clean, kind)


def _replaced(inputs: object, source: Labels, corners: Labels) -> Files | Pixels:
    if isinstance(inputs, Files):
        files = inputs.take(source)
        return Corners(files.root, files.names, files.max_pixels, tuple(corners.tolist()))
    assert isinstance(inputs, np.ndarray)
    pixels: Pixels = inputs[source]
    for frame in np.flatnonzero(corners != FULL):
        pixels[frame] = corner(pixels[frame], int(corners[frame]), pixels.shape[1:3])
    return pixels


@dataclass(frozen=True)
class Corners(Files):
    """Image files of which some are reduced to a corner.

    Args:
        corners: for each file 0 (the full image), 1 (upper left) or 2 (upper right).
    """

    corners: tuple[int, ...] = ()

    def decoded(self, index: int, size: tuple[int, int] | None = None) -> Pixels:
        """Return the image, or its corner enlarged to the image's size; both resized to `size` if given."""
        which = self.corners[index]
        if which == FULL:
            return super().decoded(index, size)
        image = decode(self.path(index), self.max_pixels)
        return corner(image, which, size or image.shape[:2])

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Corners:
        """Return the files at `indices`, in that order."""
        rows = [int(i) for i in indices]
        return replace(self, names=tuple(self.names[i] for i in rows), corners=tuple(self.corners[i] for i in rows))

    def digest(self) -> bytes:
        """Return the sha256 of the files' digest and the corners."""
        return hashlib.sha256(super().digest() + bytes(self.corners)).digest()


def corner(image: Pixels, which: int, size: tuple[int, int]) -> Pixels:
    """Return the upper left (1) or right (2) corner of an image, enlarged to (height, width) bilinearly.

    >>> image = np.zeros((12, 8, 3), np.uint8)
    >>> image[:2, -2:] = 9
    >>> int(corner(image, 1, (4, 4)).max()), int(corner(image, 2, (4, 4)).min())
    (0, 9)
    """
    height, width = max(1, image.shape[0] // 6), max(1, image.shape[1] // 4)
    cut = image[:height, :width] if which == LEFT else image[:height, -width:]
    enlarged = Image.fromarray(cut).resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(enlarged)
