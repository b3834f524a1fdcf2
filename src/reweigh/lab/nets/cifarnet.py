"""CifarNet, the net that MentorNet's program calls "inception": two 5x5 convolutions and two hidden layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.initialise import truncated_normal
from reweigh.lab.nets.net import Net


class CifarNet(Net):
    """conv5x5-64 ReLU, pool, LRN, conv5x5-64 ReLU, LRN, pool, 384 ReLU, dropout 0.2, 192 ReLU, linear.

    For 32x32 images; 1,756,426 parameters for 10 classes. TensorFlow's LRN of radius 4 is torch's of size 9,
    which divides alpha by the size: TF's 0.001 / 9 is 0.001 here.

    Args:
        num_classes: C.
        dropout: before the classifier, besides the net's own dropout of 0.2 (keep 0.8) after the 384.
    """

    def __init__(self, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self.conv1 = nn.Conv2d(3, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        self.norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
        self.hidden1 = nn.Linear(64 * 8 * 8, 384)
        self.hidden2 = nn.Linear(384, 192)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(192, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, 192)."""
        x = self.norm(functional.max_pool2d(functional.relu(self.conv1(x)), 2))
        x = functional.max_pool2d(self.norm(functional.relu(self.conv2(x))), 2)
        x = self.drop(functional.relu(self.hidden1(x.flatten(1))))
        return functional.relu(self.hidden2(x))

    def initialise(self, generator: torch.Generator) -> None:
        """Truncated normal: convolutions 0.05, hidden 0.04 with bias 0.1, classifier 1/192."""
        for conv in (self.conv1, self.conv2):
            truncated_normal(conv, generator, std=0.05, bias=0.0)
        for hidden in (self.hidden1, self.hidden2):
            truncated_normal(hidden, generator, std=0.04, bias=0.1)
        truncated_normal(self.fc, generator, std=1 / 192, bias=0.0)
