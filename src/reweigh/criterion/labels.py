"""What may stand beside the logits, checked, and turned into weighted labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from reweigh import ops as kernels
from reweigh.margin import class_dim, known_labels, margin, margins, statistic
from reweigh.weightings import Weighting
from reweigh.weightings.compose import align, has_classes, has_examples, lead, select
from reweigh.weightings.parameter import entries, holds, in_checked_mode, is_readable


class Labels(NamedTuple):
    """The labels of a call: one per position for class indices, all C (leading dimension) for probabilities.

    `s` is class weight x sample weight x valid, times the label's probability where targets are probabilities. A mean
    divides by `divisor`: the sum of s, for class indices that of before label smoothing, as torch has it.
    `classes` is the class of every label, and broadcasts to the margins.
    """

    margin: Tensor
    s: Tensor
    valid: Tensor
    divisor: Tensor
    weighting: Weighting
    dense: bool
    classes: Tensor
    num_classes: int


def positions_of(labels: Labels) -> torch.Size:
    """Where there are labels: the logits' shape without the classes.

    No property of the tuple, which torch 2.6 can't compile.
    """
    return labels.margin.shape[1:] if labels.dense else labels.margin.shape


def read(
    logits: Tensor,
    target: Tensor,
    weighting: Weighting,
    weight: Tensor | None,
    sample_weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    inplace: bool = False,
    find: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Labels:
    """Check logits, target and weights as `torch.nn.CrossEntropyLoss` takes them, and find the margins.

    Margins from a kernel may hand back their gradient `inplace` of the logits. `find(logits, class indices)` gives
    margins in place of the usual ones, which know of autograd.
    """
    check_floating(logits)
    if logits.ndim == 0:
        raise ValueError("logits must be shaped (C), (N, C) or (N, C, d1, ...), got a scalar")
    dim = class_dim(logits)
    num_classes = logits.shape[dim]
    positions = logits.shape[:dim] + logits.shape[dim + 1 :]
    if not isinstance(label_smoothing, (int, float)) or not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be a number in [0, 1], got {label_smoothing!r}")
    if weight is not None and weight.shape != (num_classes,):
        raise ValueError(
            f"weight must have one entry for each of the {num_classes} classes, got shape {tuple(weight.shape)}"
        )
    share: Tensor | None = None
    smoothed = False
    if target.is_floating_point():
        if target.shape != logits.shape:
            raise ValueError(
                f"target of probabilities must have the logits' shape {tuple(logits.shape)}, got {tuple(target.shape)}"
            )
        if ignore_index >= 0:
            raise ValueError(
                f"ignore_index={ignore_index} does not go with a target of probabilities, which names no class; "
                "give a sample_weight of 0 to what is to be ignored"
            )
        valid, share = torch.ones(positions, dtype=torch.bool, device=logits.device), target.movedim(dim, 0)
    else:
        check_indices(target, positions, num_classes, ignore_index)
        given = target
        target, valid = known_labels(target, ignore_index)
        smoothed = label_smoothing > 0
        if smoothed:
            share = _one_hot(target, num_classes)
    if share is None:
        if find is not None:
            m = find(logits, target)
        elif kernels.usable(logits, given):
            m = kernels.margin(logits, given, ignore_index, inplace)
        else:
            m = margin(logits, target)
        s, index = statistic(valid), target
    else:
        m, index = (
            margins(logits),
            torch.arange(num_classes, device=logits.device).reshape(-1, *(1,) * len(positions)),
        )
        s = (statistic(share) * (1 - label_smoothing) + label_smoothing / num_classes) * valid

    def weighted(s: Tensor, index: Tensor) -> Tensor:
        if weight is not None:
            s = s * entries(statistic(weight), index)
        if sample_weight is not None:
            s = s * statistic(over_positions(sample_weight, positions))
        return s

    s = weighted(s, index)
    divisor = (weighted(statistic(valid), target) if smoothed else s).sum()
    chosen = choose(weighting, index, num_classes, positions)
    return Labels(m, s, valid, divisor, chosen, share is not None, index, num_classes)


def choose(weighting: Weighting, index: Tensor, num_classes: int, positions: torch.Size) -> Weighting:
    """The weighting with its tensors where they belong: by example along the leading dimension, by class at `index`."""
    if len(positions) > 1 and has_examples(weighting):
        weighting = align(weighting, positions)
    return select(weighting, index, num_classes) if has_classes(weighting) else weighting


def check_floating(logits: Tensor) -> None:
    """Refuse logits that are no numbers; NaN among them only in torch's checked mode, as it costs a pass and a sync."""
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, got {logits.dtype}")
    if in_checked_mode() and not holds(~logits.isnan()):
        where = tuple(logits.isnan().nonzero()[0].tolist())
        raise ValueError(f"logits must not be NaN under torch.autograd.detect_anomaly, got NaN at {where}")


def check_tensors(needed: Mapping[str, object], **factors: object) -> None:
    """Refuse what is no tensor, by name; of the factors those that are given.

    >>> check_tensors({"logits": torch.zeros(1, 2), "target": [0]})
    Traceback (most recent call last):
        ...
    TypeError: target must be a tensor, got a list: give torch.as_tensor(target)
    """
    given = {name: factor for name, factor in factors.items() if factor is not None}
    for name, value in {**needed, **given}.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise TypeError(f"{name} must be a tensor, got a {kind}: give torch.as_tensor({name})")


def check_indices(target: Tensor, positions: torch.Size, num_classes: int, ignore_index: int) -> None:
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(
            f"target must hold class indices (integers) or probabilities (floating point), got {target.dtype}"
        )
    if target.shape != positions:
        raise ValueError(
            f"target of class indices must be shaped {tuple(positions)}, the logits' shape without the classes, "
            f"got {tuple(target.shape)}"
        )
    if not is_readable(target):
        return
    target = target.long()  # where any number of classes, and any index to ignore, is itself
    within = (target >= 0) & (target < num_classes) | (target == ignore_index)
    if not holds(within):
        bad = target[~within][0].item()
        raise ValueError(f"target must be in [0, {num_classes - 1}] or ignore_index={ignore_index}, got {bad}")


def _one_hot(target: Tensor, num_classes: int) -> Tensor:
    """(C, N, ...) indicator of the target, class dimension first."""
    classes = torch.arange(num_classes, device=target.device).reshape(-1, *(1,) * target.ndim)
    return statistic(target == classes)


def over_positions(sample_weight: Tensor, positions: torch.Size) -> Tensor:
    """One weight per position, or per example (the leading dimensions) for dense prediction."""
    return lead(sample_weight, positions, "sample_weight")
