"""The nine-layer CNN of Co-teaching (Han et al. 2018)."""

from __future__ import annotations

from torch import Tensor, nn

from reweigh.lab.nets.net import Net


class CNN9(Net):
    """Nine 3x3 convolutions with BN and leaky ReLU(0.01), two poolings with dropout 0.25, global average.

    128-128-128, pool, 256-256-256, pool, then 512-256-128 without padding; 4,434,570 parameters for 10
    classes. The dropout drops whole channels and, unlike in the published program, is off in `eval()`.

    Args:
        num_classes: C.
        dropout: before the classifier, besides the net's own.
    """

    def __init__(self, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        layers: list[nn.Module] = []
        channels = 3
        for widths, padding in (((128,) * 3, 1), ((256,) * 3, 1), ((512, 256, 128), 0)):
            for width in widths:
                layers += [nn.Conv2d(channels, width, 3, padding=padding), nn.BatchNorm2d(width)]
                layers += [nn.LeakyReLU(0.01)]
                channels = width
            if padding:
                layers += [nn.MaxPool2d(2), nn.Dropout2d(0.25)]
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, 128)."""
        out: Tensor = self.body(x)
        return out.mean((2, 3))
