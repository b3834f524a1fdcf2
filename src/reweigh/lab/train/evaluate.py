"""What a row says: accuracy, calibration, and how the training examples are being fitted, as the paper shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from reweigh.lab.batches import Batch, Loader, Resident
from reweigh.margin import margin
from reweigh.metrics import accuracy, calibration_error

BINS = 20
MOST_CLASSES = 1000  # above this a row does not list every class


class Seen(NamedTuple):
    """What a net makes of a part, per example.

    Attributes:
        p, cross_entropy: of its label.
        predicted, confidence: the most probable class, and its probability.
        margin, rival: the logit of its label less the largest other (Pleiss 2020), and the class of that other.
        weight: w, where there is one.
    """

    p: Tensor
    predicted: Tensor
    confidence: Tensor
    cross_entropy: Tensor
    margin: Tensor
    rival: Tensor
    weight: Tensor | None


Weigh = Callable[[Tensor, Tensor, Tensor], Tensor | None]


class Waiting:
    """What an evaluation yields where another run may take its turn: the device has work, and the host has none."""


WAITING: Final = Waiting()
T = TypeVar("T")


def at_once(turns: Generator[Waiting, None, T]) -> T:
    """What comes out in the end, for one who has nothing else to do."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return cast(T, end.value)


@torch.no_grad()
def look(
    net: nn.Module,
    part: Resident | Loader,
    batch_size: int,
    autocast: Callable[[], AbstractContextManager[Any]],
    weigh: Weigh | None = None,
    beat: Callable[[], None] = lambda: None,
) -> Generator[Waiting, None, Seen]:
    """Every example of a part once, without augmentation; only N numbers of each kind are kept, never N x C.

    Yields after every batch, and while the device is not ready.
    """
    was_training = net.training
    net.eval()
    found: list[tuple[Tensor, ...]] = []
    for batch in part.evaluation(batch_size):
        beat()
        with autocast():
            logits: Tensor = net.forward(batch.inputs)  # past what may be compiled, which is so for training
        found.append(columns(logits, batch, weigh))
        yield WAITING
    net.train(was_training)
    return (yield from seen_of(found))


def columns(logits: Tensor, batch: Batch, weigh: Weigh | None) -> tuple[Tensor, ...]:
    """The numbers of a batch that are kept, in the order of `Seen`."""
    m = margin(logits, batch.target)
    top = logits.double().softmax(1).max(1)
    own = batch.target[:, None]
    rival = logits.scatter(1, own, -math.inf).max(1)
    lead = logits.gather(1, own)[:, 0].double() - rival.values.double()
    kept = (m.sigmoid(), top.indices, top.values, -nn.functional.logsigmoid(m), lead, rival.indices)
    weight = None if weigh is None else weigh(logits, batch.target, batch.index)
    return kept if weight is None else (*kept, weight.double())


def seen_of(found: list[tuple[Tensor, ...]]) -> Generator[Waiting, None, Seen]:
    """The columns of all batches, joined, on the CPU, as soon as they are there."""
    there = [torch.cat(parts) for parts in zip(*found, strict=True)]
    if there[0].is_cuda:
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
        done.record()
        # copying at once would make the host wait, and every run beside this one with it
        while not done.query():  # type: ignore[no-untyped-call]
            yield WAITING
    joined = [column.cpu() for column in there]
    p, predicted, confidence, cross_entropy, lead, rival = joined[:6]
    return Seen(p, predicted, confidence, cross_entropy, lead, rival, joined[6] if len(joined) > 6 else None)


def holdout_row(seen: Seen, target: Tensor, prefix: str) -> dict[str, float]:
    """Accuracy, cross entropy and expected calibration error on a part that was not trained on."""
    return {
        f"{prefix}_accuracy": accuracy(seen.predicted, target),
        f"{prefix}_cross_entropy": seen.cross_entropy.mean().item(),
        f"{prefix}_ece": calibration_error(seen.confidence, seen.predicted == target),
    }


def training_row(seen: Seen, given: Tensor, clean: Tensor | None, num_classes: int) -> dict[str, Any]:
    """How the training part is fitted.

    With the truth known, as the paper's tables have it:

        train_accuracy, train_accuracy_clean    on the given labels, and on the true ones
        fit_clean, fit_noisy                   on the given labels of the examples that are right, and that are wrong
        p_clean, p_noisy                       mean p of the given label on each
        weight_noisy                           the share of all weight that wrong labels get

    Without it the same columns of the whole: train_accuracy and p_mean. Always: p_histogram and
    weight_histogram over 20 equal bins of p (as shares), and p_by_class by given label.
    """
    row: dict[str, Any] = {
        "train_accuracy": accuracy(seen.predicted, given),
        "p_mean": seen.p.mean().item(),
        "p_histogram": _histogram(seen.p, torch.ones_like(seen.p)),
    }
    if seen.weight is not None:
        row["weight_histogram"] = _histogram(seen.p, seen.weight)
    if num_classes <= MOST_CLASSES:
        count = torch.bincount(given, minlength=num_classes)
        total = torch.zeros(num_classes, dtype=torch.float64).index_add_(0, given, seen.p)
        row["p_by_class"] = [
            round(t / n, 6) if n else None for t, n in zip(total.tolist(), count.tolist(), strict=True)
        ]
    if clean is not None:
        row["train_accuracy_clean"] = accuracy(seen.predicted, clean)
        wrong = given != clean
        for name, subset in (("clean", ~wrong), ("noisy", wrong)):
            row[f"fit_{name}"] = accuracy(seen.predicted[subset], given[subset])
            row[f"p_{name}"] = seen.p[subset].mean().item()
            row[f"p_histogram_{name}"] = _histogram(seen.p[subset], torch.ones(int(subset.sum()), dtype=torch.float64))
        if seen.weight is not None:
            row["weight_noisy"] = (seen.weight[wrong].sum() / seen.weight.sum()).item()
    return row


def _histogram(p: Tensor, weight: Tensor) -> list[float]:
    which = (p * BINS).long().clamp(0, BINS - 1)
    counts = torch.zeros(BINS, dtype=torch.float64).index_add_(0, which, weight)
    total = float(counts.sum())
    if not math.isfinite(total) or total == 0:
        return [0.0] * BINS
    return [round(c / total, 6) for c in counts.tolist()]
