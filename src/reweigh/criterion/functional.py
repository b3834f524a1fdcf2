"""The criterion as functions: logits, target, weighting -> a value whose gradient is designed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reweigh.criterion.call import Call, reduced, weigh_labels
from reweigh.criterion.emit import emit
from reweigh.criterion.labels import Labels, check_floating, check_tensors, choose, over_positions
from reweigh.criterion.options import Normalise, Options, Reduction, Taper, Value, check_call, resolve
from reweigh.margin import class_dim, statistic
from reweigh.weightings import Weighting
from reweigh.weightings.parameter import holds


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

    >>> from reweigh.weightings import DM
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

    >>> from reweigh.weightings import CCE
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
    call = Call(options, weight, ignore_index, label_smoothing, sample_weight, log_normaliser, inplace)
    try:
        return call.value(logits, target)
    except (AttributeError, TypeError):  # of what is no tensor: only then it is worth the time to look
        check_tensors({"logits": logits, "target": target}, weight=weight, sample_weight=sample_weight)
        raise


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
    value, coefficient = weigh_labels(labels, options, log_normaliser)
    return reduced(emit(value, labels.margin, coefficient), options, True, logits)


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
