"""Nets for feature vectors: a multi-layer perceptron, a linear model, and the paper's 8-neuron IMDB net."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.initialise import caffe_xavier
from reweigh.lab.nets.net import Net


class MLP(Net):
    """Linear - ReLU for each hidden width, then the classifier; the input is flattened.

    Args:
        in_features: F, numbers per example.
        hidden: widths of the hidden layers; none makes a linear model.
        num_classes: C.
        dropout: before the classifier.

    >>> MLP(64, (256,), 10).features(torch.zeros(2, 8, 8)).shape
    torch.Size([2, 256])
    """

    def __init__(self, in_features: int, hidden: Sequence[int], num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        widths = [in_features, *hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.fc = nn.Linear(widths[-1], num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, F): the last hidden layer, or the flattened input of a linear model."""
        x = x.flatten(1)
        for layer in self.hidden:
            x = functional.relu(layer(x))
        return x


class IMDBNet(MLP):
    """in_features - 8 ReLU - C with Caffe's xavier filler and zero biases: 826 parameters for 100 and 2."""

    def __init__(self, in_features: int, num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(in_features, (8,), num_classes, dropout=dropout)

    def initialise(self, generator: torch.Generator) -> None:
        """U(+-sqrt(3 / fan_in)), biases 0."""
        for module in self.modules():
            caffe_xavier(module, generator)


def flattens(name: str) -> bool:
    """Return whether the net of that name reads flattened images.

    >>> flattens("mlp-256"), flattens("linear"), flattens("resnet20")
    (True, True, False)
    """
    return name == "linear" or name.startswith("mlp")
