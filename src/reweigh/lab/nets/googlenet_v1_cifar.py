"""GoogLeNet V1 in its common port to 32x32 images: batch norm, a 3x3 stem, two 3x3 in place of each 5x5."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.googlenet_v1 import BLOCKS, Widths
from reweigh.lab.nets.net import Net


class GoogLeNetV1Cifar(Net):
    """Stem 3x3-192, inception blocks at 32x32, 16x16 and 8x8; 6,166,250 parameters for 10 classes.

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
