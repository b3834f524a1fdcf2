"""What every net is: `features(x)`, an optional dropout, and a linear classifier whose logits are exact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.lab.nets.initialise import he_normal
from reweigh.lab.nets.rounded import rounded


def classify(classifier: nn.Linear, features: Tensor) -> Tensor:
    """Logits in the classifier's own type (float32 unless the net was cast), whatever autocast says.

    A bfloat16 logit has eight significant bits: margins, and with them p and w, would be rounded to steps of
    1/16 at |z| = 10. The body may run in low precision, the last layer may not.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     classify(nn.Linear(2, 3), torch.ones(1, 2, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    with torch.autocast(features.device.type, enabled=False):
        logits: Tensor = classifier(features.to(classifier.weight.dtype))
    return logits


class Net(nn.Module, ABC):
    """A body, a dropout before the classifier, and the classifier.

    The classifier is registered as `fc`, torchvision's name, so that its weight files load as they are;
    `classifier` is the same module under the name the rest of the library uses, for reading and replacing.
    Subclasses build their body, set `fc`, and define `features`.

    Args:
        dropout: probability of dropping a feature before the classifier; 0 for none.

    Attributes:
        rounds_logits: round the logits, and on the way back their gradient, to bfloat16, as a net does whose last
            layer is under autocast: to measure what that costs.
    """

    fc: nn.Linear
    rounds_logits = False

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """The penultimate layer, (N, F): what the classifier reads, before dropout."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (N, C)."""
        return self.classified(self.features(x))

    def classified(self, features: Tensor) -> Tensor:
        """Logits, (N, C), of the penultimate layer: for who reads both."""
        logits = classify(self.fc, self.dropout(features))
        return rounded(logits) if self.rounds_logits else logits

    def initialise(self, generator: torch.Generator) -> None:
        """Fill every parameter and buffer, drawing from `generator` alone; He-normal unless overridden."""
        for module in self.modules():
            he_normal(module, generator)

    @property
    def classifier(self) -> nn.Linear:
        """The linear layer that gives the logits."""
        return self.fc

    def __setattr__(self, name: str, value: Any) -> None:
        # nn.Module would register a module assigned to `classifier` beside `fc` and never use it.
        super().__setattr__("fc" if name == "classifier" else name, value)
