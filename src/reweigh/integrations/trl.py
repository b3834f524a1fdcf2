"""TRL: weightings in `SFTTrainer`, from its own log-probabilities per token."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from reweigh.integrations.transformers import AnyWeighting, Normalise, normalisation
from reweigh.language import weigh_log_probs

TrainerClass = TypeVar("TrainerClass", bound=type)


def weighted(trainer: TrainerClass, weighting: AnyWeighting, *, normalise: Normalise = "auto") -> TrainerClass:
    """Return a subclass of `trl.SFTTrainer` that trains with a weighting.

    TRL's fused head computes the log-probabilities of the labels, and `SFTTrainer` their sum. Here they get another
    derivative on the way, so that packing, masks, accumulation, metrics and memory are those of TRL.

    Args:
        trainer: `trl.SFTTrainer` or a subclass; `loss_type` stays "nll".
        weighting, normalise: as in `reweigh.integrations.transformers.loss_for`.
    """
    normalised = normalisation(weighting, normalise)

    def weigh(_model: nn.Module, _inputs: object, outputs: Any) -> None:
        if (log_probs := getattr(outputs, "log_probs", None)) is not None:
            outputs.log_probs = weigh_log_probs(log_probs, weighting, normalise=normalised)
            outputs.loss = None  # has the derivative of NLL

    class WeightedTrainer(trainer):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if self.args.loss_type != "nll":
                raise ValueError(f"loss_type must be 'nll', got {self.args.loss_type!r}: MAE() is TRL's 'dft'")
            if self.compute_loss_func is not None or self.args.label_smoothing_factor > 0:
                raise ValueError("compute_loss_func and label_smoothing_factor don't go with a weighting")
            self.model.register_forward_hook(weigh)

    WeightedTrainer.__name__ = WeightedTrainer.__qualname__ = f"Weighted{trainer.__name__}"
    return WeightedTrainer  # type: ignore[return-value]
