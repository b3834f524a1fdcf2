"""The criterion as functions: logits, target, weighting -> a value whose gradient is designed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reweigh import kernels
from reweigh.criterion.by_class import log_class_totals
from reweigh.criterion.direct import Found, direct, is_direct, is_plain, plainly
from reweigh.criterion.emit import emit, log_total, weigh
from reweigh.criterion.labels import Labels, check_floating, check_tensors, choose, over_positions, positions_of, read
from reweigh.criterion.options import Normalise, Options, Reduction, Taper, Value, check_call, resolve
from reweigh.direction import class_dim, known_labels, log_probabilities, margin_and_pull, statistic
from reweigh.kernels.forms import OTHER
from reweigh.weighting import Weighting
from reweigh.weighting.compose import align, may_learn
from reweigh.weighting.parameter import holds, in_checked_mode


def derivative_manipulation(
    logits: Tensor,
    target: Tensor,
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
    sample_weight: Tensor | None = None,
    log_normaliser: Tensor | float | None = None,
) -> Tensor:
    """Cross entropy to look at, and ∂/∂z_i = w(p_i) · direction_i · scale to train with.

    The arguments are those of `reweigh.Criterion` and of its call.

    >>> from reweigh.weighting import DM
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> derivative_manipulation(logits, torch.tensor([0, 0]), DM(lam=0.5, beta=8)).backward()
    >>> logits.grad.abs().sum(1)  # each example's share of the batch
    tensor([0.1055, 0.8945])
    """
    options = resolve(weighting, reduction, normalise, taper, value, process_group)
    return criterion(
        logits, target, options, weight, ignore_index, label_smoothing, sample_weight, log_normaliser, inplace
    )


def binary_derivative_manipulation(
    logits: Tensor,
    target: Tensor,
    weighting: Weighting | Callable[..., Tensor],
    *,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: Reduction = "mean",
    normalise: Normalise = "auto",
    taper: Taper = "auto",
    value: Value = "cross_entropy",
    process_group: Any = None,
    sample_weight: Tensor | None = None,
    log_normaliser: Tensor | float | None = None,
) -> Tensor:
    """Every logit a two-class problem of its own, with derivative w(p) / 2: multi-label classification.

    The arguments are those of `reweigh.BinaryCriterion` and of its call.

    >>> from reweigh.weighting import CCE
    >>> z, y = torch.tensor([0.3, -1.0]), torch.tensor([1.0, 0.0])
    >>> ours = binary_derivative_manipulation(z, y, CCE())
    >>> bool(torch.isclose(ours, torch.nn.functional.binary_cross_entropy_with_logits(z, y)))
    True
    """
    options = resolve(weighting, reduction, normalise, taper, value, process_group)
    return binary_criterion(logits, target, options, weight, pos_weight, sample_weight, log_normaliser)


def criterion(
    logits: Tensor,
    target: Tensor,
    options: Options,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    sample_weight: Tensor | None,
    log_normaliser: Tensor | float | None,
    inplace: bool,
) -> Tensor:
    """`derivative_manipulation` with its settings resolved."""
    call = _Call(options, weight, ignore_index, label_smoothing, sample_weight, log_normaliser, inplace)
    try:
        return call.value(logits, target)
    except (AttributeError, TypeError):  # of what is no tensor: only then it is worth the time to look
        check_tensors({"logits": logits, "target": target}, weight=weight, sample_weight=sample_weight)
        raise


class _Call(NamedTuple):
    """All that a call is made with but its logits and labels."""

    options: Options
    weight: Tensor | None
    ignore_index: int
    label_smoothing: float
    sample_weight: Tensor | None
    log_normaliser: Tensor | float | None
    inplace: bool

    def value(self, logits: Tensor, target: Tensor) -> Tensor:
        """By the shortest way there is."""
        options, inplace = self.options, self.inplace
        by_index = self.label_smoothing == 0 and not target.is_floating_point()
        if kernels.usable(logits, target) and not in_checked_mode():  # a kernel takes labels on trust
            plain = options.value == "cross_entropy" and options.process_group is None and self.log_normaliser is None
            if plain and by_index and options.normalise != "class":
                beside = (options, self.weight, self.ignore_index, self.sample_weight)
                value = kernels.whole(logits, target, *beside, inplace, self.by_margins, self.log_weight)
                if value is not None:
                    return value
            if by_index and self.is_direct():
                passes = (self.ignore_index, inplace, self.between_passes, self.by_margins)
                return kernels.weighed(logits, target, *passes)
        elif by_index and self.is_direct():
            return direct(logits, target, self.directly, self.by_margins)
        return self.by_margins(logits, target)

    def weighed(
        self, logits: Tensor, target: Tensor, find: Callable[[Tensor, Tensor], Tensor] | None = None
    ) -> tuple[Labels, Tensor, Tensor]:
        weighted = (self.weight, self.sample_weight, self.ignore_index, self.label_smoothing)
        labels = read(logits, target, self.options.weighting, *weighted, self.inplace, find)
        self.check()
        return labels, *_weigh(labels, self.options, self.log_normaliser)

    def check(self) -> None:
        check_call(self.options, self.log_normaliser, {"weight": self.weight, "sample_weight": self.sample_weight})

    def by_margins(self, logits: Tensor, target: Tensor) -> Tensor:
        """With a graph that can be differentiated in every way."""
        labels, value, coefficient = self.weighed(logits, target)
        return _reduce(emit(value, labels.margin, coefficient), self.options, labels.dense, logits)

    def directly(self, logits: Tensor, target: Tensor) -> Found:
        if self.log_normaliser is None and is_plain(logits, target, self.options):
            plain = self.in_cpp(logits, target)
            if plain is None and self.weight is None and self.sample_weight is None:
                plain = plainly(logits, target, self.options, self.ignore_index)
            if plain is not None:
                return plain
        found = []

        def find(z: Tensor, y: Tensor) -> Tensor:
            m, pull = margin_and_pull(z, y)
            found.append(pull)
            return m

        labels, value, coefficient = self.weighed(logits, target, find)
        return _reduce(value, self.options, labels.dense, logits), coefficient / 2, found[0]

    def in_cpp(self, logits: Tensor, target: Tensor) -> Found | None:
        options = self.options
        self.check()

        def log_weight(margins: Tensor) -> Tensor:
            return self.log_weight(margins, target, logits.shape[1])

        beside = (self.weight, self.sample_weight, self.ignore_index, options.form or OTHER, log_weight)
        return kernels.weigh_rows(logits, target, *beside, float(options.taper), options.batch, options.reduction)

    def log_weight(self, margins: Tensor, target: Tensor, num_classes: int) -> Tensor:
        """Of rows that kernels have measured and cannot weigh."""
        weighting = self.options.weighting
        if self.options.by_label:
            known, _ = known_labels(target, self.ignore_index)
            weighting = choose(weighting, known, num_classes, margins.shape)
        return weighting.log_weight(*log_probabilities(margins))

    def between_passes(self, logits: Tensor, target: Tensor, margins: Tensor) -> tuple[Tensor, Tensor]:
        labels, value, coefficient = self.weighed(logits, target, lambda *_: margins)
        return _reduce(value, self.options, labels.dense, logits), coefficient

    def is_direct(self) -> bool:
        options = self.options
        learnt = options.value == "objective" and may_learn((options.weighting, options.taper))
        return not learnt and is_direct(self.weight, self.sample_weight, self.log_normaliser)


def binary_criterion(
    logits: Tensor,
    target: Tensor,
    options: Options,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    sample_weight: Tensor | None,
    log_normaliser: Tensor | float | None,
) -> Tensor:
    """`binary_derivative_manipulation` with its settings resolved."""
    check_binary(options)
    factors = {"weight": weight, "pos_weight": pos_weight, "sample_weight": sample_weight}
    try:
        labels = read_binary(logits, target, options.weighting, weight, pos_weight, sample_weight)
    except (AttributeError, TypeError):
        check_tensors({"logits": logits, "target": target}, **factors)
        raise
    check_call(options, log_normaliser, factors)
    value, coefficient = _weigh(labels, options, log_normaliser)
    return _reduce(emit(value, labels.margin, coefficient), options, True, logits)


def check_binary(options: Options) -> None:
    """Refuse what means nothing where every logit is a problem of its own."""
    if options.normalise == "class":
        raise ValueError("normalise='class' is for one label among several classes; a binary criterion has 'batch'")


def read_binary(
    logits: Tensor,
    target: Tensor,
    weighting: Weighting,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    sample_weight: Tensor | None,
) -> Labels:
    """Two labels for each logit, present (margin z) and absent (margin -z), weighted by y and 1 - y.

    `weight` and `pos_weight` broadcast from the last dimension, as torch has it; `sample_weight`, which has one factor
    per example at least, from the first.
    """
    check_floating(logits)
    if target.shape != logits.shape:
        raise ValueError(f"target must have the logits' shape {tuple(logits.shape)}, got {tuple(target.shape)}")
    y = statistic(target)
    if not holds((y >= 0) & (y <= 1)):
        raise ValueError(f"target must be in [0, 1], got values from {y.min().item():g} to {y.max().item():g}")
    z = statistic(logits)
    s = torch.stack((y if pos_weight is None else y * statistic(pos_weight), 1 - y))
    if weight is not None:
        try:
            s = s * statistic(weight).expand(logits.shape)
        except RuntimeError as error:
            raise ValueError(
                f"weight of shape {tuple(weight.shape)} does not broadcast to {tuple(logits.shape)}"
            ) from error
    if sample_weight is not None:
        s = s * statistic(over_positions(sample_weight, logits.shape))
    # as BCEWithLogitsLoss: a mean over elements, whatever their weights
    count = s.new_full((), float(logits.numel()))
    num_classes, *within = logits.shape[class_dim(logits) :] or (1,)
    index = torch.arange(num_classes, device=logits.device).reshape(-1, *(1,) * len(within))
    chosen = choose(weighting, index, num_classes, logits.shape)
    valid = torch.ones_like(z, dtype=torch.bool)
    return Labels(torch.stack((z, -z)), s, valid, count, chosen, True, index, num_classes)


def _weigh(labels: Labels, options: Options, log_normaliser: Tensor | float | None) -> tuple[Tensor, Tensor]:
    if isinstance(options.taper, Tensor):
        options = replace(options, taper=align(options.taper, positions_of(labels)))
    arguments = (labels.s, active(labels), labels.divisor, labels.weighting, options, log_normaliser)
    return weigh(labels.margin, *arguments, lambda log_w: log_total_of(log_w, labels, options))


def active(labels: Labels) -> Tensor:
    """Where a label has a derivative to give: valid, and some other class is admissible."""
    return labels.valid & (labels.margin != math.inf)


def log_normaliser_of(labels: Labels, options: Options) -> Tensor:
    """log Σ s w of a call (and its process group), as batch normalisation would divide by."""
    if options.normalise == "class":
        raise ValueError("log_normaliser adds up over micro-batches under normalise='batch', not under 'class'")
    log_w = labels.weighting.log_weight(*log_probabilities(labels.margin))
    return log_total_of(log_w, labels, options).detach()


def log_total_of(log_w: Tensor, labels: Labels, options: Options) -> Tensor:
    """The logarithm of what a call divides by: one number, or within classes one for each label."""
    if options.normalise == "class":
        by_class = (labels.classes, labels.num_classes)
        return log_class_totals(log_w, labels.s, active(labels), *by_class, options.process_group)
    return log_total(log_w, labels.s, active(labels), options.process_group)


def _reduce(terms: Tensor, options: Options, dense: bool, logits: Tensor) -> Tensor:
    if options.reduction != "none":
        terms = terms.sum()
    elif dense:
        terms = terms.sum(0)
    return terms.to(logits.dtype if logits.dtype == torch.float64 else torch.float32)
