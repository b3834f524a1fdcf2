"""Train one net by a criterion whose parameters may follow schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.criterion import Criterion
from reweigh.functional import log_class_totals
from reweigh.lab.batches import Batch
from reweigh.margin import log_probabilities, margin
from reweigh.weightings.compose import log_taper


class ByCriterion:
    """Use criterion(logits, target) as the loss; the criterion may change with the iteration.

    Args:
        net: the net.
        criterion_at: step -> criterion.
    """

    def __init__(self, net: nn.Module, criterion_at: Callable[[int], nn.Module]) -> None:
        self.trainable = self.predictor = net
        self.criterion_at = criterion_at

    def loss(self, batch: Batch, step: int) -> Tensor:
        value: Tensor = self.criterion_at(step)(self.trainable(batch.inputs), batch.target)
        return value

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        criterion = self.criterion_at(step)
        if not isinstance(criterion, Criterion):
            return None
        options = criterion.settings
        log_p, log_q = log_probabilities(margin(logits, target))
        log_w = options.weighting.log_weight(log_p, log_q)
        if options.normalise == "class":  # or what is shown would not be what a class can get
            log_w = log_w - log_class_totals(log_w, torch.ones_like(log_w), target, logits.shape[1])
            log_w = log_w + math.log(len(target))  # batches of any size in one unit
        return (log_w + log_taper(log_q, options.taper)).exp()

    def columns(self, clean: Tensor | None) -> dict[str, Any]:
        return {}

    def epoch_end(self, epoch: int) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
