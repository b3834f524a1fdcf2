"""GoogLeNet V1 (Szegedy et al. 2015), without the auxiliary heads: as published, and in its port to 32x32 images."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.initialise import caffe_xavier
from reweigh.lab.nets.net import Net


class Widths(NamedTuple):
    """Channels of one inception block: 1x1 | reduce, 3x3 | reduce, 5x5 | pool projection."""

    one: int
    reduce3: int
    three: int
    reduce5: int
    five: int
    pool: int

    @property
    def out(self) -> int:
        """Channels of the concatenated output."""
        return self.one + self.three + self.five + self.pool


BLOCKS = {
    "3a": Widths(64, 96, 128, 16, 32, 32),
    "3b": Widths(128, 128, 192, 32, 96, 64),
    "4a": Widths(192, 96, 208, 16, 48, 64),
    "4b": Widths(160, 112, 224, 24, 64, 64),
    "4c": Widths(128, 128, 256, 24, 64, 64),
    "4d": Widths(112, 144, 288, 32, 64, 64),
    "4e": Widths(256, 160, 320, 32, 128, 128),
    "5a": Widths(256, 160, 320, 32, 128, 128),
    "5b": Widths(384, 192, 384, 48, 128, 128),
}
"""The standard widths, in order; both candidates for "GoogLeNet V1" on 32x32 images use them."""


class GoogLeNetV1(Net):
    """Stem 7x7/2, nine inception blocks with 5x5 branches, no batch norm; 5,983,802 parameters for 10 classes.

    Made for 224x224; on 32x32 the stem and pools leave 4x4 at stage 3, 2x2 at stage 4 and 1x1 at stage 5.
    Poolings round up and local response normalisation follows the stem's poolings, as in Caffe's definition.

    Args:
        num_classes: C.
        dropout: before the classifier (the original: 0.4).
    """

    def __init__(self, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.conv2 = nn.Conv2d(64, 64, 1)
        self.conv3 = nn.Conv2d(64, 192, 3, padding=1)
        self.norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        channels = 192
        for name, widths in BLOCKS.items():
            self.add_module(f"inception{name}", Inception(channels, widths))
            channels = widths.out
        self.fc = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, 1024)."""
        x = self.norm(self.pool(functional.relu(self.conv1(x))))
        x = functional.relu(self.conv3(functional.relu(self.conv2(x))))
        x = self.pool(self.norm(x))
        for name in BLOCKS:
            x = self.get_submodule(f"inception{name}")(x)
            if name in ("3b", "4e"):
                x = self.pool(x)
        return x.mean((2, 3))

    def initialise(self, generator: torch.Generator) -> None:
        """Caffe's: xavier filler, convolutions' biases 0.2, classifier's 0."""
        for module in self.modules():
            caffe_xavier(module, generator, bias=0.0 if module is self.fc else 0.2)


class Inception(nn.Module):
    """Four branches side by side: 1x1, 1x1 - 3x3, 1x1 - 5x5, max pool - 1x1; ReLU after each convolution."""

    def __init__(self, channels: int, widths: Widths) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, widths.one, 1)
        self.reduce3 = nn.Conv2d(channels, widths.reduce3, 1)
        self.three = nn.Conv2d(widths.reduce3, widths.three, 3, padding=1)
        self.reduce5 = nn.Conv2d(channels, widths.reduce5, 1)
        self.five = nn.Conv2d(widths.reduce5, widths.five, 5, padding=2)
        self.project = nn.Conv2d(channels, widths.pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, widths.out, H, W)."""
        branches = (
            self.one(x),
            self.three(functional.relu(self.reduce3(x))),
            self.five(functional.relu(self.reduce5(x))),
            self.project(functional.max_pool2d(x, 3, stride=1, padding=1)),
        )
        return functional.relu(torch.cat(branches, 1))


class GoogLeNetV1Cifar(Net):
    """The common port to 32x32 images: batch norm, a 3x3 stem, two 3x3 convolutions in place of each 5x5.

    Stem 3x3-192, inception blocks at 32x32, 16x16 and 8x8; 6,166,250 parameters for 10 classes.

    Args:
        num_classes: C.
        dropout: before the classifier.
    """

    def __init__(self, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self.stem = chain(3, (192, 3))
        channels = 192
        for name, widths in BLOCKS.items():
            self.add_module(f"inception{name}", InceptionBN(channels, widths))
            channels = widths.out
        self.fc = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, 1024)."""
        x = self.stem(x)
        for name in BLOCKS:
            x = self.get_submodule(f"inception{name}")(x)
            if name in ("3b", "4e"):
                x = functional.max_pool2d(x, 3, stride=2, padding=1)
        return x.mean((2, 3))


class InceptionBN(nn.Module):
    """Four branches side by side: 1x1, 1x1 - 3x3, 1x1 - 3x3 - 3x3, max pool - 1x1."""

    def __init__(self, channels: int, widths: Widths) -> None:
        super().__init__()
        self.one = chain(channels, (widths.one, 1))
        self.three = chain(channels, (widths.reduce3, 1), (widths.three, 3))
        self.five = chain(channels, (widths.reduce5, 1), (widths.five, 3), (widths.five, 3))
        self.project = chain(channels, (widths.pool, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, widths.out, H, W)."""
        pooled = functional.max_pool2d(x, 3, stride=1, padding=1)
        return torch.cat((self.one(x), self.three(x), self.five(x), self.project(pooled)), 1)


def chain(channels: int, *layers: tuple[int, int]) -> nn.Sequential:
    """conv - BN - ReLU for each (width, kernel size); the convolutions keep their bias, as in the port."""
    modules: list[nn.Module] = []
    for width, size in layers:
        modules += [nn.Conv2d(channels, width, size, padding=size // 2), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*modules)
