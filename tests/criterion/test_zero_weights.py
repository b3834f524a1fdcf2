"""Rows without weight do not affect the normaliser, and NaN rows with weight make it NaN."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from reweigh import CCE, DM, BinaryCriterion, Criterion, Focal, Weighting

WEIGHTINGS = [DM(0.5, 8), CCE(), Focal(2.0)]
SMOOTHING = [0.0, 0.1]


def draw() -> tuple[Tensor, Tensor, Tensor]:
    """Return six rows, the first NaN and with sample weight 0."""
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[0] = math.nan
    return logits, torch.arange(6) % 5, torch.tensor([0.0, 1, 2, 1, 0.5, 1], dtype=torch.float64)


def result(criterion: Any, logits: Tensor, *arguments: Tensor, **call: Any) -> tuple[Tensor, Tensor]:
    z = logits.detach().clone().requires_grad_()
    value = criterion(z, *arguments, **call)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
def test_a_nan_row_without_weight_equals_an_absent_row(weighting: Weighting, smoothing: float, normalise: Any) -> None:
    logits, target, s = draw()
    criterion = Criterion(weighting, normalise=normalise, label_smoothing=smoothing)
    value, gradient = result(criterion, logits, target, sample_weight=s)
    without, expected = result(criterion, logits[1:], target[1:], sample_weight=s[1:])
    torch.testing.assert_close(value, without)
    torch.testing.assert_close(gradient[1:], expected)
    torch.testing.assert_close(
        criterion.log_normaliser(logits, target, s), criterion.log_normaliser(logits[1:], target[1:], s[1:])
    )


@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
def test_a_nan_row_with_weight_makes_the_normaliser_nan(weighting: Weighting, smoothing: float) -> None:
    logits, target, _ = draw()
    criterion = Criterion(weighting, normalise="batch", label_smoothing=smoothing)
    value, gradient = result(criterion, logits, target)
    assert value.isnan()
    assert gradient.isnan().all()
    assert criterion.log_normaliser(logits, target).isnan()


def test_nan_elements_of_the_binary_criterion() -> None:
    logits, _, s = draw()
    y = (torch.arange(30).reshape(6, 5) % 2).double()
    criterion = BinaryCriterion(DM(0.5, 8))
    per_element = s[:, None].expand(6, 5)
    _, gradient = result(criterion, logits, y, sample_weight=per_element)
    _, expected = result(criterion, logits[1:], y[1:], sample_weight=per_element[1:])
    torch.testing.assert_close(gradient[1:], expected)
    assert result(criterion, logits, y)[1].isnan().all()


@pytest.mark.parametrize("w_at_zero", [math.inf, math.nan])
def test_infinite_w_without_sample_weight(w_at_zero: float) -> None:
    logits, target, s = draw()
    logits[0] = torch.tensor([-math.inf, 1.0, 2.0, 3.0, 4.0])  # p = 0
    criterion = Criterion(lambda p: torch.where(p == 0, w_at_zero, 1 / p), taper=0.0)
    _, gradient = result(criterion, logits, target, sample_weight=s)
    assert not gradient[0].any()
    torch.testing.assert_close(gradient[1:], result(criterion, logits[1:], target[1:], sample_weight=s[1:])[1])


def test_compiled_and_mapped() -> None:
    torch.compiler.reset()
    logits, target, s = draw()
    criterion = Criterion(DM(0.5, 8))
    _, expected = result(criterion, logits, target, sample_weight=s)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(result(compiled, logits, target, sample_weight=s)[1][1:], expected[1:])

    def gradient(s: Tensor) -> Tensor:
        return torch.func.grad(lambda z: criterion(z, target, sample_weight=s))(logits)

    mapped = torch.func.vmap(gradient)(torch.stack((s, 2 * s)))
    torch.testing.assert_close(mapped[:, 1:], expected[1:].expand(2, 5, 5))


def test_zero_sample_weight_has_a_derivative() -> None:
    """The derivative of a share with respect to a weight of 0 is not 0; meta-learning starts there."""
    logits, target, s = draw()
    logits[0] = torch.randn(5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    criterion = Criterion(DM(0.5, 8))

    def gradient(s: Tensor) -> Tensor:
        z = logits.clone().requires_grad_()
        return torch.autograd.grad(criterion(z, target, sample_weight=s), z, create_graph=True)[0]

    slope = torch.autograd.functional.jacobian(gradient, s)[..., 0]
    step = torch.zeros_like(s)
    step[0] = 1e-6
    torch.testing.assert_close(slope, (gradient(s + step) - gradient(s)) / 1e-6, rtol=1e-4, atol=1e-6)
