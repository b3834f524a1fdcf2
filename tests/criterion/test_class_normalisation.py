"""normalise="class": each class has the gradient of a batch of its own, times its fraction of Σ s."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from instances import WEIGHTINGS, name
from reweigh import DM, BinaryCriterion, Criterion, LinearCriterion, Weighting, batch_stats
from reweigh.lab.methods.criterion import ByCriterion

C = 4


def draw() -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, labels (one ignored, class 3 absent) and sample weights (one 0)."""
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(15, C, generator=rng, dtype=torch.float64) * 3
    s = torch.rand(15, generator=rng, dtype=torch.float64)
    s[4] = 0
    target = torch.arange(15) % 3
    target[7] = -100
    return logits, target, s


def gradient(criterion: Criterion, logits: Tensor, target: Tensor, **call: Any) -> Tensor:
    z = logits.clone().requires_grad_()
    return torch.autograd.grad(criterion(z, target, **call).sum(), z)[0]


@pytest.mark.parametrize("taper", [0.0, 1e-2])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 3.0, 0.0, 2.0], dtype=torch.float64)], ids=["", "weight"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_each_class_equals_its_own_batch(weighting: Weighting, weight: Tensor | None, taper: float) -> None:
    logits, target, s = draw()
    combined = gradient(
        Criterion(weighting, normalise="class", taper=taper, weight=weight), logits, target, sample_weight=s
    )
    counts = s * (target >= 0) * (1.0 if weight is None else weight[target.clamp_min(0)])
    expected = torch.zeros_like(logits)
    for c in range(3):
        own = target == c
        single = Criterion(weighting, normalise="batch", taper=taper)
        share = counts[own].sum() / counts.sum()
        expected[own] = share * gradient(single, logits[own], target[own], sample_weight=s[own])
    torch.testing.assert_close(combined, expected, rtol=1e-11, atol=1e-300)


def test_one_hot_targets_equal_class_indices() -> None:
    logits, target, s = draw()
    valid = target >= 0
    logits, target, s = logits[valid], target[valid], s[valid]
    criterion = Criterion(DM(1, 16), normalise="class")
    one_hot = torch.nn.functional.one_hot(target, C).double()
    torch.testing.assert_close(
        gradient(criterion, logits, one_hot, sample_weight=s), gradient(criterion, logits, target, sample_weight=s)
    )


def test_a_class_with_low_p_keeps_its_share() -> None:
    """Under a normaliser for the batch, the classes with high p take almost all of the gradient."""
    p = torch.tensor([0.5, 0.6, 0.01, 0.02], dtype=torch.float64)
    logits, target = torch.stack((p.log(), (1 - p).log()), 1), torch.tensor([0, 0, 1, 1])
    logits[2:] = logits[2:].flip(1)
    for normalise, share in (("batch", 0.02), ("class", 0.5)):
        stats = batch_stats(logits, target, DM(1, 16), normalise=normalise)  # type: ignore[arg-type]
        assert stats.share[2:].sum().item() == pytest.approx(share, abs=0.01)


def test_batch_stats_shares_equal_the_gradient_norms() -> None:
    logits, target, s = draw()
    norms = gradient(Criterion(DM(1, 16), normalise="class"), logits, target, sample_weight=s).abs().sum(1)
    stats = batch_stats(logits, target, DM(1, 16), normalise="class", sample_weight=s)
    torch.testing.assert_close(stats.share, norms / norms.sum())


def test_recorded_weights_equal_the_gradient_norms() -> None:
    logits, target, _ = draw()
    logits, target = logits[target >= 0], target[target >= 0]
    criterion = Criterion(DM(1, 16), normalise="class", taper=0.0)
    weights = ByCriterion(torch.nn.Identity(), lambda step: criterion).weights(logits, target, target, 0)
    assert weights is not None
    norms = gradient(criterion, logits, target).abs().sum(1)
    torch.testing.assert_close(weights, norms * len(target))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Criterion(DM(1, 4), normalise="class", reduction="sum"), "reduction='sum' does not go with normalise"),
        (lambda: BinaryCriterion(DM(1, 4), normalise="class"), "a binary criterion has 'batch'"),
        (lambda: LinearCriterion(DM(1, 4), normalise="class"), "normalise must be None, 'unit' or 'batch' in Linear"),
        (
            lambda: Criterion(DM(1, 4), normalise="class").log_normaliser(*draw()[:2]),
            "log_normaliser adds up over micro-batches under normalise='batch', not under 'class'",
        ),
        (
            lambda: Criterion(DM(1, 4), normalise="class")(*draw()[:2], log_normaliser=0.0),
            "log_normaliser is the divisor of normalise='batch'",
        ),
        (
            lambda: Criterion(DM(1, 4), normalise="class")(*draw()[:2], sample_weight=-torch.ones(15)),
            "sample_weight must be >= 0 under normalise='class', got -1",
        ),
    ],
)
def test_unsupported_settings_raise(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^.*{message}"):
        call()


def test_zero_sample_weights_have_a_gradient() -> None:
    """Methods that learn sample weights may start from zeros."""
    logits, target, s = draw()
    z, s = logits.requires_grad_(), torch.zeros_like(s).requires_grad_()
    value = Criterion(DM(1, 16), normalise="class")(z, target, sample_weight=s)
    (first,) = torch.autograd.grad(value, z, create_graph=True)
    assert not first.any()
    (second,) = torch.autograd.grad((first * logits.detach()).sum(), s)
    assert second.isfinite().all()
    assert second[target >= 0].all()
