"""Language models: objectives from the log-probabilities of tokens, and advice on which objective fits a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from reweigh.functional import resolve
from reweigh.margin import at_least_float32
from reweigh.weightings import CCE, GCE, MAE, Weighting
from reweigh.weightings.compose import log_taper

IGNORED = -100
# Mean probability of the training tokens before training, above and below which one kind of objective is favoured.
# Published evidence is around .8, .5 and .01; the limits lie half-way between.
STRONG, WEAK = 0.65, 0.25
SOURCE = "Li et al., arXiv:2510.00526"


def weigh_log_probs(
    log_p: Tensor,
    weighting: Weighting | Callable[..., Tensor],
    *,
    normalise: Literal["unit"] | None = None,
) -> Tensor:
    """Return the log-probabilities of tokens unchanged, with a derivative that makes -log p the weighting's loss.

    So `-weigh_log_probs(log_p, w).sum()` is the cross entropy, with gradient w(p) · direction for the logits: the
    derivative by log p is w(p) / 2 (1 - p). For where only the log-probabilities exist, as in TRL's fused head.

    Args:
        log_p: log-probabilities of the labels, of any shape; 0 where a label is ignored.
        weighting: w(p); a density is tapered as in `Criterion`.
        normalise: None keeps w, "unit" divides it by its integral.

    >>> log_p = torch.tensor([0.2, 0.5]).log().requires_grad_()
    >>> weigh_log_probs(log_p, MAE()).sum().backward()
    >>> log_p.grad
    tensor([0.2000, 0.5000])
    """
    settings = resolve(weighting, "sum", normalise, "auto", "cross_entropy", None)
    if any(parameter.ndim for parameter in settings.parameters):
        raise ValueError(f"weighting must have numbers as parameters here, got {settings.weighting!r}")
    value = log_p.detach()
    x = at_least_float32(value)
    log_q = (-x.expm1()).log()
    log_slope = settings.weighting.log_weight(x, log_q) + log_taper(log_q, settings.taper) - log_q - math.log(2)
    slope = torch.where(x < 0, log_slope.exp(), 0.0)  # at p = 1 the direction is 0
    return value + slope.detach().to(value.dtype) * (log_p - value).masked_fill(value == -math.inf, 0.0)


@torch.no_grad()
def entropy_weight(logits: Tensor, k: int = 20) -> Tensor:
    """Return the entropy of each position's k largest probabilities, divided by log k: the weight of EAFT, in [0, 1].

    Pass it as `sample_weight`. Tokens that the model is sure about count less, whatever the label.

    Args:
        logits: (..., C).
        k: how many classes; the k probabilities are normalised to a sum of 1.

    >>> entropy_weight(torch.tensor([[0.0, 0.0, 0.0], [5.0, 0.0, 0.0]]), k=3)
    tensor([1.0000, 0.0727])
    """
    if not 2 <= k <= logits.shape[-1]:
        raise ValueError(f"k must be from 2 to the {logits.shape[-1]} classes, got {k}")
    log_p = at_least_float32(logits.topk(k, dim=-1).values).log_softmax(-1)
    entropy: Tensor = torch.special.entr(log_p.exp()).sum(-1)
    return entropy / math.log(k)


def divergence(logits: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Return KL(reference || model) at each position: the anchor of ASFT, to be added to DFT with a small factor.

    Args:
        logits: (..., C) of the model.
        reference_log_probs: (..., C) of the reference, a constant.

    >>> divergence(torch.zeros(1, 2), torch.zeros(1, 2).log_softmax(-1))
    tensor([0.])
    """
    log_p, reference = at_least_float32(logits).log_softmax(-1), at_least_float32(reference_log_probs.detach())
    return (reference.exp() * (reference - log_p)).masked_fill(reference == -math.inf, 0.0).sum(-1)


@dataclass(frozen=True)
class Advice:
    """A weighting that the published evidence favours, and why; `str` is one line.

    Attributes:
        weighting: a starting point.
        mean_p: mean probability of the labels.
        reason: the evidence and its source.
    """

    weighting: Weighting
    mean_p: float
    reason: str

    def __str__(self) -> str:
        return f"{self.weighting!r}: mean p of the labels is {self.mean_p:.2f}; {self.reason}"


@torch.no_grad()
def advise(model: Any, labels: Tensor, **inputs: Any) -> Advice:
    """Return which curve the published evidence favours, by the mean probability of the labels before training.

    Args:
        model: a causal language model, called as `model(**inputs)`; or log-probabilities (..., C) at the positions of
            `labels`; or those of the labels themselves, shaped like `labels`.
        labels: (batch, length) token ids, -100 where ignored; a sample of the training data is enough.
        inputs: what the model takes; `input_ids` may be left out if no label is ignored.

    >>> log_p = torch.tensor([[0.9, 0.8, 0.7]]).log()
    >>> print(advise(log_p, torch.tensor([[3, 1, 2]])))
    MAE(): mean p of the labels is 0.80; near .8 -p (DFT) beat NLL (Li et al., arXiv:2510.00526)
    """
    if labels.is_floating_point():
        raise TypeError(f"labels must be token ids, got {labels.dtype}")
    if isinstance(model, Tensor):
        log_p = _of_labels(model, labels) if model.ndim == labels.ndim + 1 else model
        if log_p.shape != labels.shape:
            raise ValueError(f"log-probabilities {tuple(model.shape)} don't go with labels {tuple(labels.shape)}")
    else:
        if "input_ids" not in inputs and bool((labels == IGNORED).any()):
            raise ValueError("input_ids must be given: labels of -100 hide what the model reads")
        was_training = model.training
        model.eval()
        try:
            output = model(**{"input_ids": labels, **inputs})
        finally:
            model.train(was_training)
        logits = getattr(output, "logits", output)
        labels = labels[..., 1:].to(logits.device)
        log_p = _of_labels(at_least_float32(logits[..., :-1, :]).log_softmax(-1), labels)
    known = labels != IGNORED
    if not known.any():
        raise ValueError("labels must have a token that is not -100")
    mean_p = float(log_p[known].double().exp().mean())
    if mean_p >= STRONG:
        return Advice(MAE(), mean_p, f"near .8 -p (DFT) beat NLL ({SOURCE})")
    if mean_p <= WEAK:
        return Advice(CCE(), mean_p, f"near 0 NLL won and -p collapsed ({SOURCE})")
    return Advice(GCE(0.5), mean_p, f"near .5 no objective won clearly; this one is between NLL and -p ({SOURCE})")


def _of_labels(log_probs: Tensor, labels: Tensor) -> Tensor:
    return log_probs.gather(-1, labels.clamp_min(0)[..., None])[..., 0]
