"""Who counts how much in this batch? Asked of the same code that trains, without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from reweigh.criterion.call import active, log_total_of
from reweigh.criterion.labels import check_tensors, positions_of, read
from reweigh.criterion.options import Normalise, Taper, resolve
from reweigh.margin import class_dim, log_probabilities, margins, statistic
from reweigh.weightings import Weighting
from reweigh.weightings.compose import align, log_taper


class BatchStats(NamedTuple):
    """What a criterion would do with a batch, shaped like its positions.

    Attributes:
        p: probability of the label (its expectation for probability targets); NaN where the label is ignored.
        w: the weight w(p), after unit normalisation where asked for, before class and sample weights and taper; NaN
            where the label is ignored.
        effective_size: (Σ g)² / Σ g² of the emitted norms g: how many examples really pull. Where a target spreads
            over several labels, which pull against each other, g is what is left.
        share: each position's part of the batch's whole derivative; sums to 1, or is 0 throughout.
    """

    p: Tensor
    w: Tensor
    effective_size: Tensor
    share: Tensor


@torch.no_grad()
def batch_stats(
    logits: Tensor,
    target: Tensor,
    weighting: Weighting | Callable[..., Tensor],
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    normalise: Normalise = "auto",
    taper: Taper = "auto",
    sample_weight: Tensor | None = None,
) -> BatchStats:
    """Statistics of one batch under a weighting; the arguments are those of `reweigh.Criterion`.

    >>> from reweigh.weightings import CCE
    >>> logits = torch.tensor([0.9, 0.5, 0.1]).logit()[:, None] * torch.tensor([[1.0, 0.0]])
    >>> batch_stats(logits, torch.zeros(3, dtype=torch.long), CCE()).share
    tensor([0.0667, 0.3333, 0.6000], dtype=torch.float64)
    """
    options = resolve(weighting, "mean", normalise, taper, "cross_entropy", None)
    check_tensors({"logits": logits, "target": target}, weight=weight, sample_weight=sample_weight)
    labels = read(logits, target, options.weighting, weight, sample_weight, ignore_index, label_smoothing)
    log_p, log_q = log_probabilities(labels.margin)
    log_w = labels.weighting.log_weight(log_p, log_q)
    counts = active(labels) & (labels.s > 0)
    log_pull = log_w + log_taper(log_q, align(options.taper, positions_of(labels))) + labels.s.log()
    if options.normalise == "class":
        log_pull = log_pull - log_total_of(log_w, labels, options)
    log_pull = torch.where(counts, log_pull, -torch.inf)
    top = log_pull.amax() if log_pull.numel() else log_pull.new_zeros(())
    norm = (log_pull - torch.where(top == -torch.inf, 0.0, top)).exp()
    p, w, known = log_p.exp(), log_w.exp(), labels.valid
    if labels.dense:
        mass = labels.s.sum(0)
        known = known & (mass != 0)
        chance = labels.s / torch.where(mass == 0, 1.0, mass)
        p, w = (chance * p).sum(0), torch.where(counts, chance * w, 0.0).sum(0)
        gradient = _pulled(statistic(logits), norm)
        norm = torch.where(counts.any(0), gradient.abs().sum(class_dim(logits)) / 2, 0.0)
    total = norm.sum()
    share = norm / torch.where(total == 0, 1.0, total)
    size = share.sum().square() / share.square().sum().clamp_min(1e-300)
    return BatchStats(torch.where(known, p, torch.nan), torch.where(known, w, torch.nan), size, share)


def _pulled(logits: Tensor, norm: Tensor) -> Tensor:
    """The gradient of all margins, each times its norm; also in inference mode, where torch 2.6 finds only zeros."""
    if not torch.is_inference_mode_enabled():
        return torch.func.vjp(margins, logits)[1](norm)[0]  # type: ignore[no-any-return]  # torch's
    with torch.inference_mode(False):
        return _pulled(logits.clone(), norm.clone())
