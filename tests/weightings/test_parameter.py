"""Parameters of a weighting: accepted types and ranges, and derivatives with respect to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from reweigh import (
    AGCE,
    AUL,
    CCE,
    DM,
    GCE,
    MAE,
    MSE,
    SL,
    Criterion,
    Focal,
    ForwardSymmetric,
    PerClass,
    Tapered,
    Weighting,
)
from reweigh.emphasis import potential


@pytest.mark.parametrize("number", [np.int64(1), np.int8(1), np.float32(1), np.float64(1), np.array(1.0)[()]])
def test_numpy_numbers_are_accepted(number: Any) -> None:
    weighting = DM(number, 8)
    assert weighting == DM(1, 8)
    assert repr(weighting) in ("DM(lam=1, beta=8)", "DM(lam=1.0, beta=8)")
    logits, target = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
    assert Criterion(DM(0, 8), taper=number)(logits, target).isfinite()


@pytest.mark.parametrize("count", [np.int64(10), np.uint8(10), np.float32(10), 10.0])
def test_whole_numbers_are_accepted_as_num_classes(count: Any) -> None:
    assert repr(ForwardSymmetric(0.25, num_classes=count)) == "ForwardSymmetric(rate=0.25, num_classes=10)"


@pytest.mark.parametrize("count", [True, "10", None, 1, 10.5, float("inf"), float("nan")])
def test_bad_num_classes_raises(count: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"ForwardSymmetric's num_classes is .*; expected a whole number"):
        ForwardSymmetric(0.25, num_classes=count)


def test_a_single_precision_number_keeps_its_value() -> None:
    assert GCE(float(np.float32(0.7))) == GCE(np.float32(0.7))


def test_numbers_that_leave_no_digits_of_log_w_raise() -> None:
    for number in (1e308, -1e308, 2e9):
        with pytest.raises(ValueError, match=r"DM: beta must be .*, where float64 has no digits left for log w"):
            DM(0.5, number)
    with pytest.raises(ValueError, match="Focal: gamma must be"):
        Focal(1e300)
    assert 1e300 * CCE() == 1e300 * CCE()


@pytest.mark.parametrize("value", [True, np.True_, "1", None, 1j, np.ones(2)])
def test_values_that_are_not_numbers_raise(value: Any) -> None:
    with pytest.raises(TypeError, match="DM: lam must be a number or a tensor"):
        DM(value, 8)


@pytest.mark.parametrize("value", [np.float32("nan"), np.int64(-1), np.float64("inf")])
def test_a_number_out_of_range_raises(value: Any) -> None:
    with pytest.raises(ValueError, match="DM: lam must be a number in"):
        DM(value, 8)


@pytest.mark.parametrize("lam", [torch.tensor([0.5, 1.0]), torch.ones(3, 1), torch.ones(4003)])
def test_mode_of_a_tensor_parameter_raises(lam: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="one mode per element"):
        _ = DM(lam, 8.0).mode


def test_mode_of_a_scalar_tensor() -> None:
    assert DM(torch.tensor(1.0), 8.0).mode == pytest.approx(0.5)
    rate = torch.tensor(0.4, dtype=torch.float64)
    assert ForwardSymmetric(rate, 10).mode == pytest.approx(ForwardSymmetric(0.4, 10).mode)


@pytest.mark.parametrize(
    ("make", "at"),
    [
        (Focal, 0.0),
        (Focal, 2.0),
        (lambda t: CCE() + t * MAE(), 1.0),
        (lambda t: CCE() + t * MAE(), 0.0),
        (lambda t: t * MAE(), 0.0),
        (lambda t: t * DM(0.5, 8) * MAE() + t * MSE(), 0.0),
        (lambda t: DM(0.5, t) * MAE() + CCE(), 2.0),
        (lambda t: SL(1.0, t), 0.0),
        (lambda t: SL(t, 1.0), 0.0),
        (lambda t: AGCE(t, 0.6), 0.0),
        (lambda t: AUL(t, 3.0), 1.0),
        (lambda t: Tapered(MSE(), t), 0.0),
        (lambda t: ForwardSymmetric(t, 10), 0.0),
        (lambda t: ForwardSymmetric(t, 10), 0.4),
    ],
    ids=[
        *("CCE as focal loss", "focal loss", "sum of losses", "sum at factor 0", "factor 0", "two factors 0"),
        *("sum with a product", "SL without MAE", "SL", "AGCE", "AUL", "Tapered"),
        *("CCE as forward correction", "forward correction"),
    ],
)
def test_objective_is_differentiable_in_a_parameter(make: Callable[[torch.Tensor], Weighting], at: float) -> None:
    margin = torch.tensor([-3.0, 0.2, 5.0], dtype=torch.float64)
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(potential(make(x), margin).sum(), x)
    before, after = (potential(make(x.detach() + step), margin).sum() for step in (0.0, 1e-6))
    torch.testing.assert_close(slope, (after - before) / 1e-6, rtol=1e-4, atol=0)


@pytest.mark.parametrize("make", [lambda t: t * CCE(), lambda t: PerClass(torch.stack((t, t + 1)) * CCE())])
def test_unit_normalisation_of_a_learnable_factor_of_0_raises(
    make: Callable[[torch.Tensor], Weighting],
) -> None:
    with pytest.raises(ValueError, match="divides by the integral of w over"):
        Criterion(make(torch.zeros((), requires_grad=True)), normalise="unit")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_gradient_is_differentiable_in_a_class_factor_of_0(normalise: Any, dtype: torch.dtype) -> None:
    """The derivative of the gradient with respect to class factors equals finite differences, also at 0."""
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target, direction = torch.tensor([0, 1, 2, 0, 1, 2]), torch.linspace(-1, 1, 18, dtype=torch.float64).reshape(6, 3)

    def projected_gradient(factor: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        criterion = Criterion(PerClass(factor * GCE(0.7)), normalise=normalise)
        (gradient,) = torch.autograd.grad(criterion(z, target), z, create_graph=True)
        return (gradient * direction).sum()

    factor = torch.tensor([0.0, 1.0, 2.0], dtype=dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(projected_gradient(factor, logits.clone().requires_grad_()), factor)
    exact, step = factor.detach().double(), 1e-6 * torch.eye(3, dtype=torch.float64)
    logits.requires_grad_()
    start = projected_gradient(exact, logits)
    differences = [(projected_gradient(exact + d, logits) - start) / 1e-6 for d in step]
    torch.testing.assert_close(slope.double(), torch.stack(differences).detach(), rtol=1e-4, atol=1e-8)
