"""The plain method: one net, one criterion, whose parameters may follow schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from reweigh.batches import Batch
from reweigh.criterion import Criterion
from reweigh.direction import log_probabilities, margin
from reweigh.weighting.compose import log_taper


class ByCriterion:
    """Teach by criterion(logits, target), a function of the iteration so that its parameters may follow schedules.

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
        weighting, taper = criterion.options.weighting, criterion.options.taper
        log_p, log_q = log_probabilities(margin(logits, target))
        return (weighting.log_weight(log_p, log_q) + log_taper(log_q, taper)).exp()

    def epoch_end(self, epoch: int) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
