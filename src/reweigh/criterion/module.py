"""The criterion as modules: drop-in replacements for CrossEntropyLoss and BCEWithLogitsLoss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.modules import module as hooks

from reweigh.checks import plain_number
from reweigh.criterion.call import log_normaliser_of
from reweigh.criterion.functional import binary_criterion, check_binary, criterion, read_binary
from reweigh.criterion.labels import check_tensors, read
from reweigh.criterion.options import Normalise, Options, Reduction, Taper, Value, WithOptions
from reweigh.weightings import Weighting


class Criterion(WithOptions):
    """Where `torch.nn.CrossEntropyLoss` stands: returns cross entropy, hands back the derivative you designed.

    ∂/∂z_i = s_i w(p_i) · direction_i · scale, with |direction_i|_1 = 1: `w` is how much example i counts.

    Args:
        weighting: w(p), a `Weighting` or any callable of p or of (p, q). Assign `criterion.weighting` to change it
            later; "auto" is then resolved anew.
        weight: one factor per class.
        ignore_index: positions with this label take no part.
        reduction: "mean", "sum" or "none".
        label_smoothing: ε; the target becomes a distribution and the derivative its expectation.
        normalise: None keeps w as it is; "unit" divides by its integral over [0, 1] (the paper's text); "batch"
            divides by the batch's sum of s w (what its authors ran; replaces the divisor of "mean"); "class" does so
            within every class, each of which keeps its share of s, so that none is given up; "auto" is None for a
            weighting that comes from a loss and "batch" for a density.
        taper: the direction's norm is q / (q + taper), applied after normalisation, so that a batch that is fitted lets
            go; "auto" is 0 for a loss and 5e-7 for a density.
        value: what is returned, "cross_entropy" or "objective" (the potential of the emitted gradient; under "batch"
            and "class" at a frozen normaliser).
        process_group: with a group, normaliser and divisor are the group's, and the gradient is multiplied by its size,
            so that DistributedDataParallel, which averages, equals one process. None is local.
        inplace: let the kernels write the gradient over the logits, which saves their memory; without kernels (on a
            CPU, say) it changes nothing. The logits must not be a leaf, and are lost.

    Two deliberate differences from torch: a batch with nothing valid gives 0 and zero gradients (torch: NaN), and
    one-hot and index targets agree under class weights (torch's don't). Logits in half precision give a float32 value.

    >>> import torch
    >>> from reweigh.weightings import CCE, DM
    >>> logits, target = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([2])
    >>> Criterion(CCE())(logits, target) == torch.nn.CrossEntropyLoss()(logits, target)
    tensor(True)
    >>> Criterion(DM(lam=0.5, beta=8))
    Criterion(DM(lam=0.5, beta=8), normalise='batch', taper=5e-07)
    """

    weight: Tensor | None

    def __init__(
        self,
        weighting: Weighting | Callable[..., Tensor],
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        normalise: Normalise = "auto",
        taper: Taper = "auto",
        value: Value = "cross_entropy",
        process_group: Any = None,
        inplace: bool = False,
    ) -> None:
        super().__init__(weighting, reduction, normalise, taper, value, process_group)
        _check_factors(weight=weight)
        if not isinstance(ignored := plain_number(ignore_index), int):
            raise TypeError(f"ignore_index must be a whole number, got {ignore_index!r}")
        if (smoothing := plain_number(label_smoothing)) is None or not 0 <= smoothing <= 1:
            raise ValueError(f"label_smoothing must be a number in [0, 1], got {label_smoothing!r}")
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"weight must be a vector with one entry per class, got shape {tuple(weight.shape)}")
        self.register_buffer("weight", weight)
        self.ignore_index = ignored
        self.label_smoothing = smoothing
        self.inplace = inplace

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forward" in vars(cls):
            cls.__call__ = nn.Module.__call__  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`; but a plain call like one before passes by what would take longer than to launch its kernels."""
        if not (is_compiling() or self._options is None or not self._options.repeats or _is_watched(self)):
            plain = len(args) == 2 and not kwargs and type(args[0]) is Tensor
            repeat = self._options.repeats.get(args[0].shape) if plain else None
            value = None if repeat is None else repeat(*args)
            if value is not None:
                return value
        return super().__call__(*args, **kwargs)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        sample_weight: Tensor | None = None,
        log_normaliser: Tensor | float | None = None,
    ) -> Tensor:
        """The value, scalar or per position.

        Args:
            logits: (C), (N, C) or (N, C, d1, ...).
            target: class indices, or probabilities in the logits' shape.
            sample_weight: a factor per position or per example.
            log_normaliser: log Σ s w over several micro-batches, from `log_normaliser`, to accumulate exactly.
        """
        return criterion(
            logits,
            target,
            self.options,
            self.weight,
            self.ignore_index,
            self.label_smoothing,
            sample_weight,
            log_normaliser,
            self.inplace,
        )

    def log_normaliser(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """log Σ s w of a micro-batch; `torch.logsumexp` of several is the `log_normaliser` of their union."""
        options = self.options
        check_tensors({"logits": logits, "target": target}, sample_weight=sample_weight)
        labels = read(
            logits.detach(),
            target,
            options.weighting,
            self.weight,
            sample_weight,
            self.ignore_index,
            self.label_smoothing,
        )
        return log_normaliser_of(labels, options)


class BinaryCriterion(WithOptions):
    """Where `torch.nn.BCEWithLogitsLoss` stands: every logit a two-class problem, its derivative w(p) / 2.

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

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weighting: Weighting | Callable[..., Tensor],
        *,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        reduction: Reduction = "mean",
        normalise: Normalise = "auto",
        taper: Taper = "auto",
        value: Value = "cross_entropy",
        process_group: Any = None,
    ) -> None:
        super().__init__(weighting, reduction, normalise, taper, value, process_group)
        _check_factors(weight=weight, pos_weight=pos_weight)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def _check_options(self, options: Options) -> None:
        check_binary(options)

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        *,
        sample_weight: Tensor | None = None,
        log_normaliser: Tensor | float | None = None,
    ) -> Tensor:
        """The value, scalar or per element.

        Args:
            target: in [0, 1], shaped like the logits.
            sample_weight: a factor per example (N), or per element; one per class is `weight`.
        """
        return binary_criterion(
            logits, target, self.options, self.weight, self.pos_weight, sample_weight, log_normaliser
        )

    def log_normaliser(self, logits: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """log Σ s w of a micro-batch."""
        options = self.options
        check_tensors({"logits": logits, "target": target}, sample_weight=sample_weight)
        labels = read_binary(logits.detach(), target, options.weighting, self.weight, self.pos_weight, sample_weight)
        return log_normaliser_of(labels, options)


def _is_watched(module: nn.Module) -> bool:
    """Whether a call of the module is more than its `forward`: hooks, a compiler, a tracer."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or hooks._global_forward_hooks
        or hooks._global_forward_pre_hooks
        or hooks._global_backward_hooks
        or hooks._global_backward_pre_hooks
        or module._compiled_call_impl
        or torch._C._get_tracing_state()
    )


def _check_factors(**factors: object) -> None:
    for name, factor in factors.items():
        if factor is not None and not isinstance(factor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {factor!r}")
