"""GoogLeNet V2 = BN-Inception (Ioffe and Szegedy 2015), widths and names of its Caffe lineage."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.net import Net


class Widths(NamedTuple):
    """Channels of one block: 1x1 | reduce, 3x3 | reduce, double 3x3 | pool and its projection.

    A block with `one` = 0 has stride 2, no 1x1 branch, and passes its max pool on without a projection.
    """

    one: int
    reduce: int
    three: int
    reduce_double: int
    double: int
    pool: Literal["avg", "max"]
    project: int

    def out(self, channels: int) -> int:
        """Channels of the concatenated output."""
        return self.one + self.three + self.double + (self.project or channels)


BLOCKS = {
    "3a": Widths(64, 64, 64, 64, 96, "avg", 32),
    "3b": Widths(64, 64, 96, 64, 96, "avg", 64),
    "3c": Widths(0, 128, 160, 64, 96, "max", 0),
    "4a": Widths(224, 64, 96, 96, 128, "avg", 128),
    "4b": Widths(192, 96, 128, 96, 128, "avg", 128),
    "4c": Widths(160, 128, 160, 128, 160, "avg", 128),
    "4d": Widths(96, 128, 192, 160, 192, "avg", 128),
    "4e": Widths(0, 128, 192, 192, 256, "max", 0),
    "5a": Widths(352, 192, 320, 160, 224, "avg", 128),
    "5b": Widths(352, 192, 320, 192, 224, "max", 128),
}


class BNInception(Net):
    """Stem, ten inception blocks, global average over what is left (7x7 for 224), 1024 features, linear.

    Convolutions keep a bias before batch norm and poolings round up, as in the Caffe-lineage weights, whose
    names are used (`inception_3a_double_3x3_1`, ..., each with its `_bn`). Those weights expect BGR channels
    in 0..255 less (104, 117, 128). Running statistics move by 0.1 a step, not by that port's 0.9.

    Args:
        num_classes: C.
        dropout: before the classifier.
    """

    def __init__(self, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self._unit("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._unit("conv2_3x3_reduce", 64, 64, 1)
        self._unit("conv2_3x3", 64, 192, 3)
        channels = 192
        for block, widths in BLOCKS.items():
            name = f"inception_{block}_"
            stride = 1 if widths.one else 2
            if widths.one:
                self._unit(f"{name}1x1", channels, widths.one, 1)
            self._unit(f"{name}3x3_reduce", channels, widths.reduce, 1)
            self._unit(f"{name}3x3", widths.reduce, widths.three, 3, stride)
            self._unit(f"{name}double_3x3_reduce", channels, widths.reduce_double, 1)
            self._unit(f"{name}double_3x3_1", widths.reduce_double, widths.double, 3)
            self._unit(f"{name}double_3x3_2", widths.double, widths.double, 3, stride)
            if widths.project:
                self._unit(f"{name}pool_proj", channels, widths.project, 1)
            channels = widths.out(channels)
        self.fc = nn.Linear(channels, num_classes)

    def maps(self, x: Tensor) -> Tensor:
        """(N, 1024, h, w): the last block."""
        x = _halve(self._apply_units(x, "conv1_7x7_s2"))
        x = _halve(self._apply_units(x, "conv2_3x3_reduce", "conv2_3x3"))
        for block, widths in BLOCKS.items():
            x = self.block(block, widths, x)
        return x

    def features(self, x: Tensor) -> Tensor:
        """(N, 1024): the last block, averaged over the image."""
        return self.maps(x).mean((2, 3))

    def block(self, block: str, widths: Widths, x: Tensor) -> Tensor:
        """One inception block: its branches, concatenated."""
        name = f"inception_{block}_"
        branches = [self._apply_units(x, f"{name}1x1")] if widths.one else []
        branches += [self._apply_units(x, f"{name}3x3_reduce", f"{name}3x3")]
        double = (f"{name}double_3x3_reduce", f"{name}double_3x3_1", f"{name}double_3x3_2")
        branches += [self._apply_units(x, *double)]
        if not widths.one:
            branches += [_halve(x)]
        else:
            pool = functional.avg_pool2d if widths.pool == "avg" else functional.max_pool2d
            branches += [self._apply_units(pool(x, 3, stride=1, padding=1), f"{name}pool_proj")]
        return torch.cat(branches, 1)

    def _unit(self, name: str, channels: int, width: int, size: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(channels, width, size, stride, padding=size // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(width))

    def _apply_units(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = functional.relu(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(x)))
        return x


def _halve(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 3, stride=2, ceil_mode=True)
