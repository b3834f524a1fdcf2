"""The criterion as modules: drop-in replacements for CrossEntropyLoss and BCEWithLogitsLoss."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from operator import is_
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

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

__all__ = ["BinaryCriterion", "Criterion", "batch_stats"]


class SettingsMixin(nn.Module):
    """The settings of a criterion: resolved once, and again after one of its attributes has been replaced."""

    is_binary: ClassVar[bool] = False
    weighting: Weighting | Callable[..., Tensor]
    reduction: str
    normalise: Normalise
    taper: Taper
    value: Value = "cross_entropy"
    process_group: Any
    ignore_index: int = -100
    label_smoothing: float = 0.0
    _resolved: tuple[tuple[object, ...], Settings] | None = None

    @property
    def settings(self) -> Settings:
        """What a call does, with nothing left to "auto"."""
        kind = (self.weighting, self.reduction, self.normalise, self.taper)
        given = (*kind, self.value, self.process_group, self.ignore_index, self.label_smoothing)
        if (last := self._resolved) is not None and all(map(is_, given, last[0])):
            return last[1]
        settings = self._resolve(*given)
        if settings.is_constant and not torch.compiler.is_compiling():
            self._resolved = given, settings
        return settings

    def _resolve(self, *given: Any) -> Settings:
        return resolve(*given, binary=self.is_binary)

    def __copy__(self) -> Any:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self.process_group)] = self.process_group  # a handle, which copies share
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(deepcopy(self.__dict__, memo))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not None:
            raise TypeError(
                "a criterion with a process_group cannot be pickled, since the group belongs to this process: set "
                "criterion.process_group = None before, and assign the group after loading"
            )
        return self.__dict__ | {"_resolved": None}

    def __prepare_scriptable__(self) -> Any:
        raise TypeError(f"{type(self).__name__} has no TorchScript form: use torch.compile or torch.export")

    def extra_repr(self) -> str:
        settings = self.settings
        return f"{as_weighting(self.weighting)!r}, normalise={settings.normalise!r}, taper={settings.taper!r}"


class Criterion(SettingsMixin, nn.CrossEntropyLoss):
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
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"weight must be a vector with one entry per class, got shape {tuple(weight.shape)}")
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.weighting, self.normalise, self.taper = weighting, normalise, taper
        self.value, self.process_group = value, process_group
        _ = self.settings  # checks them

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


class BinaryCriterion(SettingsMixin, nn.BCEWithLogitsLoss):
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

    is_binary = True

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
        _ = self.settings

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


def _check_factors(**factors: object) -> None:
    for name, factor in factors.items():
        if factor is not None and not isinstance(factor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {factor!r}")
