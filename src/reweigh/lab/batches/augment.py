"""Augmentation of uint8 images: every crop of every image is a window of one tensor, so a batch is one gather.

The images are laid out once, enlarged by padding or resizing (the *canvas*); a crop is a window that starts at
some element of it, and `cut` gathers all windows of a batch at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from reweigh.streams import generator


@dataclass(frozen=True)
class Augmentation:
    """What happens to a training image; crops always have the size of the original.

    Args:
        pad: zero pixels added on every side before the random crop.
        enlarge: pixels by which the image is resized (bilinear) before the random crop; instead of `pad`.
        flip: exchange left and right with probability 1/2.
    """

    pad: int = 0
    enlarge: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if self.pad < 0 or self.enlarge < 0 or (self.pad and self.enlarge):
            raise ValueError(f"one of pad and enlarge may be positive, the other 0; not {self.pad} and {self.enlarge}")

    @property
    def room(self) -> int:
        """The largest offset of a crop."""
        return self.enlarge + 2 * self.pad


AUGMENTATIONS = {
    "none": Augmentation(),
    "pad-crop-flip": Augmentation(pad=4, flip=True),  # as the paper's text says
    "resize-crop-flip": Augmentation(enlarge=4, flip=True),  # as its authors ran: 36x36, crop 32
}


def canvas(images: NDArray[np.uint8], augmentation: Augmentation) -> Tensor:
    """Images (N, H, W, C) as one contiguous uint8 tensor (N, C, H + room, W + room).

    Padding is zero pixels, black before normalisation. Resizing is bilinear with pixel centres aligned as in
    Pillow and OpenCV (`align_corners=False`), rounded to whole pixel values (halves to even).
    """
    n, height, width, channels = images.shape
    pad, room = augmentation.pad, augmentation.room
    whole = np.zeros((n, channels, height + room, width + room), np.uint8)
    if not augmentation.enlarge:
        whole[:, :, pad : pad + height, pad : pad + width] = images.transpose(0, 3, 1, 2)
        return torch.from_numpy(whole)
    result = torch.from_numpy(whole)
    for i in range(0, n, 1024):  # a thousand at a time: the floats of a whole data set would not fit
        chunk = torch.from_numpy(images[i : i + 1024].transpose(0, 3, 1, 2).astype(np.float32))
        large = functional.interpolate(chunk, size=result.shape[2:], mode="bilinear", align_corners=False)
        result[i : i + 1024] = large.round_().to(torch.uint8)
    return result


def draw(seed: int, steps: range, batch_size: int, room: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Random `top`, `left` and `flip` (0 or 1), each (len(steps), batch_size) int64: a function of (seed, step).

    Args:
        seed: of the run; the stream is "augment".
        steps: which steps.
        batch_size: draws per step.
        room: the largest top and left offset.
    """
    rows, columns = room[0] + 1, room[1] + 1
    draws = [
        torch.randint(2 * rows * columns, (batch_size,), generator=generator(seed, "augment", step)) for step in steps
    ]
    code = torch.stack(draws) if draws else torch.empty(0, batch_size, dtype=torch.int64)
    place = code // 2
    return place // columns, place % columns, code % 2


def window_start(shape: torch.Size, index: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """Where in a canvas of that shape the crops of images `index` at (top, left) start, in elements."""
    _, channels, height, width = shape
    return index * (channels * height * width) + top * width + left


def cut(canvas: Tensor, start: Tensor, size: tuple[int, int]) -> Tensor:
    """The windows of `size` (height, width) at `start`, (B, C, height, width) uint8, in one gather."""
    _, channels, height, width = canvas.shape
    strides = (1, height * width, width, 1)
    extent = (channels - 1) * strides[1] + (size[0] - 1) * strides[2] + size[1]
    # Overlapping views of the same memory, one for every element a window could start at: nothing is copied.
    windows = canvas.as_strided((canvas.numel() - extent + 1, channels, *size), strides)
    return windows.index_select(0, start)


def mirror(images: Tensor, flip: Tensor) -> Tensor:
    """Images (B, C, H, W), left and right exchanged where `flip` (B,) is 1."""
    rows = torch.arange(len(images), device=images.device) + len(images) * flip
    return torch.cat((images, images.flip(-1))).index_select(0, rows)


def centre(canvas: Tensor, size: tuple[int, int]) -> Tensor:
    """The middle crop of every image, a view (N, C, height, width): what evaluation sees."""
    top, left = ((have - want) // 2 for have, want in zip(canvas.shape[2:], size, strict=True))
    return canvas[:, :, top : top + size[0], left : left + size[1]]


def normalise(images: Tensor, scale: Tensor, shift: Tensor, *, channels_last: bool = False) -> Tensor:
    """uint8 (B, C, H, W) to float32, x * scale + shift per channel."""
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    out = images.to(torch.float32, memory_format=memory_format)
    return out.mul_(scale.view(-1, 1, 1)).add_(shift.view(-1, 1, 1))
