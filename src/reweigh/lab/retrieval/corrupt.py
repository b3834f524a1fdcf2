"""Abnormal frames made on purpose, so that robustness can be measured where the truth is known.

    background    a corner of the frame in its place: the detector caught nobody
    stranger      another person's frame in its place: the tracker jumped
    identity      the frame stays, its label becomes another person's

The boxes of MARS are tight around people and hold little background but in their corners, so a background is an upper
corner, left or right, a sixth of the frame's height and a quarter of its width, enlarged to the whole frame. In some a
shoulder shows, or another person.
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
INTACT, BACKGROUND, STRANGER, IDENTITY = range(4)
NOBODY = -1
WHOLE, LEFT, RIGHT = range(3)


class Corrupted(NamedTuple):
    """Frames of which some are abnormal.

    Attributes:
        part: the frames as given, to train on: a lazy view of the files, or an array where they were in memory.
        clean: (N,) int64, the class of the person who is really seen; -1 where it is nobody.
        kinds: (N,) int8, what was done to each: 0 nothing, then the place in `KINDS` from 1.
    """

    part: Part
    clean: Labels
    kinds: NDArray[np.int8]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """(N,), which frames are abnormal."""
        mask: NDArray[np.bool_] = self.kinds != INTACT
        return mask


def corrupt_frames(part: Part, rate: float, seed: int = 0, kinds: Sequence[str] = KINDS) -> Corrupted:
    """A given share of the frames made abnormal, by each of `kinds` equally many.

    round(rate N) frames are drawn without regard to class or tracklet. A stranger, or a new identity, is drawn evenly
    from the frames of all other classes (a stranger), or from all other classes (an identity).

    Args:
        part: frames, as files or in memory, and the classes of the persons in them.
        rate: from 0 to 1.
        seed: the stream is "frames".
        kinds: some of `KINDS`.

    >>> part = Part(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 0, 1, 1]))
    >>> found = corrupt_frames(part, 0.5, seed=0, kinds=["identity"])
    >>> int(found.wrong.sum()), bool((found.wrong == (found.part.labels != found.clean)).all())
    (2, True)
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must be from 0 to 1, not {rate}")
    if not kinds or any(kind not in KINDS for kind in kinds) or len(set(kinds)) != len(kinds):
        raise ValueError(f"kinds must be some of {', '.join(KINDS)}, not {', '.join(map(str, kinds)) or 'none'}")
    if part.kind not in ("files", "images"):
        raise ValueError(f"frames must be images, not {part.kind}")
    labels = part.labels
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(f"strangers and other identities need two classes or more, not {len(classes)}")
    random = numpy_generator(seed, "frames")
    chosen = random.permutation(len(labels))[: round(rate * len(labels))]
    done = np.zeros(len(labels), dtype=np.int8)
    done[chosen] = np.array([KINDS.index(kind) + 1 for kind in kinds])[np.arange(len(chosen)) % len(kinds)]

    corners = np.where(done == BACKGROUND, random.integers(LEFT, RIGHT + 1, len(labels)), WHOLE)
    source, given = np.arange(len(labels)), labels.copy()
    by_class = np.argsort(labels, kind="stable")
    ordered = labels[by_class]
    for frame in np.flatnonzero(done == STRANGER):
        first, last = np.searchsorted(ordered, (labels[frame], labels[frame] + 1))
        other = random.integers(len(labels) - (last - first))
        source[frame] = by_class[other if other < first else other + last - first]
    for frame in np.flatnonzero(done == IDENTITY):
        others = classes[classes != labels[frame]]
        given[frame] = others[random.integers(len(others))]
    clean = np.where(done == BACKGROUND, NOBODY, labels[source])
    return Corrupted(Part(_shown(part.inputs, source, corners), given), clean, done)


def _shown(inputs: object, source: Labels, corners: Labels) -> Files | Pixels:
    if isinstance(inputs, Files):
        taken = inputs.take(source)
        return Corners(taken.root, taken.names, taken.max_pixels, tuple(corners.tolist()))
    assert isinstance(inputs, np.ndarray)
    pixels: Pixels = inputs[source]
    for frame in np.flatnonzero(corners != WHOLE):
        pixels[frame] = corner(pixels[frame], int(corners[frame]), pixels.shape[1:3])
    return pixels


@dataclass(frozen=True)
class Corners(Files):
    """Files of which some show only a corner.

    Args:
        corners: for each file 0 (the whole of it), 1 (upper left) or 2 (upper right).
    """

    corners: tuple[int, ...] = ()

    def decoded(self, index: int, size: tuple[int, int] | None = None) -> Pixels:
        """The image, or the corner in its size; or either in `size`."""
        which = self.corners[index]
        if which == WHOLE:
            return super().decoded(index, size)
        whole = decode(self.path(index), self.max_pixels)
        return corner(whole, which, size or whole.shape[:2])

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Corners:
        """The files at `indices`, in that order."""
        rows = [int(i) for i in indices]
        return replace(self, names=tuple(self.names[i] for i in rows), corners=tuple(self.corners[i] for i in rows))

    def digest(self) -> bytes:
        """sha256 over the files' digest and what is shown of each."""
        return hashlib.sha256(super().digest() + bytes(self.corners)).digest()


def corner(image: Pixels, which: int, size: tuple[int, int]) -> Pixels:
    """The upper left (1) or right (2) corner of an image, enlarged to (height, width), bilinear.

    >>> image = np.zeros((12, 8, 3), np.uint8)
    >>> image[:2, -2:] = 9
    >>> int(corner(image, 1, (4, 4)).max()), int(corner(image, 2, (4, 4)).min())
    (0, 9)
    """
    height, width = max(1, image.shape[0] // 6), max(1, image.shape[1] // 4)
    cut = image[:height, :width] if which == LEFT else image[:height, -width:]
    enlarged = Image.fromarray(cut).resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(enlarged)
