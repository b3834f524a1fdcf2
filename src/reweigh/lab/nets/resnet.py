"""ResNet (He et al. 2016) with torchvision's parameter names, for ImageNet and for 32x32 images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.net import Net


class ResNet(Net):
    """Stem, stages of residual blocks, global average, linear.

    Args:
        block: `Basic` or `Bottleneck`.
        depths: blocks per stage; the stages are `layer1`, `layer2`, ...
        widths: channels per stage, before the block's expansion; the first is also the stem's.
        num_classes: C.
        large: ImageNet's stem (7x7/2, max pool/2) instead of one 3x3 convolution.
        padded: He's option A, shortcuts without parameters, instead of projections (1x1 convolution and norm).
        dropout: before the classifier.
    """

    def __init__(
        self,
        block: type[Basic] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        num_classes: int,
        *,
        large: bool = False,
        padded: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(dropout)
        size, stride = (7, 2) if large else (3, 1)
        self.conv1 = nn.Conv2d(3, widths[0], size, stride, padding=size // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        channels = widths[0]
        self.stages = len(depths)
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True), start=1):
            blocks = []
            for position in range(depth):
                stride = 2 if stage > 1 and position == 0 else 1
                blocks.append(block(channels, width, stride, padded))
                channels = width * block.expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, num_classes)

    def maps(self, x: Tensor) -> Tensor:
        """(N, F, h, w): the last stage."""
        x = self.maxpool(functional.relu(self.bn1(self.conv1(x))))
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x

    def features(self, x: Tensor) -> Tensor:
        """(N, F): the last stage, averaged over the image."""
        return self.maps(x).mean((2, 3))


class Basic(nn.Module):
    """conv3x3 - BN - ReLU - conv3x3 - BN, plus the shortcut, ReLU."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, padded: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(channels, width, stride, padded)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, width, H / stride, W / stride)."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return functional.relu(out + self.downsample(x))


class Bottleneck(nn.Module):
    """conv1x1 - conv3x3 - conv1x1 to four times the width, plus the shortcut; the 3x3 carries the stride."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, padded: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = shortcut(channels, width * self.expansion, stride, padded)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, 4 width, H / stride, W / stride)."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = functional.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return functional.relu(out + self.downsample(x))


class OptionA(nn.Module):
    """Every `stride`-th pixel, and zero channels, half of them before and half after."""

    def __init__(self, added: int, stride: int) -> None:
        super().__init__()
        self.before, self.after, self.stride = added // 2, added - added // 2, stride

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C + added, H / stride, W / stride)."""
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


def shortcut(channels: int, width: int, stride: int, padded: bool) -> nn.Module:
    """The identity where shapes agree, else option A (`padded`) or a projection."""
    if stride == 1 and channels == width:
        return nn.Identity()
    if padded:
        return OptionA(width - channels, stride)
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))


def resnet_cifar(
    depth: int,
    num_classes: int,
    *,
    shortcut: Literal["A", "projection"] = "A",
    large: bool = False,
    dropout: float = 0.0,
) -> ResNet:
    """ResNet-20/32/44/56 for 32x32 images (He et al. 2016, section 4.2): three stages of n = (depth - 2) / 6 blocks.

    Args:
        depth: 6n + 2: 20, 32, 44, 56, ...
        num_classes: C.
        shortcut: `"A"` takes every second pixel and pads channels with zeros, without parameters (He et al.);
            `"projection"` is a 1x1 convolution and batch norm, as the paper's authors ran ResNet-44.
        large: ImageNet's stem, for large images.
        dropout: before the classifier.
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth must be 6n + 2 (8, 14, 20, 32, 44, 56, ...), not {depth}")
    if shortcut not in ("A", "projection"):
        raise ValueError(f'shortcut must be "A" or "projection", not {shortcut!r}')
    return ResNet(Basic, (blocks,) * 3, (16, 32, 64), num_classes, large=large, padded=shortcut == "A", dropout=dropout)


def resnet50(num_classes: int, dropout: float) -> ResNet:
    """ResNet-50 for ImageNet-sized images (the 3x3 strided, as torchvision): 23,508,032 + 2,049 C."""
    return ResNet(Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), num_classes, large=True, dropout=dropout)


def resnet10_thin(num_classes: int, dropout: float) -> ResNet:
    """One block a stage and a quarter of the channels, with ImageNet's stem: for larger images on a CPU."""
    return ResNet(Basic, (1, 1, 1, 1), (16, 32, 64, 128), num_classes, large=True, dropout=dropout)


def resnet18(num_classes: int, dropout: float, large: bool = False) -> ResNet:
    """ResNet-18: for 32x32 images with a 3x3 stem and no early pooling, for `large` ones as torchvision."""
    return ResNet(Basic, (2, 2, 2, 2), (64, 128, 256, 512), num_classes, large=large, dropout=dropout)


def resnet34(num_classes: int, dropout: float, large: bool = False) -> ResNet:
    """ResNet-34: for 32x32 images with a 3x3 stem and no early pooling, for `large` ones as torchvision."""
    return ResNet(Basic, (3, 4, 6, 3), (64, 128, 256, 512), num_classes, large=large, dropout=dropout)
