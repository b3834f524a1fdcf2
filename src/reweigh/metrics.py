"""Accuracy, calibration, and ranking metrics of scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def accuracy(predicted: Tensor, target: Tensor) -> float:
    """Return the share of examples whose predicted class is the target; NaN without examples.

    >>> accuracy(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 0, 1]))
    0.75
    """
    return (predicted == target).double().mean().item()


def per_class_accuracy(predicted: Tensor, target: Tensor, num_classes: int) -> list[float | None]:
    """Return the accuracy on the examples of each class; None for a class without examples.

    >>> per_class_accuracy(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), num_classes=3)
    [0.5, 1.0, None]
    """
    right = torch.bincount(target[predicted == target], minlength=num_classes)
    total = torch.bincount(target, minlength=num_classes)
    return [r / n if n else None for r, n in zip(right.tolist(), total.tolist(), strict=True)]


def collapsed_classes(p_by_class: Sequence[float | None]) -> list[int]:
    """The classes c whose examples have a mean p of their label below half of chance: p̄_c < 1 / (2C).

    A net that knows nothing gives them 1 / C, so it has turned away from these, as it does where a density rewards
    whatever is learnt first.

    Args:
        p_by_class: p̄_c of every class, None of one without examples.

    >>> collapsed_classes([0.5, 0.02, 0.6, None, 0.3])
    [1]
    """
    chance = 1 / max(1, len(p_by_class))
    return [c for c, mean in enumerate(p_by_class) if mean is not None and mean < chance / 2]


def reliability(confidence: Tensor, correct: Tensor, bins: int = 15) -> list[dict[str, float]]:
    """Return the reliability diagram: mean confidence, accuracy and count of every non-empty equal-width bin.

    >>> reliability(torch.tensor([0.9, 0.9, 0.3]), torch.tensor([True, False, True]), bins=2)
    [{'confidence': 0.3, 'accuracy': 1.0, 'count': 1}, {'confidence': 0.9, 'accuracy': 0.5, 'count': 2}]
    """
    which = (confidence.double() * bins).long().clamp(0, bins - 1)
    rows = []
    for b in sorted(set(which.tolist())):
        inside = which == b
        mean, right = (float(x[inside].double().mean()) for x in (confidence, correct))
        rows.append({"confidence": round(mean, 6), "accuracy": round(right, 6), "count": int(inside.sum())})
    return rows


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Return the expected calibration error (Guo 2017): Σ_b |b| / N · |accuracy_b - mean confidence_b|.

    Args:
        confidence: probability of the predicted class.
        correct: whether the prediction is right.
        bins: number of equal-width bins.

    >>> calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([True, False]))
    0.25
    """
    if not confidence.numel():
        return float("nan")
    confidence, right = confidence.double(), correct.double()
    which = (confidence * bins).long().clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64, device=confidence.device).index_add_(0, which, right - confidence)
    return float(gap.abs().sum() / len(confidence))


def auroc(score: Tensor, positive: Tensor) -> float:
    """Return the area under the ROC curve: P(a positive example has the higher score), ties counting half.

    NaN without positives or negatives, or if a score is NaN.

    >>> auroc(torch.tensor([0.9, 0.5, 0.5, 0.1]), torch.tensor([True, True, False, False]))
    0.875
    """
    if bool(score.isnan().any()):
        return float("nan")
    positive = positive.bool()
    _, group, size = score.double().unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    rank = (size.cumsum(0).double() - (size.double() - 1) / 2)[group]
    n = int(positive.sum())
    pairs = n * (len(score) - n)
    return (float(rank[positive].sum()) - n * (n + 1) / 2) / pairs if pairs else float("nan")


def average_precision(score: Tensor, positive: Tensor) -> float:
    """Return Σ (R_k - R_{k-1}) P_k over the falling thresholds k of a score; equal scores share a threshold.

    NaN without positives, or if a score is NaN.

    >>> average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([True, False, True]))
    0.8333333333333333
    """
    if not bool(positive.any()) or bool(score.isnan().any()):
        return float("nan")
    _, group, size = (-score.double()).unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    hits = torch.zeros(len(size), dtype=torch.float64, device=score.device).index_add_(0, group, positive.double())
    precision = hits.cumsum(0) / size.cumsum(0)
    return float((precision * hits).sum() / hits.sum())
