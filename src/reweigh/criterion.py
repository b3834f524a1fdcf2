"""The criterion as modules: drop-in replacements for CrossEntropyLoss and BCEWithLogitsLoss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from reweigh.checks import plain_number
from reweigh.emphasis import parameter_device, unit_weighting
from reweigh.functional import (
    Normalise,
    Reduction,
    Settings,
    Taper,
    Value,
    batch_stats,
    evaluate,
    log_normaliser_of,
    resolve,
)
from reweigh.targets import Factors
from reweigh.weightings import Weighting, as_weighting
from reweigh.weightings.compose import tensors_in

__all__ = ["BinaryCriterion", "Criterion", "batch_stats"]


class Criterion(nn.CrossEntropyLoss):
    """Replaces `torch.nn.CrossEntropyLoss`: returns cross entropy, with the derivative that you design.

    ∂/∂z_i = s_i w(p_i) · direction_i · scale, with |direction_i|_1 = 1: `w` is how much example i counts.

    Args:
        weighting: w(p), a `Weighting` or any callable of p or of (p, q). Assign `criterion.weighting` to change it
            later; "auto" is then resolved again.
        weight: one factor per class.
        ignore_index: positions with this label are ignored.
        reduction: "mean", "sum" or "none".
        label_smoothing: ε; the target becomes a distribution and the derivative its expectation.
        normalise: None keeps w as it is; "unit" divides by its integral over [0, 1] (the paper's text); "batch"
            divides by the batch's sum of s w (what its authors ran; replaces the divisor of "mean"); "class" does so
            within every class, each of which keeps its share of s, so that no class is lost; "auto" is None for a
            weighting that comes from a loss and "batch" for a density.
        taper: the direction's norm is q / (q + taper), applied after normalisation, so that a fitted batch stops
            contributing; "auto" is 0 for a loss and 5e-7 for a density.
        value: what is returned, "cross_entropy" or "objective" (the potential of the emitted gradient; under "batch"
            and "class" at a frozen normaliser).
        process_group: with a group, normaliser and divisor are the group's, and the gradient is multiplied by its size,
            so that DistributedDataParallel, which averages, equals one process. None is local.

    It differs from torch's class where that is listed in docs/criterion.md.

    >>> import torch
    >>> from reweigh.weightings import CCE, DM
    >>> logits, target = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([2])
    >>> Criterion(CCE())(logits, target) == torch.nn.CrossEntropyLoss()(logits, target)
    tensor(True)
    >>> Criterion(DM(lam=0.5, beta=8))
    Criterion(DM(lam=0.5, beta=8), normalise='batch', taper=5e-07)
    """

    def __init__(
        self,
        weighting: Weighting | Callable[..., Tensor],
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        normalise: Normalise = "auto",
        taper: Taper = "auto",
        value: Value = "cross_entropy",
        process_group: Any = None,
    ) -> None:
        _check_factors(weight=weight)
        if not isinstance(index := plain_number(ignore_index), int):
            raise TypeError(f"ignore_index must be a whole number, got {ignore_index!r}")
        if (smoothing := plain_number(label_smoothing)) is None or not 0 <= smoothing <= 1:
            raise ValueError(f"label_smoothing must be a number in [0, 1], got {label_smoothing!r}")
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"weight must be a vector with one entry per class, got shape {tuple(weight.shape)}")
        super().__init__(weight, ignore_index=index, reduction=reduction, label_smoothing=smoothing)
        self.weighting, self.normalise, self.taper = weighting, normalise, taper
        self.value, self.process_group = value, process_group
        self._unit: tuple[object, Weighting] | None = None
        _ = self.settings  # checks them

    @property
    def settings(self) -> Settings:
        """What a call does, with nothing left to "auto"."""
        return _settings(self, ignore_index=self.ignore_index, smoothing=self.label_smoothing)

    def forward(
        self,
        input: Tensor,  # as torch's class names it
        target: Tensor,
        *,
        sample_weight: Tensor | None = None,
        log_normaliser: Tensor | float | None = None,
    ) -> Tensor:
        """Return the value, scalar or per position.

        Args:
            input: logits, (C), (N, C) or (N, C, d1, ...).
            target: class indices, or probabilities in the logits' shape.
            sample_weight: a factor per position or per example.
            log_normaliser: log Σ s w over several micro-batches, from `log_normaliser`, to accumulate exactly.
        """
        return evaluate(input, target, self.settings, Factors(self.weight, None, sample_weight), log_normaliser)

    def log_normaliser(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return log Σ s w of a micro-batch; `torch.logsumexp` of several is the `log_normaliser` of their union."""
        return log_normaliser_of(logits, target, self.settings, Factors(self.weight, None, sample_weight))

    def extra_repr(self) -> str:
        return _shown(self)


class BinaryCriterion(nn.BCEWithLogitsLoss):
    """Replaces `torch.nn.BCEWithLogitsLoss`: every logit is a two-class problem, its derivative w(p) / 2.

    Args:
        weighting, reduction, normalise, taper, value, process_group: as in `Criterion`; a mean is over all elements.
        weight: a factor that broadcasts over the batch.
        pos_weight: a factor for positive labels, usually one per class.

    >>> import torch
    >>> from reweigh.weightings import CCE
    >>> z, y = torch.tensor([[0.5, -2.0]]), torch.tensor([[1.0, 0.0]])
    >>> bool(torch.isclose(BinaryCriterion(CCE())(z, y), torch.nn.BCEWithLogitsLoss()(z, y)))
    True
    """

    def __init__(
        self,
        weighting: Weighting | Callable[..., Tensor],
        weight: Tensor | None = None,
        *,
        pos_weight: Tensor | None = None,
        reduction: Reduction = "mean",
        normalise: Normalise = "auto",
        taper: Taper = "auto",
        value: Value = "cross_entropy",
        process_group: Any = None,
    ) -> None:
        _check_factors(weight=weight, pos_weight=pos_weight)
        super().__init__(weight, reduction=reduction, pos_weight=pos_weight)
        self.weighting, self.normalise, self.taper = weighting, normalise, taper
        self.value, self.process_group = value, process_group
        self._unit: tuple[object, Weighting] | None = None
        _ = self.settings

    @property
    def settings(self) -> Settings:
        """What a call does, with nothing left to "auto"."""
        return _settings(self, binary=True)

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        *,
        sample_weight: Tensor | None = None,
        log_normaliser: Tensor | float | None = None,
    ) -> Tensor:
        """Return the value, scalar or per element.

        Args:
            input: logits, any shape.
            target: in [0, 1], shaped like the logits.
            sample_weight: a factor per example (N), or per element; one per class is `weight`.
            log_normaliser: as in `Criterion`.
        """
        factors = Factors(self.weight, self.pos_weight, sample_weight)
        return evaluate(input, target, self.settings, factors, log_normaliser)

    def log_normaliser(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return log Σ s w of a micro-batch."""
        return log_normaliser_of(logits, target, self.settings, Factors(self.weight, self.pos_weight, sample_weight))

    def extra_repr(self) -> str:
        return _shown(self)


def _settings(
    module: Criterion | BinaryCriterion, ignore_index: int = -100, smoothing: float = 0.0, binary: bool = False
) -> Settings:
    return resolve(
        module.weighting,
        module.reduction,  # type: ignore[arg-type]  # any str, in torch
        module.normalise,
        module.taper,
        module.value,
        module.process_group,
        ignore_index=ignore_index,
        smoothing=smoothing,
        binary=binary,
        unit=lambda weighting: _unit_of(module, weighting),
    )


def _unit_of(module: Criterion | BinaryCriterion, weighting: Weighting) -> Weighting:
    """Return the weighting divided by its integral, computed once where it cannot change."""
    if module._unit is not None and module._unit[0] is module.weighting:
        return module._unit[1]
    with torch.enable_grad():
        unit = unit_weighting(weighting)
    if not tensors_in(unit) and parameter_device(weighting) is None:
        module._unit = module.weighting, unit
    return unit


def _shown(module: Criterion | BinaryCriterion) -> str:
    settings = module.settings
    return f"{as_weighting(module.weighting)!r}, normalise={settings.normalise!r}, taper={settings.taper!r}"


def _check_factors(**factors: object) -> None:
    for name, factor in factors.items():
        if factor is not None and not isinstance(factor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {factor!r}")
