"""Normalised within every class, a class pulls as a batch of its own would, with its share of all that counts."""

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
    """Logits, labels of which one is ignored, sample weights of which one is 0; there is no label 3."""
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(15, C, generator=rng, dtype=torch.float64) * 3
    s = torch.rand(15, generator=rng, dtype=torch.float64)
    s[4] = 0
    target = torch.arange(15) % 3
    target[7] = -100
    return logits, target, s


def gradient(criterion: Criterion, logits: Tensor, target: Tensor, **call: Any) -> Tensor:
    z = logits.clone().requires_grad_()
    (found,) = torch.autograd.grad(criterion(z, target, **call).sum(), z)
    return found


@pytest.mark.parametrize("taper", [0.0, 1e-2])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 3.0, 0.0, 2.0], dtype=torch.float64)], ids=["", "weight"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_each_class_is_a_batch_of_its_own(weighting: Weighting, weight: Tensor | None, taper: float) -> None:
    logits, target, s = draw()
    found = gradient(
        Criterion(weighting, normalise="class", taper=taper, weight=weight), logits, target, sample_weight=s
    )
    counts = s * (target >= 0) * (1.0 if weight is None else weight[target.clamp_min(0)])
    expected = torch.zeros_like(logits)
    for c in range(3):
        own = target == c
        alone = Criterion(weighting, normalise="batch", taper=taper)
        share = counts[own].sum() / counts.sum()
        expected[own] = share * gradient(alone, logits[own], target[own], sample_weight=s[own])
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-300)


def test_one_hot_targets_are_class_indices() -> None:
    logits, target, s = draw()
    valid = target >= 0
    logits, target, s = logits[valid], target[valid], s[valid]
    criterion = Criterion(DM(1, 16), normalise="class")
    one_hot = torch.nn.functional.one_hot(target, C).double()
    torch.testing.assert_close(
        gradient(criterion, logits, one_hot, sample_weight=s), gradient(criterion, logits, target, sample_weight=s)
    )


def test_a_class_that_is_hardly_believed_keeps_its_share() -> None:
    """Where the batch has one normaliser, what the net believes takes all."""
    p = torch.tensor([0.5, 0.6, 0.01, 0.02], dtype=torch.float64)
    logits, target = torch.stack((p.log(), (1 - p).log()), 1), torch.tensor([0, 0, 1, 1])
    logits[2:] = logits[2:].flip(1)
    for normalise, share in (("batch", 0.02), ("class", 0.5)):
        found = batch_stats(logits, target, DM(1, 16), normalise=normalise).share[2:].sum().item()  # type: ignore[arg-type]
        assert found == pytest.approx(share, abs=0.01)


def test_what_is_inspected_is_what_is_emitted() -> None:
    logits, target, s = draw()
    norms = gradient(Criterion(DM(1, 16), normalise="class"), logits, target, sample_weight=s).abs().sum(1)
    stats = batch_stats(logits, target, DM(1, 16), normalise="class", sample_weight=s)
    torch.testing.assert_close(stats.share, norms / norms.sum())


def test_recorded_weights_are_those_of_the_shares() -> None:
    logits, target, _ = draw()
    logits, target = logits[target >= 0], target[target >= 0]
    criterion = Criterion(DM(1, 16), normalise="class", taper=0.0)
    weights = ByCriterion(torch.nn.Identity(), lambda step: criterion).weights(logits, target, target, 0)
    assert weights is not None
    norms = gradient(criterion, logits, target).abs().sum(1)
    torch.testing.assert_close(weights, norms * len(target))


@pytest.mark.parametrize(
    ("call", "told"),
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
def test_what_is_refused(call: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"^.*{told}"):
        call()


def test_sample_weights_that_are_all_zero_have_a_gradient() -> None:
    """As those that a method learns may be to begin with."""
    logits, target, s = draw()
    z, s = logits.requires_grad_(), torch.zeros_like(s).requires_grad_()
    value = Criterion(DM(1, 16), normalise="class")(z, target, sample_weight=s)
    (emitted,) = torch.autograd.grad(value, z, create_graph=True)
    assert not emitted.any()
    (found,) = torch.autograd.grad((emitted * logits.detach()).sum(), s)
    assert found.isfinite().all()
    assert found[target >= 0].all()
