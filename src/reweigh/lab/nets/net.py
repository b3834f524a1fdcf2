"""The base of all nets: `features(x)`, an optional dropout, and a linear classifier in full precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.lab.nets.initialise import he_normal


def classify(classifier: nn.Linear, features: Tensor) -> Tensor:
    """Return logits in the classifier's own type (float32 unless the net was cast), regardless of autocast.

    A bfloat16 logit has eight significant bits: margins, and with them p and w, would be rounded to steps of
    1/16 at |z| = 10. So the body may run in low precision, but the last layer may not.

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
    `classifier` is the same module under a plainer name, for reading and replacing. Subclasses build their body, set
    `fc`, and define `features`.

    Args:
        dropout: probability of dropping a feature before the classifier; 0 for none.

    Attributes:
        rounds_logits: round the logits, and in the backward pass their gradient, to bfloat16, as if the last layer
            were under autocast, to measure the effect.
    """

    fc: nn.Linear
    rounds_logits = False

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate layer, (N, F), before dropout."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (N, C)."""
        return self.classified(self.features(x))

    def classified(self, features: Tensor) -> Tensor:
        """Return the logits, (N, C), of the penultimate layer, for callers that need both."""
        logits = classify(self.fc, self.dropout(features))
        return rounded(logits) if self.rounds_logits else logits

    def initialise(self, generator: torch.Generator) -> None:
        """Fill every parameter and buffer, drawing only from `generator`; He-normal unless overridden."""
        for module in self.modules():
            he_normal(module, generator)

    @property
    def classifier(self) -> nn.Linear:
        """The linear layer that computes the logits."""
        return self.fc

    def __setattr__(self, name: str, value: Any) -> None:
        # nn.Module would register a module assigned to `classifier` beside `fc` and never use it.
        super().__setattr__("fc" if name == "classifier" else name, value)


def rounded(x: Tensor) -> Tensor:
    """Round x, and in the backward pass its gradient, to bfloat16, keeping the type of x.

    A custom operator, because torch.compile would remove x.bfloat16().float().

    >>> rounded(torch.tensor([1.0, 1.001, 1.01]))
    tensor([1.0000, 1.0000, 1.0078])
    """
    result: Tensor = _rounded(x)
    return result


@torch.library.custom_op("reweigh::rounded", mutates_args=())
def _rounded(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16, copy=True).to(x.dtype)  # an operator may not return its input


@_rounded.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _backward(context: Any, gradient: Tensor) -> Tensor:
    return rounded(gradient)


_rounded.register_autograd(_backward)
