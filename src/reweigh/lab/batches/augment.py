"""Augmentation of uint8 images on the device: every crop is a window of one tensor, so a batch is one gather.

All images are stored once in one tensor, padded or resized (the *canvas*). A crop is a window that starts at some
element of it, and `cut` gathers all windows of a batch in one operation.
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
    """How training images are augmented; crops always have the size of the original.

    Args:
        pad: zero pixels added on every side before the random crop.
        enlarge: pixels by which the image is enlarged (bilinear) before the random crop; excludes `pad`.
        flip: mirror with probability 1/2.
        distorts: also apply `distort`.
    """

    pad: int = 0
    enlarge: int = 0
    flip: bool = False
    distorts: bool = False

    def __post_init__(self) -> None:
        if self.pad < 0 or self.enlarge < 0 or (self.pad and self.enlarge):
            raise ValueError(f"one of pad and enlarge may be positive, the other 0; not {self.pad} and {self.enlarge}")

    @property
    def room(self) -> int:
        """The largest offset of a crop."""
        return self.enlarge + 2 * self.pad


AUGMENTATIONS = {
    "none": Augmentation(),
    "pad-crop-flip": Augmentation(pad=4, flip=True),  # as in the paper's text
    "resize-crop-flip": Augmentation(enlarge=4, flip=True),  # as in its authors' program: 36x36, crop 32
    "strong": Augmentation(pad=4, flip=True, distorts=True),
}
DRAWS = 8
"""Random numbers of an image for `distort`."""
_ONE = 2**24  # a draw is a whole number below it


def canvas(images: NDArray[np.uint8], augmentation: Augmentation) -> Tensor:
    """Return images (N, H, W, C) as one contiguous uint8 tensor (N, C, H + room, W + room).

    Padding is zero pixels, black before normalisation. Resizing is bilinear with pixel centres aligned as in
    Pillow and OpenCV (`align_corners=False`), rounded to whole pixel values (halves to even).
    """
    n, height, width, channels = images.shape
    pad, room = augmentation.pad, augmentation.room
    padded = np.zeros((n, channels, height + room, width + room), np.uint8)
    if not augmentation.enlarge:
        padded[:, :, pad : pad + height, pad : pad + width] = images.transpose(0, 3, 1, 2)
        return torch.from_numpy(padded)
    result = torch.from_numpy(padded)
    for i in range(0, n, 1024):  # in chunks, because a data set in float32 may not fit in memory
        chunk = torch.from_numpy(images[i : i + 1024].transpose(0, 3, 1, 2).astype(np.float32))
        large = functional.interpolate(chunk, size=result.shape[2:], mode="bilinear", align_corners=False)
        result[i : i + 1024] = large.round_().to(torch.uint8)
    return result


def draw(seed: int, steps: range, batch_size: int, room: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Draw `top`, `left` and `flip` (0 or 1), each (len(steps), batch_size) int64, as a function of (seed, step).

    Args:
        seed: of the run; the stream is "augment".
        steps: the steps.
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


def draw_distortions(seed: int, steps: range, batch_size: int) -> Tensor:
    """Draw the numbers of `distort`, (len(steps), DRAWS, batch_size) int64, as a function of (seed, step)."""
    size = DRAWS, batch_size
    return torch.stack([torch.randint(_ONE, size, generator=generator(seed, "distort", step)) for step in steps])


def distort(images: Tensor, draws: Tensor) -> Tensor:
    """Zoom into uint8 images (B, C, H, W), change their colours and erase a square; return float32 from 0 to 255.

    A crop of 50 to 100 % of the area is enlarged to the image; brightness, contrast and saturation change by up to
    40 %; a square of a quarter of the area or less, at a random place, becomes grey.

    Args:
        images: uint8.
        draws: (DRAWS, B) from `draw_distortions`.
    """
    zoom, right, down, bright, contrast, colour, column, row = (draws.to(torch.float32) / _ONE).unbind()
    x = images.to(torch.float32)
    side = (0.5 + 0.5 * zoom).sqrt()
    zero = torch.zeros_like(side)
    shift = [(2 * offset - 1) * (1 - side) for offset in (right, down)]
    affine = torch.stack([torch.stack([side, zero, shift[0]], 1), torch.stack([zero, side, shift[1]], 1)], 1)
    grid = functional.affine_grid(affine, list(x.shape), align_corners=False)
    x = functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    factors = [(0.6 + 0.8 * draw)[:, None, None, None] for draw in (bright, contrast, colour)]
    x = x * factors[0]
    mean = x.mean((1, 2, 3), keepdim=True)
    x = mean + (x - mean) * factors[1]
    grey = x.mean(1, keepdim=True)
    x = (grey + (x - grey) * factors[2]).clamp(0, 255)
    ys, xs = (torch.linspace(0, 1, size, device=x.device) for size in x.shape[2:])
    erased = ((ys[None] - row[:, None]).abs() < 0.25)[:, None, :, None] & ((xs[None] - column[:, None]).abs() < 0.25)[
        :, None, None, :
    ]
    return x.masked_fill(erased, 127.5)


def window_start(shape: torch.Size, index: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """Return the elements of a canvas of that shape where the crops of images `index` at (top, left) start."""
    _, channels, height, width = shape
    return index * (channels * height * width) + top * width + left


def cut(canvas: Tensor, start: Tensor, size: tuple[int, int]) -> Tensor:
    """Gather the windows of `size` (height, width) at `start`, (B, C, height, width) uint8."""
    _, channels, height, width = canvas.shape
    strides = (1, height * width, width, 1)
    extent = (channels - 1) * strides[1] + (size[0] - 1) * strides[2] + size[1]
    # Overlapping views of the same memory, one for every element where a window could start; nothing is copied.
    windows = canvas.as_strided((canvas.numel() - extent + 1, channels, *size), strides)
    return windows.index_select(0, start)


def mirror(images: Tensor, flip: Tensor) -> Tensor:
    """Mirror the images (B, C, H, W) where `flip` (B,) is 1."""
    rows = torch.arange(len(images), device=images.device) + len(images) * flip
    return torch.cat((images, images.flip(-1))).index_select(0, rows)


def centre(canvas: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the centre crop of every image, as used in evaluation: a view (N, C, height, width)."""
    top, left = ((have - want) // 2 for have, want in zip(canvas.shape[2:], size, strict=True))
    return canvas[:, :, top : top + size[0], left : left + size[1]]


def normalise(images: Tensor, scale: Tensor, shift: Tensor, *, channels_last: bool = False) -> Tensor:
    """Convert uint8 (B, C, H, W) to float32 as x * scale + shift per channel."""
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    out = images.to(torch.float32, memory_format=memory_format)
    return out.mul_(scale.view(-1, 1, 1)).add_(shift.view(-1, 1, 1))
