"""Batches of a data set that is stored on the device: uint8 images or float32 features."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.lab.batches.augment import (
    AUGMENTATIONS,
    Augmentation,
    canvas,
    centre,
    cut,
    distort,
    draw,
    draw_distortions,
    mirror,
    normalise,
    window_start,
)
from reweigh.lab.batches.batch import Batch, label_tensor
from reweigh.lab.batches.sampler import Order, checked
from reweigh.lab.batches.statistics import Normalisation

BLOCK = 128  # steps planned at once, with one copy to the device


class Resident:
    """A part of a data set on one device, and its batches by step number.

    `batch(step)` depends only on the order, the seed and the step, and on a GPU never waits for the device. Features
    are never augmented. Evaluation uses the centre crop: the image itself, or, where training crops enlarged images,
    the centre of the enlarged one, so that the scale is that of training.

    Args:
        inputs: images (N, H, W, C) uint8, or features (N, F) float32.
        labels: (N,) integers or (N, C) soft labels.
        order: step -> examples, e.g. `Shuffled(n, batch_size, seed)`; None for evaluation only.
        seed: of the augmentation; the stream is "augment".
        augmentation: an `Augmentation`, or a name in `AUGMENTATIONS`; images only.
        normalisation: from `channel_statistics` or `feature_statistics` of the *training* part; None leaves
            pixels from 0 to 1, and features as they are.
        device: where everything is stored.
        channels_last: memory format of image batches.
        shard: the positions of every batch that belong to this process, where several share a run; None for all.

    >>> from reweigh.lab.batches.sampler import Shuffled
    >>> images = np.zeros((10, 32, 32, 3), np.uint8)
    >>> resident = Resident(images, np.arange(10), order=Shuffled(10, 4, seed=0), augmentation="pad-crop-flip")
    >>> batch = resident.batch(7)
    >>> batch.inputs.shape, bool((batch.target == batch.index).all())
    (torch.Size([4, 3, 32, 32]), True)
    """

    def __init__(
        self,
        inputs: NDArray[Any],
        labels: NDArray[Any] | Tensor,
        *,
        order: Order | None = None,
        seed: int = 0,
        augmentation: Augmentation | str = "none",
        normalisation: Normalisation | None = None,
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        shard: slice | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.shard = shard
        self.order, self.seed, self.channels_last = order, seed, channels_last
        self.augmentation = _named(augmentation)
        self.size: tuple[int, int] | None = None  # of an image; None for features
        width = inputs.shape[-1]
        if normalisation is None:
            normalisation = Normalisation((0.0,) * width, (1.0,) * width)
        if len(normalisation.mean) != width:
            raise ValueError(f"normalisation is for {len(normalisation.mean)} channels, inputs have {width}")
        if inputs.ndim == 4 and inputs.dtype == np.uint8:
            self.size = inputs.shape[1], inputs.shape[2]
            self._store = canvas(inputs, self.augmentation).to(self.device)
            self._scale, self._shift = normalisation.pixels(self.device)
        elif inputs.ndim == 2 and inputs.dtype == np.float32:
            if self.augmentation != Augmentation():
                raise ValueError("augmentation must be 'none' for features; only images can be augmented")
            self._store = torch.from_numpy(normalisation.features(inputs)).to(self.device)
        else:
            raise ValueError(
                "inputs must be images (N, H, W, C) of uint8 or features (N, F) of float32, "
                f"not {inputs.shape} of {inputs.dtype}"
            )
        self.labels = label_tensor(labels, len(inputs), self.device)
        self._block: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        return len(self._store)

    def with_labels(self, labels: NDArray[Any] | Tensor) -> Resident:
        """Return the same examples in the same order with other labels, hard or soft; the inputs are shared."""
        other = copy(self)
        other.labels = label_tensor(labels, len(self), self.device)
        return other

    def with_order(self, order: Order, seed: int) -> Resident:
        """Return the same examples in another order, augmented with another seed."""
        other = copy(self)
        other.order, other.seed, other._block = order, seed, None
        return other

    def batch(self, step: int) -> Batch:
        """Return the batch of that step; steps can be requested in any order."""
        return self.assemble(self.plan(step))

    def iterate(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Yield the batches of steps `start`, `start` + 1, ... up to but not including `stop`; endless without it."""
        for step in count(start) if stop is None else range(start, stop):
            yield self.batch(step)

    def plan(self, step: int) -> Tensor:
        """Return (3, B) int64 on the device: index, window start and flip of the batch of that step.

        With distortions, their draws follow.

        The CPU plans `BLOCK` steps at once. Before a captured graph of `assemble` is replayed, only the plan must be
        copied into its fixed tensor.
        """
        if step < 0:
            raise ValueError(f"step must be 0 or more, not {step}")
        number = step // BLOCK
        if self._block is None or self._block[0] != number:
            self._block = number, self._planned(range(number * BLOCK, (number + 1) * BLOCK))
        return self._block[1][step % BLOCK]

    def assemble(self, plan: Tensor) -> Batch:
        """Return the batch of a plan, using only device operations of fixed shape."""
        index, start, flip, *draws = plan.unbind()
        target = self.labels.index_select(0, index)
        if self.size is None:
            return Batch(self._store.index_select(0, index), target, index)
        images = cut(self._store, start, self.size)
        if self.augmentation.flip:
            images = mirror(images, flip)
        if draws:
            images = distort(images, torch.stack(draws))
        return Batch(self._normalised(images), target, index)

    def evaluation(self, batch_size: int = 1024, rows: Tensor | None = None) -> Iterator[Batch]:
        """Yield every example once in order, or those of `rows`, not augmented; the last batch may be shorter."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
        examples = self._store if self.size is None else centre(self._store, self.size)
        index = torch.arange(len(self), device=self.device) if rows is None else rows.to(self.device)
        for i in range(0, len(index), batch_size):
            here = index[i : i + batch_size]
            part = slice(i, i + batch_size) if rows is None else here  # a slice copies nothing
            inputs = examples[part] if self.size is None else self._normalised(examples[part])
            yield Batch(inputs, self.labels[part], here)

    def _normalised(self, images: Tensor) -> Tensor:
        return normalise(images, self._scale, self._shift, channels_last=self.channels_last)

    def _planned(self, steps: range) -> Tensor:
        index = checked(self.order, steps, len(self))
        room = self.augmentation.room
        top, left, flip = draw(self.seed, steps, index.shape[1], (room, room))
        start = index if self.size is None else window_start(self._store.shape, index, top, left)
        plan = torch.stack((index, start, flip), 1)
        if self.augmentation.distorts:
            plan = torch.cat((plan, draw_distortions(self.seed, steps, index.shape[1])), 1)
        if self.shard is not None:
            plan = plan[:, :, self.shard].contiguous()
        if self.device.type == "cuda":
            plan = plan.pin_memory()  # so that the copy does not wait for the device
        return plan.to(self.device, non_blocking=True)


def _named(augmentation: Augmentation | str) -> Augmentation:
    if isinstance(augmentation, Augmentation):
        return augmentation
    if augmentation not in AUGMENTATIONS:
        raise ValueError(f"augmentation must be one of {', '.join(AUGMENTATIONS)}, not {augmentation!r}")
    return AUGMENTATIONS[augmentation]
