"""Properties of all weightings."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from instances import CURVE, FROM_LOSSES, INSTANCES, WEIGHTINGS, Instance, name
from reweigh import (
    AGCE,
    AUL,
    CCE,
    DM,
    GCE,
    MAE,
    MSE,
    SL,
    Beta,
    Curve,
    Exponential,
    Focal,
    ForwardSymmetric,
    Normal,
    PHuber,
    Tapered,
    TruncatedGCE,
    Uniform,
    Weighting,
)
from reweigh.emphasis import emphasis_variance, integral, unit_weighting
from reweigh.weightings import FromLoss

GRID = torch.linspace(-60, 60, 2401, dtype=torch.float64)


def at_margins(weighting: Weighting, margin: torch.Tensor = GRID) -> torch.Tensor:
    logsigmoid = torch.nn.functional.logsigmoid
    return weighting.log_weight(logsigmoid(margin), logsigmoid(-margin)).exp()


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_is_never_negative_and_finite_inside(weighting: Weighting) -> None:
    w = at_margins(weighting)
    assert (w >= 0).all()
    assert w.isfinite().all()


@pytest.mark.parametrize("instance", INSTANCES, ids=name)
def test_equals_the_papers_formula_in_high_precision(instance: Instance) -> None:
    # f(p) knows 1 - p only to the precision of float64
    rel = 1e-7 if isinstance(instance.weighting, FromLoss) else 1e-12
    with mpmath.workdps(200):
        for margin in (-300.0, -80.0, -20.0, -3.0, -1.0, -0.25, 0.0, 0.5, 2.0, 10.0, 40.0, 200.0):
            if rel > 1e-12 and margin > 15:
                continue
            p, q = 1 / (1 + mpmath.exp(-margin)), 1 / (1 + mpmath.exp(margin))
            expected = instance.formula(p, q, mpmath)
            (got,) = at_margins(instance.weighting, torch.tensor([margin], dtype=torch.float64)).tolist()
            assert got == pytest.approx(float(expected), rel=rel, abs=1e-300), f"at margin {margin}"


@pytest.mark.parametrize("margin", [-690.0, -720.0, -1e4, -math.inf])
def test_from_loss_has_the_correct_limit_at_p_0(margin: float) -> None:
    at = torch.tensor([margin], dtype=torch.float64)
    for loss, same in ((lambda p: -p.log(), CCE()), (lambda p: 1 - p, MAE()), (lambda p: (1 - p**0.7) / 0.7, GCE(0.7))):
        torch.testing.assert_close(at_margins(FromLoss(loss), at), at_margins(same, at), rtol=1e-9, atol=1e-200)


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_mode_is_the_argmax(weighting: Weighting) -> None:
    p = torch.linspace(0, 1, 20001, dtype=torch.float64)
    w = weighting(p)
    if weighting.mode is None:
        assert w.max() - w.min() < 1e-12
        return
    for mode in weighting.mode if isinstance(weighting.mode, tuple) else (weighting.mode,):
        # also just above the mode, where a truncated w jumps
        near = max(weighting(min(1.0, mode + 1e-12)), weighting(mode))
        assert near >= w.max().item() * (1 - 1e-9)


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_unit_normalisation_integrates_to_one(weighting: Weighting) -> None:
    scaled = unit_weighting(weighting)
    cuts = sorted({0.0, 1.0, *weighting.breakpoints, *(c / 64 for c in range(1, 64))})
    with mpmath.workdps(20):  # quadrature in p by mpmath, with short intervals at both ends
        ends = [1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 5e-3]
        points = sorted({*cuts, *ends, *(1 - e for e in ends)})
        total = mpmath.quad(lambda p: scaled(float(p), float(1 - p)), points, maxdegree=4)
    assert float(total) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("instance", FROM_LOSSES, ids=name)
def test_is_the_derivative_of_its_loss(instance: Instance) -> None:
    assert instance.loss is not None
    p = torch.linspace(0.003, 0.997, 330, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(instance.loss(p).sum(), p)
    expected = -2 * p.detach() * (1 - p.detach()) * slope
    torch.testing.assert_close(instance.weighting(p.detach()), expected, rtol=1e-11, atol=1e-13)
    assert instance.weighting.kind == "loss"


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        (CCE(), 2 * Beta(1, 2)),
        (MAE(), 2 * Beta(2, 2)),
        (MSE(), 4 * Beta(2, 3)),
        (GCE(0.7), 2 * Beta(1.7, 2)),
        (GCE(0.0), CCE()),
        (GCE(1.0), MAE()),
        (TruncatedGCE(0.7, 0.0), GCE(0.7)),
        (SL(0.0, 9.21), 9.21 * MAE()),
        (SL(2.0, 0.0), 2.0 * CCE()),
        (AGCE(3.0, 1.0), MAE()),
        (AGCE(0.0, 0.7), GCE(0.7)),
        (AGCE(0.0, 0.0), CCE()),
        (AUL(2.0, 1.0), MAE()),
        (AUL(1.0, 0.0), 2 * Beta(2, 1)),
        (Focal(0.0), CCE()),
        (Focal(0.0, detach=True), CCE()),
        (PHuber(1.0), MAE()),
        (PHuber(1e9), CCE()),
        (ForwardSymmetric(0.0, 10), CCE()),
        (DM(0, 2.5), Exponential(2.5)),
        (DM(1, 7), Normal(0.5, 7)),
        (DM(3, 0), Uniform()),
        (Tapered(DM(1, 7), 0.0), DM(1, 7)),
    ],
    ids=lambda weighting: repr(weighting),
)
def test_identities(weighting: Weighting, expected: Weighting) -> None:
    inside = GRID[GRID.abs() < 15]
    torch.testing.assert_close(at_margins(weighting, inside), at_margins(expected, inside), rtol=1e-12, atol=1e-14)


def test_limits_at_both_ends() -> None:
    assert [DM(lam, 3)(0.0) for lam in (0, 0.5)] == pytest.approx([math.exp(3), 1])
    assert GCE(0.7)(0.0) == GCE(0.7)(1.0) == 0
    assert CCE()(0.0) == 2
    assert Beta(1, 1)(0.0) == Beta(1, 1)(1.0) == 1
    assert Focal(2.0)(0.0) == 2
    assert SL(0.0, 2.0)(0.0) == 0
    assert AGCE(0.0, 0.0)(0.0) == AUL(1.0, 0.0)(1.0) == 2
    assert AGCE(0.0, 0.5)(0.0) == AGCE(1.0, 0.0)(0.0) == AUL(1.0, 0.5)(1.0) == AUL(2.0, 0.0)(1.0) == 0


@pytest.mark.parametrize("shape", [(5,), (3, 5)])
def test_tensor_parameters_broadcast_over_examples(shape: tuple[int, ...]) -> None:
    lam = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    beta = torch.linspace(-3, 12, shape[-1], dtype=torch.float64)
    p = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batched = DM(lam, beta)(p)
    one_by_one = [DM(a, b)(x) for a, b, x in zip(lam.flatten(), beta.expand(shape).flatten(), p.flatten(), strict=True)]
    torch.testing.assert_close(batched, torch.stack(one_by_one).reshape(shape))
    scales = integral(DM(lam[..., 0], 4.0)) if lam.ndim > 1 else integral(DM(lam, 4.0))
    firsts = [integral(DM(float(a), 4.0)) for a in (lam[..., 0] if lam.ndim > 1 else lam)]
    torch.testing.assert_close(scales, torch.stack(firsts))


def test_curve_goes_through_its_points_and_never_overshoots() -> None:
    points = ((0.0, 0.0), (0.1, 3.0), (0.5, 3.0), (0.8, 0.5), (1.0, 0.5))
    curve = Curve(points)
    for p, w in points:
        assert curve(p) == pytest.approx(w, abs=1e-12)
    p = torch.linspace(0.1, 0.5, 101, dtype=torch.float64)
    torch.testing.assert_close(curve(p), torch.full_like(p, 3.0))
    assert curve(torch.linspace(0, 1, 1001, dtype=torch.float64)).max() <= 3 + 1e-12
    falling = curve(torch.linspace(0.5, 0.8, 101, dtype=torch.float64))
    assert (falling.diff() <= 1e-12).all()


def test_repr_and_equality() -> None:
    assert repr(DM(0.5, 8)) == "DM(lam=0.5, beta=8)"
    assert repr(CCE() + 0.5 * MAE()) == "CCE() + 0.5 * MAE()"
    assert repr(2 * (CCE() + MAE())) == "2 * (CCE() + MAE())"
    assert repr(DM(1, 2) * (CCE() + MAE())) == "DM(lam=1, beta=2) * (CCE() + MAE())"
    assert DM(0.5, 8) == DM(0.5, 8)
    assert hash(GCE(0.7)) == hash(GCE(0.7))


@pytest.mark.parametrize("beta", [1e-3, -1e-5, 1e-7, 1e-10])
def test_variance_of_an_almost_constant_weight(beta: float) -> None:
    assert emphasis_variance(Exponential(beta)).item() == pytest.approx(beta**2 / 12 * (1 + beta), rel=1e-6, abs=0)


def test_variance_of_zero_and_infinite_weights() -> None:
    assert emphasis_variance(0 * CCE()).item() == emphasis_variance(Uniform()).item() == 0
    assert emphasis_variance(Beta(0, 1)).item() == emphasis_variance(Beta(0.5, 1)).item() == math.inf
    assert emphasis_variance(Beta(0.55, 1)).item() == pytest.approx(10 - 1 / 0.55**2, rel=1e-10)


def test_variance_is_differentiable_at_a_constant_weight() -> None:
    beta = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(emphasis_variance(DM(0.5, beta)), beta)
    assert slope.item() == 0


def test_variance_over_given_p() -> None:
    p = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(emphasis_variance(CURVE, p), CURVE(p).var(correction=0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DM(-1, 2), r"DM: lam must be a number in \[0, 1e\+09\], got -1"),
        (lambda: DM(0.5, float("nan")), "DM: beta must be a number .* got nan"),
        (lambda: DM(0.5, math.inf), "DM: beta must be a number .* got inf"),
        (lambda: DM(torch.tensor([0.5, -1.0]), 2), "DM: lam"),
        (lambda: Beta(-0.1, 2), r"Beta: alpha must be a number in \[0, 1e\+09\], got -0.1"),
        (lambda: Normal(-0.1, 2), "Normal: psi"),
        (lambda: GCE(-0.1), "GCE: q"),
        (lambda: TruncatedGCE(0.7, 1.5), r"TruncatedGCE: k must be a number in \[0, 1\], got 1.5"),
        (lambda: PHuber(0.5), "PHuber: tau"),
        (lambda: AUL(0.5, 1.0), "AUL: a"),
        (lambda: ForwardSymmetric(0.9, 10), r"rate must be below \(C - 1\)/C = 0.9"),
        (lambda: ForwardSymmetric(torch.tensor([0.1, 0.9]), 10), r"rate must be below \(C - 1\)/C = 0.9"),
        (lambda: ForwardSymmetric(0.1, 1), "ForwardSymmetric's num_classes is 1; expected a whole number from 2"),
        (lambda: -1 * CCE(), "Scaled: factor"),
        (lambda: Tapered(CCE(), -1e-7), "Tapered: taper"),
        (lambda: Curve(((0.5, 1.0),)), "at least two"),
        (lambda: Curve(((0.5, 1.0), (0.2, 1.0))), "rising within"),
        (lambda: Curve(((0.0, 0.0), (1.0, 0.0))), "somewhere positive"),
    ],
)
def test_bad_parameters_raise(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_wrong_types_raise() -> None:
    with pytest.raises(TypeError, match="DM: lam must be a number or a tensor, got 'x'"):
        DM("x", 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        CCE() + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        CCE() * "a"  # type: ignore[operator]
