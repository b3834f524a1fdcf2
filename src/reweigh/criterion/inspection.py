"""Who counts how much in this batch? Asked of the same code that trains, without a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from reweigh.criterion.functional import active
from reweigh.criterion.labels import read
from reweigh.criterion.options import Normalise, Taper, resolve
from reweigh.direction import log_probabilities
from reweigh.weighting import Weighting
from reweigh.weighting.compose import log_taper


class Stats(NamedTuple):
    """What a criterion would do with a batch, shaped like its positions.

    Attributes:
        p: probability of the label (its expectation for probability targets).
        w: the weight w(p), after unit normalisation where asked for, before class and sample weights and taper.
        effective_size: (Σ g)² / Σ g² of the emitted norms g: how many examples really pull.
        share: each position's part of the batch's whole derivative; sums to 1, or is 0 throughout.
    """

    p: Tensor
    w: Tensor
    effective_size: Tensor
    share: Tensor


@torch.no_grad()
def inspect(
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
) -> Stats:
    """Statistics of one batch under a weighting; the arguments are those of `reweigh.Criterion`.

    >>> from reweigh.weighting import CCE
    >>> logits = torch.tensor([0.9, 0.5, 0.1]).logit()[:, None] * torch.tensor([[1.0, 0.0]])
    >>> inspect(logits, torch.zeros(3, dtype=torch.long), CCE()).share
    tensor([0.0667, 0.3333, 0.6000], dtype=torch.float64)
    """
    options = resolve(weighting, "mean", normalise, taper, "cross_entropy", None)
    labels = read(logits, target, options.weighting, weight, sample_weight, ignore_index, label_smoothing)
    log_p, log_q = log_probabilities(labels.margin)
    log_w = labels.weighting.log_weight(log_p, log_q)
    counts = active(labels) & (labels.s > 0)
    pull = torch.where(counts, log_w + log_taper(log_q, options.taper) + labels.s.log(), -torch.inf)
    p, w = log_p.exp(), log_w.exp()
    if labels.dense:
        chance = labels.s / labels.s.sum(0).clamp_min(1e-300)
        p, w, pull = (chance * p).sum(0), torch.where(counts, chance * w, 0.0).sum(0), pull.logsumexp(0)
    flat = pull.flatten()
    share = flat.softmax(0) if bool((flat > -torch.inf).any()) else torch.zeros_like(flat)
    size = share.sum().square() / share.square().sum().clamp_min(1e-300)
    return Stats(p, w, size, share.reshape(pull.shape))
