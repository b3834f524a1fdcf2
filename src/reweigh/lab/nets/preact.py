"""Pre-activation ResNets (He et al. 2016b): PreAct-ResNet-18, and the wide WRN-56-10."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.net import Net


class PreActResNet(Net):
    """3x3 stem, stages of pre-activation blocks, BN - ReLU, global average, linear.

    Args:
        stem: channels of the first convolution.
        depths: blocks per stage.
        widths: channels per stage; every stage but the first halves the image.
        num_classes: C.
        padded: shortcuts by average pooling and zero channels, without parameters, instead of 1x1 convolutions.
        slope: of the leaky ReLU; 0 for ReLU.
        large: ImageNet's stem (7x7/2, max pool/2) instead of one 3x3 convolution.
        dropout: before the classifier.
    """

    def __init__(
        self,
        stem: int,
        depths: Sequence[int],
        widths: Sequence[int],
        num_classes: int,
        *,
        padded: bool = False,
        slope: float = 0.0,
        large: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(dropout)
        self.slope = slope
        size, stride = (7, 2) if large else (3, 1)
        self.conv = nn.Conv2d(3, stem, size, stride, padding=size // 2, bias=False)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        blocks, channels = [], stem
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(PreActBlock(channels, width, stride, padded, slope))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, F): the activated last stage, averaged over the image."""
        x = self.blocks(self.maxpool(self.conv(x)))
        return functional.leaky_relu(self.bn(x), self.slope).mean((2, 3))


class PreActBlock(nn.Module):
    """BN - ReLU - conv3x3 - BN - ReLU - conv3x3, plus the shortcut, without a final activation.

    A projection reads the activated input; an identity or a padded shortcut the raw one.
    """

    def __init__(self, channels: int, width: int, stride: int, padded: bool, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.stride, self.added = stride, width - channels
        projected = not padded and (stride > 1 or channels != width)
        self.shortcut = nn.Conv2d(channels, width, 1, stride, bias=False) if projected else None

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, width, H / stride, W / stride)."""
        active = functional.leaky_relu(self.bn1(x), self.slope)
        if self.shortcut is not None:
            x = self.shortcut(active)
        elif self.added:
            before = self.added // 2
            x = functional.pad(functional.avg_pool2d(x, self.stride), (0, 0, 0, 0, before, self.added - before))
        out: Tensor = self.conv2(functional.leaky_relu(self.bn2(self.conv1(active)), self.slope))
        return out + x


def preact_resnet18(num_classes: int, dropout: float, large: bool = False) -> PreActResNet:
    """PreAct-ResNet-18, about 11.2 M parameters, with the final norm of the original."""
    return PreActResNet(64, (2, 2, 2, 2), (64, 128, 256, 512), num_classes, large=large, dropout=dropout)


def wrn_56_10(num_classes: int, dropout: float, large: bool = False) -> PreActResNet:
    """WRN-56-10, what MentorNet's program calls resnet101: 84.6 M parameters, leaky ReLU of slope 0.1."""
    widths = (160, 320, 640)
    return PreActResNet(16, (9, 9, 9), widths, num_classes, padded=True, slope=0.1, large=large, dropout=dropout)
