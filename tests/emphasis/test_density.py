"""Integrals and objectives of weightings, and the emphasis of criteria."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

import reweigh
from instances import FROM_LOSSES, WEIGHTINGS, Instance, name
from reweigh import AUL, CCE, DM, GCE, MAE, MSE, Beta, Curve, Tapered, Uniform, Weighting, emphasis_of
from reweigh.emphasis import (
    emphasis_share,
    emphasis_variance,
    integral,
    is_bounded,
    potential,
    potential_range,
    symmetry_gap,
    unit_weighting,
)

MARGIN = torch.linspace(-12, 12, 97, dtype=torch.float64)


@pytest.mark.parametrize("instance", FROM_LOSSES, ids=name)
def test_potential_equals_the_loss(instance: Instance) -> None:
    assert instance.loss is not None
    torch.testing.assert_close(
        potential(instance.weighting, MARGIN), instance.loss(MARGIN.sigmoid()), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("taper", [0.0, 5e-7, 1e-2])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_potential_is_an_antiderivative(weighting: Weighting, taper: float) -> None:
    edges = {math.log(p / (1 - p)) for p in weighting.breakpoints}
    points = [m for m in (-9.3, -2.1, -0.4, 0.31, 3.3, 14.6) if all(abs(m - e) > 0.1 for e in edges)]
    margin = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(potential(weighting, margin, taper).sum(), margin)
    q = torch.sigmoid(-margin.detach())
    w = weighting(margin.detach().sigmoid(), q) * q / (q + taper)
    torch.testing.assert_close(slope, -w / 2, rtol=1e-7, atol=1e-9 * float(w.max()))


@pytest.mark.parametrize("weighting", [DM(0.5, 8), GCE(0.7), DM(0, -2), Tapered(DM(1, 4), 1e-2)], ids=repr)
def test_potential_passes_gradcheck(weighting: Weighting) -> None:
    margin = torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m: potential(weighting, m), margin)


def test_potential_with_one_parameter_per_example() -> None:
    beta = torch.tensor([1.0, 4.0, 8.0], dtype=torch.float64)
    margin = torch.tensor([-1.0, 0.5, 3.0], dtype=torch.float64)
    batched = potential(DM(0.5, beta), margin)
    one_by_one = [potential(DM(0.5, float(b)), m[None])[0] for b, m in zip(beta, margin, strict=True)]
    torch.testing.assert_close(batched, torch.stack(one_by_one))


@pytest.mark.parametrize(
    ("weighting", "limit"),
    [(MAE(), 1), (MSE(), 1), (GCE(0.7), 1 / 0.7), (CCE(), math.inf), (Curve(((0.4, 0), (0.6, 1))), None)],
)
def test_potential_at_p_zero_is_the_limit(weighting: Weighting, limit: float | None) -> None:
    ends = torch.tensor([-math.inf, -1e3, 0.5], dtype=torch.float64)
    at_zero, near, inside = potential(weighting, ends, taper=1e-3 if limit is None else 0.0).tolist()
    assert math.isfinite(inside)
    assert at_zero == pytest.approx(near if limit is None else limit)


@pytest.mark.parametrize("q", [0.001, 0.01, 0.1, 0.5])
def test_potential_of_a_slowly_decaying_weight(q: float) -> None:
    margin = torch.tensor([-5.0, 0.0, 20.0, 59.5, 60.0, 75.0, 500.0], dtype=torch.float64, requires_grad=True)
    loss = torch.exp(q * logsigmoid(-margin.detach())) / q  # (1 - p)^q / q, which may still be large at m = 60
    value = potential(AUL(1, q), margin)
    torch.testing.assert_close(value, loss, rtol=1e-9, atol=0)
    torch.testing.assert_close(potential(AUL(1, q) + Uniform(), margin.detach()), loss - margin.detach() / 2)
    (slope,) = torch.autograd.grad(value.sum(), margin)
    torch.testing.assert_close(slope, -q * loss * margin.detach().sigmoid(), rtol=1e-9, atol=0)
    assert potential(AUL(1, q), torch.tensor([math.inf])) == 0
    assert potential_range(AUL(1, q)) == pytest.approx((0, 1 / q), rel=1e-9)
    per_example = AUL(1, torch.full((7,), q, dtype=torch.float64))
    torch.testing.assert_close(potential(per_example, margin.detach()), loss)


def test_potential_of_an_infinite_weight_at_p_1_raises() -> None:
    with pytest.raises(ValueError, match="infinite at p = 1"):
        potential(Beta(1, 0.5), MARGIN)


def test_boundedness() -> None:
    assert [is_bounded(w) for w in (CCE(), MAE(), GCE(0.7), MSE())] == [False, True, True, True]
    assert not is_bounded(DM(0.5, 8))  # as stated in the paper
    assert potential_range(GCE(0.7)) == pytest.approx((0, 1 / 0.7))
    assert potential_range(GCE(0.01))[1] == pytest.approx(100, rel=1e-6)
    assert potential_range(DM(0.5, 8)) == (-math.inf, math.inf)
    assert potential_range(Beta(2, 1.01)) == pytest.approx((0, 50))  # half of B(1, 0.01)
    assert potential_range(AUL(1, 0)) == pytest.approx((-math.inf, 0))  # log(1 - p)
    assert potential_range(DM(0.5, 8), taper=5e-7)[0] == 0


@pytest.mark.parametrize("num_classes", [2, 10])
def test_symmetry_gap(num_classes: int) -> None:
    uniform = (num_classes - num_classes**0.3) / 0.7
    onehot = (num_classes - 1) / 0.7
    assert symmetry_gap(GCE(0.7), num_classes) == pytest.approx(abs(uniform - onehot), rel=1e-6)
    assert symmetry_gap(MAE(), num_classes) == pytest.approx(0, abs=1e-9)
    assert symmetry_gap(CCE(), num_classes) == math.inf


def test_shares_sum_to_one() -> None:
    for weighting in (DM(0.5, 12), CCE(), Curve(((0.0, 1.0), (0.4, 3.0), (1.0, 0.0)))):
        parts = [emphasis_share(weighting, a / 10, (a + 1) / 10).item() for a in range(10)]
        assert sum(parts) == pytest.approx(1, rel=1e-9)
    assert emphasis_share(Uniform(), 0.2, 0.5).item() == pytest.approx(0.3, rel=1e-12)
    with pytest.raises(ValueError, match="0 <= low <= high <= 1"):
        emphasis_share(CCE(), 0.5, 0.2)


def test_infinite_integral() -> None:
    for weighting in (Beta(0, 2), Beta(2, 0), Beta(0, 0), Beta(0.5, 2) * Beta(0.5, 1)):
        assert integral(weighting).item() == math.inf
        with pytest.raises(ValueError, match="normalise='unit' divides by the integral"):
            reweigh.Criterion(weighting, normalise="unit")


@pytest.mark.parametrize("loss", [lambda p: (1 - p).sqrt(), lambda p: -(1 - p).sqrt() * p.log()], ids=["root", "focal"])
def test_loss_without_a_derivative_at_p_1(loss: Callable[[Tensor], Tensor]) -> None:
    weighting = reweigh.from_loss(loss)
    assert weighting(1.0) == 0
    logits = torch.tensor([[30.0, 0.0], [38.0, 0.0], [90.0, 0.0]], dtype=torch.float64, requires_grad=True)
    reweigh.Criterion(weighting)(logits, torch.tensor([0, 0, 0])).backward()
    assert logits.grad is not None
    assert (logits.grad[:, 1].diff() < 0).all()  # p is 1 in the last two
    assert potential(weighting, 0.0).item() == pytest.approx(loss(torch.tensor(0.5)).item(), rel=1e-6)


def test_from_loss_of_an_invalid_loss_raises() -> None:
    with pytest.raises(ValueError, match="must not increase with p"):
        reweigh.from_loss(lambda p: p)
    with pytest.raises(ValueError, match="must be differentiable"):
        reweigh.from_loss(lambda p: (0.5 - p).clamp_min(0).sqrt())
    for without_gradient in (lambda p: -p.detach().log(), lambda p: 0 * p):
        with pytest.raises(ValueError, match="derivative of the loss is 0 at every p"):
            reweigh.from_loss(without_gradient)


def test_functions_accept_callables() -> None:
    def mae(p: torch.Tensor) -> torch.Tensor:
        return 2 * p * (1 - p)

    assert integral(mae).item() == pytest.approx(integral(MAE()).item())
    assert unit_weighting(mae)(0.25) == pytest.approx(unit_weighting(MAE())(0.25))
    assert emphasis_variance(mae).item() == pytest.approx(emphasis_variance(MAE()).item())
    assert emphasis_share(mae, 0.0, 0.2).item() == pytest.approx(emphasis_share(MAE(), 0.0, 0.2).item())
    torch.testing.assert_close(potential(mae, MARGIN), potential(MAE(), MARGIN))
    assert potential_range(mae) == pytest.approx((0, 1))
    assert is_bounded(mae)
    assert symmetry_gap(mae, 3) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_emphasis_of_a_criterion_is_its_weighting(weighting: Weighting) -> None:
    criterion = reweigh.Criterion(weighting, normalise=None, taper=0.0)
    emphasis = emphasis_of(criterion, num_classes=10, points=50, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(emphasis.w, weighting(emphasis.p), rtol=1e-6, atol=1e-9)
    positive = emphasis.w > 1e-9
    torch.testing.assert_close(emphasis.cosine[positive], torch.ones(int(positive.sum()), dtype=torch.float64))


def test_emphasis_of_batch_normalised_is_relative_to_its_mean() -> None:
    emphasis = emphasis_of(reweigh.Criterion(DM(0.5, 8), taper=0.0), num_classes=5)
    expected = DM(0.5, 8)(emphasis.p)
    torch.testing.assert_close(emphasis.w, expected / expected.mean())


def test_emphasis_of_a_criterion_with_another_direction() -> None:
    smoothing = torch.nn.CrossEntropyLoss(label_smoothing=0.3)
    assert emphasis_of(smoothing, 10, generator=torch.Generator().manual_seed(0)).cosine.min() < 0.9
    per_row = emphasis_of(torch.nn.CrossEntropyLoss(reduction="none"), 4)
    torch.testing.assert_close(per_row.w, 2 * (1 - per_row.p))
    with pytest.raises(ValueError, match="reduction must be"):
        emphasis_of(smoothing, 10, reduction="avg")


def test_emphasis_of_a_module_with_float32_buffers() -> None:
    weighted = torch.nn.CrossEntropyLoss(weight=torch.ones(10))
    plain = emphasis_of(torch.nn.CrossEntropyLoss(), 10)
    torch.testing.assert_close(emphasis_of(weighted, 10), plain)
    assert weighted.weight is not None
    assert weighted.weight.dtype == torch.float32  # emphasis_of uses a copy


def test_potential_of_a_number() -> None:
    assert float(potential(CCE(), 0.0)) == pytest.approx(math.log(2))
    assert float(potential(CCE(), math.inf)) == 0
