"""D2L (Ma 2018): trust the labels less once the intrinsic dimension of the features begins to grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from reweigh.checks import integer
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch, constant_graph, eval_mode, snapshot
from reweigh.lab.methods.device_values import DeviceNumber
from reweigh.lab.methods.protocol import Context
from reweigh.lab.nets import Net
from reweigh.losses.smoothing import bootstrapped
from reweigh.margin import at_least_float32
from reweigh.streams import generator

_BATCHES, _SIZE = 10, 128


class D2L(BaseMethod):
    """Hard bootstrapping with β = α_i, which falls after the turning point: α_i = exp(-(i / epochs) LID_i / min LID).

    At the start of every epoch i, LID_i is the mean local intrinsic dimension of the penultimate features of 1,280
    training images in 10 batches, in evaluation mode and without augmentation. Before the turning point α = 1, which
    is cross entropy. At the turning point the net is reset to its weights of one epoch before, as in the paper; the
    optimiser's momentum is not. The published program does not reset the net: it loads the file that it has just saved.

    The minimum includes the untrained net, as published: if its features have few dimensions, α falls at once and the
    net learns little besides its own predictions. This may be why a ResNet-44 on tin100 fell to chance
    (docs/results-tin100.md); its α was not recorded.

    Args:
        start: epochs (plus `window`) before a turning point can come; published are 40 for CIFAR-10, 60 for CIFAR-100.
        window: number of epochs whose mean and deviation LID_i is compared with.
        k: neighbours.
    """

    times: ClassVar[dict[str, int]] = {"start": 0, "window": 2}
    saved: ClassVar[tuple[str, ...]] = ("dimensions", "turned", "alpha", "previous")
    capture_key = constant_graph

    def __init__(self, context: Context, start: int = 40, window: int = 5, k: int = 20) -> None:
        super().__init__(context)
        if not isinstance(context.net, Net):
            raise TypeError(f"D2L needs a net with features, not {type(context.net).__name__}")
        self.body = context.net
        self.window: int = integer(2)("D2L's window", window)
        first = integer(0)("D2L's start", start) + self.window
        self.start = check_start_epoch(context, "D2L's start with its window", first) - self.window
        self.k: int = integer(1, _SIZE - 1)("D2L's k", k)
        if len(context.labels) <= self.k:
            raise ValueError(f"D2L's k is {k}, which needs more than {k} training examples, not {len(context.labels)}")
        self.dimensions: list[float] = []
        self.turned = False
        self.alpha = 1.0
        self.beta = DeviceNumber(context.device)
        self.previous: dict[str, Tensor] | None = None

    def prepare(self, step: int, size: int) -> None:
        self.beta.set(self.alpha)

    def loss(self, batch: Batch, step: int) -> Tensor:
        if not self.dimensions:
            self.begin(0)
        logits = at_least_float32(self.net(batch.inputs))
        beta = cast(Any, self.beta.set(self.alpha))  # a number, in a tensor
        return bootstrapped(logits, batch.target, beta).mean()

    def epoch_end(self, epoch: int) -> None:
        if (epoch + 1) * self.context.epoch < self.context.total:  # no epoch follows the last one
            self.begin(epoch + 1)

    def begin(self, epoch: int) -> None:
        """Measure the dimension at the start of an epoch, and turn or update α."""
        self.dimensions.append(self.dimension(epoch))
        if not self.turned and self.previous is not None and turns(self.dimensions, self.start, self.window):
            self.turned = True
            self.net.load_state_dict(self.previous)
        if self.turned:
            progress = epoch * self.context.epoch / self.context.total
            self.alpha = trust(progress, self.dimensions)
        self.previous = None if self.turned else snapshot(self.net)

    def dimension(self, epoch: int) -> float:
        """Return the mean LID of a new sample of training images."""
        images = self.sample(epoch)
        # without autocast, which is on at the start of the first epoch only
        with eval_mode(self.net), torch.autocast(images.device.type, enabled=False):
            found = [
                intrinsic_dimension(self.body.features(part), self.k)
                for part in torch.split(images, _SIZE)
                if len(part) > self.k
            ]
        return torch.cat(found).mean().item()

    def sample(self, epoch: int) -> Tensor:
        """Return up to 1,280 random training inputs in random order, unaugmented."""
        size = len(self.context.labels)
        chosen = torch.randperm(size, generator=generator(self.context.seed, "lid", epoch))[: _BATCHES * _SIZE]
        return torch.cat([batch.inputs for batch in self.context.batches.evaluation(rows=chosen)])


def trust(progress: float, dimensions: list[float]) -> float:
    """Return α = exp(-progress · LID_i / min_j LID_j).

    >>> round(trust(1 / 3, [5.0, 4.0, 4.0]), 2)
    0.72
    """
    return math.exp(-progress * dimensions[-1] / min(dimensions))


def intrinsic_dimension(features: Tensor, k: int = 20) -> Tensor:
    """Return (B,) LID = -1 / mean_j log(r_j / r_k), r_1 <= ... <= r_k the smallest distances to others in the batch.

    Args:
        features: (B, d), B > k.
        k: neighbours.
    """
    if len(features) <= k:
        raise ValueError(f"k is {k}, so the batch needs more than {k} rows, not {len(features)}")
    points = features.detach().flatten(1).double()
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)
    nearest = distances.topk(k, largest=False).values.sort(1).values
    farthest = nearest[:, -1:].clamp_min(1e-30)  # identical images
    return -1 / (nearest / farthest + 1e-8).log().mean(1).clamp_max(-1e-8)


def turns(dimensions: Sequence[float], start: int, window: int = 5) -> bool:
    """Return whether the last dimension is more than two deviations above the mean of the `window` before it.

    False before epoch start + window, counted from 0, and if a dimension is not finite, because training diverged.

    >>> turns([9, 8, 7, 6, 5, 10], start=0), turns([9, 8, 7, 6, 5, 4], start=0), turns([9, 8, 7, 6, 5, 10], start=1)
    (True, False, False)
    """
    epoch = len(dimensions) - 1
    if epoch < start + window or not all(map(math.isfinite, dimensions[-window - 1 :])):
        return False
    before = dimensions[-window - 1 : -1]
    return dimensions[-1] - fmean(before) > 2 * pstdev(before)
