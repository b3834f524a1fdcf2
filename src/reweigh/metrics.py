"""Accuracy, calibration, and ranking metrics of scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def accuracy(predicted: Tensor, target: Tensor) -> float:
    """Return the share of examples whose predicted class is the target; NaN without examples.

    >>> accuracy(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 0, 1]))
    0.75
    """
    return (predicted == target).double().mean().item()


def confusion_matrix(predicted: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """Return the (C, C) counts of examples by target (row) and predicted class (column).

    >>> confusion_matrix(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), num_classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    return torch.bincount(target * num_classes + predicted, minlength=num_classes**2).view(num_classes, num_classes)


@dataclass(frozen=True)
class ClassScores:
    """Scores of each class; None where undefined: recall without examples, precision without predictions, F1 without
    either. The accuracy on the examples of a class is its recall."""

    precision: list[float | None]
    recall: list[float | None]
    f1: list[float | None]
    count: list[int]

    def mean(self, name: str) -> float:
        """Return the mean over classes that have examples; of recalls, this is the balanced accuracy.

        A class that is never predicted has precision 0 here.
        """
        values = [value or 0.0 for value, count in zip(getattr(self, name), self.count, strict=True) if count]
        return sum(values) / len(values) if values else float("nan")


def class_scores(confusion: Tensor) -> ClassScores:
    """Return precision, recall, F1 and count of every class from a confusion matrix.

    >>> class_scores(torch.tensor([[1, 1], [0, 1]])).recall
    [0.5, 1.0]
    """
    right, count, predicted = confusion.diagonal(), confusion.sum(1), confusion.sum(0)

    def ratio(over: Tensor, under: Tensor) -> list[float | None]:
        return [a / b if b else None for a, b in zip(over.tolist(), under.tolist(), strict=True)]

    return ClassScores(
        ratio(right, predicted), ratio(right, count), ratio(2 * right, count + predicted), count.tolist()
    )


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


def fit_temperature(logits: Tensor, target: Tensor) -> float:
    """Return the T that minimises the cross entropy of logits / T (Guo 2017), from 0.01 to 100.

    The cross entropy is convex in 1/T; its derivative is bisected.

    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])  # confidence 0.98, accuracy 0.75
    >>> round(fit_temperature(logits, torch.tensor([0, 0, 0, 1])), 4) == round(4 / math.log(3), 4)
    True
    """
    z = logits.double()
    own = z.gather(1, target[:, None])[:, 0].mean()
    low, high = -math.log(100), math.log(100)  # of log 1/T
    for _ in range(60):
        middle = (low + high) / 2
        slope = ((z * math.exp(middle)).softmax(1) * z).sum(1).mean() - own
        low, high = (low, middle) if slope > 0 else (middle, high)
    return math.exp(-(low + high) / 2)


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
