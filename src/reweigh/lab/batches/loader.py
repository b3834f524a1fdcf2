"""Batches of images that worker processes decode from files on demand."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from copy import copy
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from reweigh.errors import DataError
from reweigh.lab.batches.augment import distort, draw, draw_distortions, normalise
from reweigh.lab.batches.batch import Batch, Images, label_tensor
from reweigh.lab.batches.sampler import Order, checked
from reweigh.lab.batches.statistics import Normalisation

BLOCK = 32  # steps planned at once


class Loader:
    """A part of a data set in files; its batches do not depend on the number of workers.

    An image is resized to exactly `resize`, without keeping its proportions (Pillow's bilinear), then cropped: at
    random and possibly mirrored for training, in the centre for evaluation. The main process draws all random numbers
    as a function of (seed, step, position); workers only decode.

    Args:
        files: a sequence of decoded images, uint8 (H, W, 3), such as `reweigh.lab.data`'s `Files`; with workers it
            must be picklable unless processes are forked.
        labels: (N,) integers or (N, C) soft labels.
        normalisation: from `channel_statistics` of the *training* part; None leaves pixels from 0 to 1.
        order: step -> examples; None for evaluation only.
        seed: of the augmentation; the stream is "augment".
        resize: (height, width) to which every image is resized: (256, 128) for MARS at full size.
        crop: (height, width) of the net's inputs.
        augment: crop training images at random and mirror them with probability 1/2, instead of the centre crop.
        distorts: also distort training images (`reweigh.lab.batches.augment.distort`).
        workers: processes that decode; 0 decodes in this process.
        context: how they are started ("fork", "forkserver", "spawn"); None is Python's default.
        device: of the batches.
        channels_last: memory format of the inputs.
        shard: the positions of every batch that belong to this process, where several share a run; None for all.
    """

    def __init__(
        self,
        files: Images,
        labels: NDArray[Any] | Tensor,
        *,
        normalisation: Normalisation | None = None,
        order: Order | None = None,
        seed: int = 0,
        resize: tuple[int, int] = (256, 256),
        crop: tuple[int, int] = (224, 224),
        augment: bool = True,
        distorts: bool = False,
        workers: int = 2,
        context: str | None = None,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        shard: slice | None = None,
    ) -> None:
        if min(crop) < 1 or crop[0] > resize[0] or crop[1] > resize[1]:
            raise ValueError(f"crop must lie within resize {resize}, not {crop}")
        if workers < 0:
            raise ValueError(f"workers must be 0 or more, not {workers}")
        self.device = torch.device(device)
        self.labels = label_tensor(labels, len(files), self.device)
        self.order, self.seed, self.augment, self.channels_last = order, seed, augment, channels_last
        self.distorts = distorts and augment
        self.workers, self.context, self.shard = workers, context, shard
        self.room = resize[0] - crop[0], resize[1] - crop[1]
        self._crops = Crops(files, resize, crop)
        self._affine = (normalisation or Normalisation((0.0,) * 3, (1.0,) * 3)).pixels(self.device)

    def __len__(self) -> int:
        return len(self._crops)

    def with_labels(self, labels: NDArray[Any] | Tensor) -> Loader:
        """Return the same images in the same order with other labels, hard or soft."""
        other = copy(self)
        other.labels = label_tensor(labels, len(self), self.device)
        return other

    def with_order(self, order: Order, seed: int) -> Loader:
        """Return the same images in another order, augmented with another seed."""
        other = copy(self)
        other.order, other.seed = order, seed
        return other

    def batch(self, step: int) -> Batch:
        """Return the batch of that step, decoded in this process."""
        return self._batch(*self._crops[next(self._plans((step,)))])

    def iterate(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Yield the batches of steps `start`, `start` + 1, ... up to but not including `stop`; endless without it.

        Workers live as long as the iterator; close or delete it to end them.
        """
        return self._through_workers(self._plans(count(start) if stop is None else range(start, stop)))

    def evaluation(self, batch_size: int = 128, rows: Tensor | None = None) -> Iterator[Batch]:
        """Yield every image once in order, or those of `rows`, with the centre crop; the last batch may be shorter."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
        parts = torch.split(torch.arange(len(self)) if rows is None else rows.cpu(), batch_size)
        return self._through_workers(map(self._centred, parts))

    def _centred(self, index: Tensor) -> Tensor:
        """Return the plan (4, B) of images `index` with the centre crop, not mirrored."""
        top, left = (torch.full_like(index, room // 2) for room in self.room)
        return torch.stack((index, top, left, torch.zeros_like(index)))

    def _plans(self, steps: Iterable[int]) -> Iterator[Tensor]:
        """Yield (4, B) int64 for each step: index, top, left, flip."""
        block = range(0)
        for step in steps:
            if step not in block:
                block = range(step, step + BLOCK)
                index = checked(self.order, block, len(self))
                if self.augment:
                    rows = torch.stack((index, *draw(self.seed, block, index.shape[1], self.room)), 1)
                    if self.distorts:
                        rows = torch.cat((rows, draw_distortions(self.seed, block, index.shape[1])), 1)
                else:
                    rows = torch.stack([self._centred(chosen) for chosen in index])
                if self.shard is not None:
                    rows = rows[:, :, self.shard]
            yield rows[step - block.start]

    def _through_workers(self, plans: Iterator[Tensor]) -> Iterator[Batch]:
        loader = DataLoader(
            self._crops,
            batch_size=None,
            sampler=plans,
            num_workers=self.workers,
            multiprocessing_context=self.context if self.workers else None,
            generator=torch.Generator(),  # else the loader draws its base seed from the global one
            pin_memory=self.device.type == "cuda",
            worker_init_fn=_ignore_signals,
        )
        for plan, images in loader:
            yield self._batch(plan, images)

    def _batch(self, plan: Tensor, images: Tensor | str) -> Batch:
        if isinstance(images, str):
            raise DataError(images)
        index = plan[0].to(self.device, non_blocking=True)
        pixels = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        if len(plan) > 4:
            pixels = distort(pixels, plan[4:].to(self.device, non_blocking=True))
        inputs = normalise(pixels, *self._affine, channels_last=self.channels_last)
        return Batch(inputs, self.labels.index_select(0, index), index)


def _ignore_signals(worker: int) -> None:
    """Leave a stop that is sent to all processes to the parent; torch ends the workers after it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class Crops(Dataset[tuple[Tensor, Tensor | str]]):
    """The work of a worker: a plan (4, B) of index, top, left, flip -> the plan and uint8 images (B, h, w, 3).

    For a file that cannot be read, the error message replaces the images. Raised here, the error would reach the user
    wrapped in the worker's traceback, after waiting for the other workers.

    Args:
        files: decoded images.
        resize: (height, width) after resizing.
        crop: (height, width) after cropping.
    """

    def __init__(self, files: Images, resize: tuple[int, int], crop: tuple[int, int]) -> None:
        self.files, self.resize, self.crop = files, resize, crop

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, plan: Tensor) -> tuple[Tensor, Tensor | str]:
        images = np.empty((plan.shape[1], *self.crop, 3), np.uint8)
        for out, (index, top, left, flip) in zip(images, plan[:4].T.tolist(), strict=True):
            try:
                image = resized(self.files[index], self.resize)
            except DataError as error:
                return plan, str(error)
            part = image[top : top + self.crop[0], left : left + self.crop[1]]
            out[:] = part[:, ::-1] if flip else part
        return plan, torch.from_numpy(images)


def resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize an image to exactly `size` (height, width), bilinear; one of that size is returned unchanged.

    >>> resized(np.zeros((10, 20, 3), np.uint8), (4, 6)).shape
    (4, 6, 3)
    """
    if image.shape[:2] == size:
        return image
    return np.asarray(Image.fromarray(image).resize((size[1], size[0]), Image.Resampling.BILINEAR))
