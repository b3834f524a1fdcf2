"""ResNet-20/32/44/56 for 32x32 images (He et al. 2016, section 4.2): depth 6n + 2, widths 16/32/64."""

from __future__ import annotations

from typing import Literal

from reweigh.lab.nets.resnet import Basic, ResNet


def resnet_cifar(
    depth: int, num_classes: int, *, shortcut: Literal["A", "projection"] = "A", dropout: float = 0.0
) -> ResNet:
    """Three stages of n = (depth - 2) / 6 basic blocks.

    Args:
        depth: 6n + 2: 20, 32, 44, 56, ...
        num_classes: C.
        shortcut: `"A"` takes every second pixel and pads channels with zeros, without parameters (He et al.);
            `"projection"` is a 1x1 convolution and batch norm, as the paper's authors ran ResNet-44.
        dropout: before the classifier.
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth must be 6n + 2 (8, 14, 20, 32, 44, 56, ...), not {depth}")
    if shortcut not in ("A", "projection"):
        raise ValueError(f'shortcut must be "A" or "projection", not {shortcut!r}')
    return ResNet(Basic, (blocks,) * 3, (16, 32, 64), num_classes, padded=shortcut == "A", dropout=dropout)
