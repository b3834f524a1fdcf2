"""The protocol between the training loop and a method."""

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
    """What a method is built from.

    Attributes:
        net: the net to train, on its device.
        new_net: name of a random stream -> another net of the same kind with initial values from it.
        batches: the training examples with their given labels.
        labels: (N,) the given labels.
        num_classes: C.
        total: iterations of the run.
        epoch: iterations in one pass over the data.
        learning_rate: step -> the rate of the run's optimiser.
        trusted: examples with trusted labels (`validation` with clean labels), or None.
        seed: of the run; draw with `reweigh.streams.generator(seed, stream, step)` only.
        device: of nets and batches.
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
    """Computes the loss of each iteration; the training loop steps the optimiser.

    A method whose iterations can be captured as a CUDA graph has more members: see `BaseMethod`.

    Attributes:
        trainable: what the optimiser updates; its state dict is part of every checkpoint.
        predictor: inputs -> logits; it is evaluated and saved.
    """

    trainable: nn.Module
    predictor: nn.Module

    def loss(self, batch: Batch, step: int) -> Tensor:
        """Return the scalar loss of an iteration, counted from 0."""

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        """Return the example weights at this step, up to a common factor, or None if the method has none."""

    def columns(self, clean: Tensor | None) -> dict[str, Any]:
        """Return the method's own columns for a row of the record; `clean` are the true labels where known."""

    def epoch_end(self, epoch: int) -> None:
        """Run after the last iteration of every epoch, counted from 0."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state besides `trainable`: tensors, numbers and texts in dicts and lists."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state` exactly."""
