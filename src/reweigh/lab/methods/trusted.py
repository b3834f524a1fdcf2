"""Batches of trusted examples for the methods that need them."""

from __future__ import annotations

from torch import Tensor

from reweigh.checks import integer
from reweigh.lab.batches import Batch, Loader, Resident, Shuffled
from reweigh.lab.methods.cell import Drawn
from reweigh.lab.methods.protocol import Context
from reweigh.streams import mix


def trusted_batches(owner: str, context: Context, size: int) -> Resident | Loader:
    """The context's trusted examples with an order of their own, `size` a batch or as many as there are.

    The order and the augmentation are functions of the run's seed and the step, independent of the training part's.
    """
    if context.trusted is None or len(context.trusted) == 0:
        raise ValueError(
            f"{owner} needs trusted examples: hold some out with validation=0.1 and validation_labels='clean'"
        )
    size = min(integer(1)(f"{owner}'s clean_batch", size), len(context.trusted))
    seed = mix(context.seed, "trusted")
    return context.trusted.with_order(Shuffled(len(context.trusted), size, seed), seed)


class Planned:
    """Batches by step; where they lie on the device, what is planned for a step always lies in one place.

    Args:
        batches: which.
    """

    def __init__(self, batches: Resident | Loader) -> None:
        self._batches = batches
        self._plan = Drawn(self._draw, batches.device)

    def prepare(self, step: int) -> None:
        """Plan that step's batch, so that capturing `batch(step)` captures only how it is assembled."""
        if isinstance(self._batches, Resident):
            self._plan.at(step, 0)

    def batch(self, step: int) -> Batch:
        """The batch of that step."""
        if isinstance(self._batches, Resident):
            return self._batches.assemble(*self._plan.at(step, 0))
        return self._batches.batch(step)

    def _draw(self, step: int, size: int) -> tuple[Tensor, ...]:
        return (self._batches.plan(step),) if isinstance(self._batches, Resident) else ()
