"""Evaluation: per-example statistics of a net on a part, and the columns of a row computed from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from reweigh.lab.batches import Batch, Loader, Resident
from reweigh.margin import margin
from reweigh.metrics import accuracy, calibration_error

BINS = 20
MOST_CLASSES = 1000  # with more, a row has no columns per class


class ExampleStats(NamedTuple):
    """The statistics of every example of a part, on the CPU.

    Attributes:
        p, cross_entropy: of its label.
        predicted, confidence: the most probable class, and its probability.
        margin, rival: the logit of its label minus the largest other logit (Pleiss 2020), and the class of that other.
        weight: w, or None where the method defines none.
    """

    p: Tensor
    predicted: Tensor
    confidence: Tensor
    cross_entropy: Tensor
    margin: Tensor
    rival: Tensor
    weight: Tensor | None


Weigh = Callable[[Tensor, Tensor, Tensor], Tensor | None]
"""(logits, target, index) -> the weights of a batch, or None"""


@torch.no_grad()
def evaluate(
    net: nn.Module,
    part: Resident | Loader,
    batch_size: int,
    forward: Callable[[Tensor], Tensor],
    weigh: Weigh | None = None,
    beat: Callable[[], None] = lambda: None,
) -> ExampleStats:
    """Evaluate every example of a part once, without augmentation; N numbers per statistic are kept, never N x C.

    Args:
        net: set to evaluation mode meanwhile.
        part: the examples.
        batch_size: of the forward passes.
        forward: inputs -> logits of the net.
        weigh: the weights of a batch.
        beat: called before every batch.
    """
    was_training = net.training
    net.eval()
    batches = []
    for batch in part.evaluation(batch_size):
        beat()
        batches.append(_statistics(forward(batch.inputs), batch, weigh))
    net.train(was_training)
    p, predicted, confidence, cross_entropy, lead, rival, *weight = (
        torch.cat(column).cpu() for column in zip(*batches, strict=True)
    )
    return ExampleStats(p, predicted, confidence, cross_entropy, lead, rival, weight[0] if weight else None)


def _statistics(logits: Tensor, batch: Batch, weigh: Weigh | None) -> tuple[Tensor, ...]:
    """Return the statistics of a batch, in the order of `ExampleStats`."""
    m = margin(logits, batch.target)
    top = logits.double().softmax(1).max(1)
    own = batch.target[:, None]
    rival = logits.scatter(1, own, -math.inf).max(1)
    lead = logits.gather(1, own)[:, 0].double() - rival.values.double()
    columns = (m.sigmoid(), top.indices, top.values, -nn.functional.logsigmoid(m), lead, rival.indices)
    weight = None if weigh is None else weigh(logits, batch.target, batch.index)
    return columns if weight is None else (*columns, weight.double())


def holdout_row(stats: ExampleStats, target: Tensor, prefix: str) -> dict[str, float]:
    """Return accuracy, cross entropy and expected calibration error on a held-out part."""
    return {
        f"{prefix}_accuracy": accuracy(stats.predicted, target),
        f"{prefix}_cross_entropy": stats.cross_entropy.mean().item(),
        f"{prefix}_ece": calibration_error(stats.confidence, stats.predicted == target),
    }


def training_row(stats: ExampleStats, given: Tensor, clean: Tensor | None, num_classes: int) -> dict[str, Any]:
    """Return the columns that show how the training part is fitted.

        train_accuracy, p_mean             accuracy on the given labels, and their mean p
        p_histogram, weight_histogram          over 20 equal bins of p, as shares
        p_by_class                             mean p by given label

    If the true labels are known, also:

        train_accuracy_clean                        accuracy on the true labels
        fit_clean, fit_noisy                   accuracy on the given labels of clean and of noisy examples
        p_clean, p_noisy                       mean p of the given label on each
        p_histogram_clean, p_histogram_noisy   the histogram of each
        weight_noisy                           the share of the total weight on noisy examples
    """
    row: dict[str, Any] = {
        "train_accuracy": accuracy(stats.predicted, given),
        "p_mean": stats.p.mean().item(),
        "p_histogram": _histogram(stats.p, torch.ones_like(stats.p)),
    }
    if stats.weight is not None:
        row["weight_histogram"] = _histogram(stats.p, stats.weight)
    if num_classes <= MOST_CLASSES:
        count = torch.bincount(given, minlength=num_classes)
        total = torch.zeros(num_classes, dtype=torch.float64).index_add_(0, given, stats.p)
        row["p_by_class"] = [
            round(t / n, 6) if n else None for t, n in zip(total.tolist(), count.tolist(), strict=True)
        ]
    if clean is not None:
        row["train_accuracy_clean"] = accuracy(stats.predicted, clean)
        noisy = given != clean
        for name, subset in (("clean", ~noisy), ("noisy", noisy)):
            row[f"fit_{name}"] = accuracy(stats.predicted[subset], given[subset])
            row[f"p_{name}"] = stats.p[subset].mean().item()
            row[f"p_histogram_{name}"] = _histogram(stats.p[subset], torch.ones(int(subset.sum()), dtype=torch.float64))
        if stats.weight is not None:
            row["weight_noisy"] = (stats.weight[noisy].sum() / stats.weight.sum()).item()
    return row


def _histogram(p: Tensor, weight: Tensor) -> list[float]:
    which = (p * BINS).long().clamp(0, BINS - 1)
    counts = torch.zeros(BINS, dtype=torch.float64).index_add_(0, which, weight)
    total = float(counts.sum())
    if not math.isfinite(total) or total == 0:
        return [0.0] * BINS
    return [round(c / total, 6) for c in counts.tolist()]
