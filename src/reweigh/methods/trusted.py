"""Batches of trusted examples for the methods that need them."""

from __future__ import annotations

from reweigh.batches import Loader, Resident, Shuffled
from reweigh.methods.protocol import Context
from reweigh.spec.checks import integer
from reweigh.streams import mix


def trusted_batches(owner: str, context: Context, size: int) -> Resident | Loader:
    """The context's trusted examples with an order of their own, `size` a batch or as many as there are.

    The order is a function of the run's seed and the step, as every order is.
    """
    if context.trusted is None or len(context.trusted) == 0:
        raise ValueError(
            f"{owner} needs trusted examples: hold some out with validation=0.1 and validation_labels='clean'"
        )
    size = min(integer(1)(f"{owner}'s clean_batch", size), len(context.trusted))
    batches = context.trusted.with_labels(context.trusted.labels)
    batches.order = Shuffled(len(batches), size, mix(context.seed, "trusted"))
    return batches
