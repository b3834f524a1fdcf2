"""What a criterion is called with: class indices, probabilities or binary targets, and factors, checked and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from reweigh.margin import class_dim, statistic
from reweigh.weightings.compose import align_leading
from reweigh.weightings.parameter import all_true, is_readable, is_within, take_rows


class Factors(NamedTuple):
    """Class weights, weights of positive labels (binary only), and weights of examples or positions."""

    weight: Tensor | None = None
    pos_weight: Tensor | None = None
    sample_weight: Tensor | None = None


class Labels(NamedTuple):
    """The labels of a call: one per position for class indices, all C (leading dimension) for probabilities.

    A binary criterion has two per logit, present and absent (leading dimension). `s` is class weight x sample weight x
    valid, times the label's probability where targets are probabilities; None where every label counts once. `valid`
    is None where no label is ignored. A mean divides by `divisor`. `target` are class indices, 0 where ignored,
    and `classes` the class of every label.
    """

    kind: Literal["index", "probabilities", "binary"]
    target: Tensor
    classes: Tensor
    num_classes: int
    s: Tensor | None
    valid: Tensor | None
    divisor: Tensor | float
    positions: torch.Size


def read(logits: Tensor, target: Tensor, factors: Factors, ignore_index: int, smoothing: float, binary: bool) -> Labels:
    """Read target and factors as `torch.nn.CrossEntropyLoss` or `BCEWithLogitsLoss` take them; refuse wrong shapes."""
    if binary:
        return _read_binary(logits, target, factors)
    dim = class_dim(logits)
    num_classes = logits.shape[dim]
    positions = logits.shape[:dim] + logits.shape[dim + 1 :]
    weight, sample_weight = factors.weight, factors.sample_weight
    if weight is not None and weight.shape != (num_classes,):
        raise ValueError(
            f"weight must have one entry for each of the {num_classes} classes, got shape {tuple(weight.shape)}"
        )
    if sample_weight is not None:
        sample_weight = statistic(align_leading(sample_weight, positions, "sample_weight")).expand(positions)
    by_class = None if weight is None else statistic(weight)
    if not target.is_floating_point():
        index, valid = known_labels(target, positions, num_classes, ignore_index)
        s = _product(valid, None if by_class is None else take_rows(by_class, index), sample_weight)
        divisor: Tensor | float = float(index.numel()) if s is None else s.sum()
        if smoothing == 0:
            return Labels("index", index, index, num_classes, s, valid, divisor, positions)
    classes = torch.arange(num_classes, device=logits.device).reshape(-1, *(1,) * len(positions))
    of_class = None if by_class is None else take_rows(by_class, classes)
    if target.is_floating_point():
        if target.shape != logits.shape:
            raise ValueError(
                f"target of probabilities must have the logits' shape {tuple(logits.shape)}, got {tuple(target.shape)}"
            )
        if ignore_index >= 0:
            raise ValueError(
                f"ignore_index={ignore_index} does not go with a target of probabilities, which names no "
                "class; give a sample_weight of 0 to what is to be ignored"
            )
        index, valid, share = classes, None, statistic(target.movedim(dim, 0))
    else:
        share = statistic(index == classes)
    share = share * (1 - smoothing) + smoothing / num_classes
    if target.is_floating_point():  # labels have the divisor they have without smoothing, as in torch
        total = share.sum(0)
        counted = torch.ones_like(total)
        if of_class is not None:
            counted = (share * of_class).sum(0) / torch.where(total == 0, 1.0, total)
        divisor = (counted if sample_weight is None else counted * sample_weight).sum()
    s = _product(share, valid, of_class, sample_weight)
    return Labels("probabilities", index, classes, num_classes, s, valid, divisor, positions)


def _product(*factors: Tensor | None) -> Tensor | None:
    """Return the product of the factors that are given, None if none is."""
    product = None
    for factor in factors:
        if factor is not None:
            product = statistic(factor) if product is None else product * factor
    return product


def known_labels(
    target: Tensor, positions: torch.Size, num_classes: int, ignore_index: int
) -> tuple[Tensor, Tensor | None]:
    """Return class indices in 64 bits, 0 where one is ignored, and which are not; None where all are known to count.

    Labels out of range are refused where values can be read: on a CPU, or under `torch.autograd.detect_anomaly`.
    """
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(
            f"target must hold class indices (integers) or probabilities (floating point), got {target.dtype}"
        )
    if target.shape != positions:
        raise ValueError(
            f"target of class indices must be shaped {tuple(positions)}, the logits' shape without the classes, "
            f"got {tuple(target.shape)}"
        )
    target = target.long()  # before it is compared: -100 is 156 in a uint8
    if not 0 <= ignore_index < num_classes and is_within(target, 0, num_classes - 1):
        return target, None
    valid = target != ignore_index
    if is_readable(target):
        within = (target >= 0) & (target < num_classes) | ~valid
        if not all_true(within):
            bad = target[~within][0].item()
            raise ValueError(f"target must be in [0, {num_classes - 1}] or ignore_index={ignore_index}, got {bad}")
    return target.masked_fill(~valid, 0), valid


def _read_binary(logits: Tensor, target: Tensor, factors: Factors) -> Labels:
    """Read two labels for each logit, present (margin z) and absent (margin -z), weighted by y and 1 - y.

    `weight` and `pos_weight` broadcast from the last dimension, as in torch; `sample_weight`, which has one factor per
    example at least, from the first.
    """
    if target.shape != logits.shape:
        raise ValueError(f"target must have the logits' shape {tuple(logits.shape)}, got {tuple(target.shape)}")
    y = statistic(target)
    if not all_true((y >= 0) & (y <= 1)):
        raise ValueError(f"target must be in [0, 1], got values from {y.min().item():g} to {y.max().item():g}")
    weight, pos_weight, sample_weight = factors
    s = torch.stack((y if pos_weight is None else y * statistic(pos_weight), 1 - y))
    if weight is not None:
        try:
            s = s * statistic(weight).expand(logits.shape)
        except RuntimeError as error:
            raise ValueError(
                f"weight of shape {tuple(weight.shape)} does not broadcast to {tuple(logits.shape)}"
            ) from error
    if sample_weight is not None:
        s = s * statistic(align_leading(sample_weight, logits.shape, "sample_weight"))
    num_classes, *within = logits.shape[class_dim(logits) :] or (1,)
    classes = torch.arange(num_classes, device=logits.device).reshape(-1, *(1,) * len(within))
    # as BCEWithLogitsLoss: a mean over elements, whatever their weights
    return Labels("binary", classes, classes, num_classes, s, None, float(logits.numel()), logits.shape)


def check_tensors(needed: Mapping[str, object], factors: Mapping[str, object]) -> None:
    """Refuse what is no tensor, by name; of the factors those that are given.

    >>> check_tensors({"logits": torch.zeros(1, 2), "target": [0]}, {})
    Traceback (most recent call last):
        ...
    TypeError: target must be a tensor, got a list: give torch.as_tensor(target)
    """
    for name, value in (*needed.items(), *factors.items()):
        if not isinstance(value, Tensor) and (name in needed or value is not None):
            kind = type(value).__name__
            if isinstance(value, torch.fx.Proxy):
                raise TypeError("torch.fx cannot trace a criterion: use torch.export, or make it a leaf of your Tracer")
            raise TypeError(f"{name} must be a tensor, got a {kind}: give torch.as_tensor({name})")


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse a value that is not among the allowed ones.

    >>> one_of("reduction", "avg", ("none", "mean", "sum"))
    Traceback (most recent call last):
        ...
    ValueError: reduction must be one of 'none', 'mean', 'sum', got 'avg'
    """
    if isinstance(value, Tensor) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
