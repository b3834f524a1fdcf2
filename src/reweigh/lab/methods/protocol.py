"""The one small protocol between the training loop and whatever teaches the net."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reweigh.lab.batches import Batch, Loader, Resident


@dataclass(frozen=True)
class Context:
    """What a method may need to know before training starts.

    Attributes:
        net: the net to teach, on its device.
        new_net: another net of the same kind, from the given stream of initial values, on the same device.
        batches: the training examples with their given labels.
        labels: (N,) the given labels.
        num_classes: C.
        total: iterations of the run.
        epoch: iterations in one pass over the data.
        learning_rate: step -> the rate of the run's optimiser.
        trusted: examples with trusted labels, where the run has them (`validation` with clean labels), else None.
        seed: of the run; draw with `reweigh.streams.generator(seed, stream, step)` only.
        device: where everything lies.
    """

    net: nn.Module
    new_net: Callable[[str], nn.Module]
    batches: Resident | Loader
    labels: NDArray[np.int64]
    num_classes: int
    total: int
    epoch: int
    learning_rate: Callable[[int], float]
    trusted: Resident | Loader | None
    seed: int
    device: torch.device


class Method(Protocol):
    """Teaches a net: the loop asks for a loss, steps the optimiser, and tells when an epoch ends.

    One whose iterations can be captured as a graph has more to say: see `reweigh.lab.train.captured.CapturedStep`.

    Attributes:
        trainable: everything the run's optimiser updates; its state dict is part of every checkpoint.
        predictor: inputs -> logits, what is evaluated and saved.
    """

    trainable: nn.Module
    predictor: nn.Module

    def loss(self, batch: Batch, step: int) -> Tensor:
        """The scalar whose gradient the optimiser follows at this iteration (counted from 0)."""

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        """How much each example would count now, up to a common factor; None where that has no meaning."""

    def epoch_end(self, epoch: int) -> None:
        """Called after the last iteration of every epoch, counted from 0."""

    def state_dict(self) -> dict[str, Any]:
        """What must be kept beside `trainable`: tensors, numbers, texts in dicts and lists."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`, exactly."""
