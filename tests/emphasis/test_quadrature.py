"""Integrals of difficult weightings: undeclared kinks and jumps, narrow peaks, tiny intervals at the ends."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import reweigh
from reweigh import CCE, DM, Exponential, Normal, PerClass, PHuber, Weighting
from reweigh.emphasis import emphasis_share, integral, log_integral, potential, unit_weighting
from reweigh.weightings import FromCallable


def hinge(breakpoints: tuple[float, ...] = ()) -> Weighting:
    return reweigh.from_loss(lambda p: torch.relu(0.37 - p), breakpoints)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda p: torch.relu(0.37 - p), 0.37**2 / 2),
        (lambda p: (p > 0.3).double(), 0.7),
        (lambda p: ((p > 0.4) & (p < 0.5)).double() + 1e-3 * p, 0.1005),
        (FromCallable(lambda p: ((p > 0.4) & (p < 0.401)).double(), breakpoints=(0.4, 0.401)), 0.001),
    ],
    ids=["kink", "jump", "step", "declared slit"],
)
def test_integral_with_undeclared_breakpoints(function: Callable[[Tensor], Tensor], expected: float) -> None:
    assert integral(function).item() == pytest.approx(expected, rel=1e-9)


def test_integral_and_objective_of_a_loss_with_a_kink() -> None:
    margin = torch.tensor([0.2, 0.37, 0.9], dtype=torch.float64).logit()
    expected = torch.tensor([0.17, 0.0, 0.0], dtype=torch.float64)
    for weighting in (hinge(), hinge(breakpoints=(0.37,))):
        assert integral(weighting).item() == pytest.approx(0.37**2 - 2 * 0.37**3 / 3, rel=1e-10)
        torch.testing.assert_close(potential(weighting, margin), expected, rtol=0, atol=1e-10)


def test_breakpoints_must_be_inside_the_interval() -> None:
    assert (2 * hinge((0.37,)) + FromCallable(lambda p: p, breakpoints=(0.5,))).breakpoints == (0.37, 0.5)
    with pytest.raises(ValueError, match=r"FromLoss: breakpoints must be p inside \(0, 1\), got \(0.37, 1\)"):
        hinge((0.37, 1))
    with pytest.raises(ValueError, match="FromCallable: breakpoints"):
        FromCallable(lambda p: p, breakpoints=(-0.5,))


@pytest.mark.parametrize("beta", [1e4, 1e8])
def test_integral_of_a_narrow_peak(beta: float) -> None:
    gauss = 0.09 * beta + math.log(math.pi / beta) / 2
    assert log_integral(Normal(0.3, beta)).item() == pytest.approx(gauss, rel=1e-14)


def test_integral_with_tensor_parameters_and_undeclared_breakpoints() -> None:
    tau = torch.tensor([1.5, 4.0, 9.0], dtype=torch.float64)
    expected = [integral(PHuber(each)).item() for each in tau.tolist()]
    assert integral(PHuber(tau)).tolist() == pytest.approx(expected, rel=1e-10)


def test_integral_is_differentiable_across_an_undeclared_kink() -> None:
    tau = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: integral(PHuber(t)), tau)


@pytest.mark.parametrize("beta", [0.0, 1e-16, -1e-16, 1e-8, -0.0099, 0.0101, -0.3, 40.0, -40.0])
def test_integral_of_an_exponential_is_differentiable_at_any_beta(beta: float) -> None:
    at = torch.tensor(beta, dtype=torch.float64, requires_grad=True)
    closed, by_quadrature = (torch.autograd.grad(log_integral(w), at)[0] for w in (Exponential(at), DM(0.0, at)))
    torch.testing.assert_close(closed, by_quadrature, rtol=1e-12, atol=0)
    torch.testing.assert_close(log_integral(Exponential(at)), log_integral(DM(0.0, at)), rtol=1e-13, atol=1e-15)


def test_unit_weighting_of_weights_beyond_float64() -> None:
    density = unit_weighting(DM(0.5, 2500.0))
    assert integral(density).item() == pytest.approx(1, rel=1e-12)
    assert emphasis_share(density, 0.28, 0.39).item() == pytest.approx(1, rel=1e-2)
    z, y = torch.tensor([[0.0, math.log(2.0)]], requires_grad=True), torch.tensor([0])  # at the mode, p = 1/3
    reweigh.Criterion(DM(0.5, 2500.0), normalise="unit")(z, y).backward()
    assert z.grad is not None
    assert z.grad.abs().sum().item() == pytest.approx(density(1 / 3), rel=1e-5)


def test_shares_of_tiny_intervals() -> None:
    assert emphasis_share(CCE(), 0, 1e-30).item() == pytest.approx(2e-30, rel=1e-9)
    assert emphasis_share(CCE(), 1e-40, 1e-30).item() == pytest.approx(2e-30, rel=1e-9)
    assert emphasis_share(CCE(), 0, 5e-324).item() >= 0
    assert emphasis_share(DM(0.5, 8), 1 - 1e-12, 1).item() == pytest.approx(
        1e-12 / integral(DM(0.5, 8)).item(), rel=1e-3
    )


def test_integrals_and_objectives_use_the_device_of_the_parameters() -> None:
    lam = torch.tensor([0.5, 1.0], device="meta")
    assert integral(PerClass(DM(lam, 8.0))).device.type == "meta"
    assert potential(DM(lam, 8.0), torch.zeros(2, device="meta"), taper=1e-3).device.type == "meta"
