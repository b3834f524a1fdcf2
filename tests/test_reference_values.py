"""Values computed independently in high precision, and identities from the paper."""

from __future__ import annotations

import math

import pytest
import torch

import reweigh
from reweigh import CCE, DM, GCE, MAE, MSE, Beta, Exponential, Normal
from reweigh.emphasis import emphasis_variance, integral, potential, unit_weighting

Z = {
    (0, 2): 3.194528049465,
    (0, 0.9): 1.621781234619,
    (0, -0.52): 0.7797681769804,
    (0, 24): 1103713422.035,
    (0.3, 6.5): 12.4867336737,
    (0.3, 24): 38897.03880583,
    (0.5, 8): 11.40816298002,
    (0.5, 12): 44.36344792719,
    (0.5, 24): 3225.853648595,
    (1, 2): 1.410686134642,
    (1, 8): 4.41971962046,
    (1, 16): 24.08000605715,
    (1, 24): 145.883138604,
    (2, 8): 2.106441408286,
    (2, 12): 3.221241003481,
    (2, 20): 8.150349744787,
    (2, 24): 13.35394389119,
    (3, 0): 1.0,
}


@pytest.mark.parametrize(("parameters", "expected"), Z.items(), ids=str)
def test_unit_integral(parameters: tuple[float, float], expected: float) -> None:
    assert integral(DM(*parameters)).item() == pytest.approx(expected, rel=1e-12)


def test_unit_integral_with_tensor_parameters() -> None:
    lam, beta = (torch.tensor(column, dtype=torch.float64) for column in zip(*Z, strict=True))
    torch.testing.assert_close(
        integral(DM(lam, beta)), torch.tensor([*Z.values()], dtype=torch.float64), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize(("weighting", "expected"), [(CCE(), 1), (MAE(), 1 / 3), (MSE(), 1 / 3), (GCE(0.7), 0.4357298)])
def test_unit_integral_of_losses(weighting: reweigh.Weighting, expected: float) -> None:
    assert integral(weighting).item() == pytest.approx(expected, rel=2e-7)


def test_closed_forms_of_the_integral() -> None:
    for beta in (-300.0, -2.0, -1e-9, 0.0, 1e-9, 0.7, 24.0, 300.0):
        expected = math.expm1(beta) / beta if beta else 1
        assert integral(Exponential(beta)).item() == pytest.approx(expected, rel=1e-12)
        assert integral(DM(0, beta)).item() == pytest.approx(expected, rel=1e-12)
    for beta, psi in ((6.0, 0.3), (0.5, 0.9), (40.0, 0.0)):
        root = math.sqrt(beta)
        half = math.exp(beta * psi**2) * math.sqrt(math.pi / beta) / 2
        expected = half * (math.erf(root * (1 - psi)) + math.erf(root * psi))
        assert integral(Normal(psi, beta)).item() == pytest.approx(expected, rel=1e-12)
    for alpha, eta in ((0.3, 0.4), (1.7, 2.0), (5.0, 0.5)):
        expected = math.gamma(alpha) * math.gamma(eta) / math.gamma(alpha + eta)
        assert integral(Beta(alpha, eta)).item() == pytest.approx(expected, rel=1e-12)
        # by quadrature, whose slow tails reach beyond the margin limit of ±60
        assert integral(Beta(alpha, eta) * reweigh.Uniform()).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("parameters", "at_01", "at_50", "at_99"),
    [
        ((0.5, 8), 29.855171, 7.1642256, 0.040914886),
        ((1, 8), 8.9623959, 4.5016024, 0.040808887),
        ((2, 24), 31.772666, 26.842018, 0.12684388),
        ((0, 2), 11.721012, 0.94223328, 0.010100896),
    ],
)
def test_potential(parameters: tuple[float, float], at_01: float, at_50: float, at_99: float) -> None:
    margin = torch.tensor([0.01, 0.5, 0.99], dtype=torch.float64).logit()
    rest = potential(DM(*parameters), margin) + margin / 2
    assert rest.tolist() == pytest.approx([at_01, at_50, at_99], rel=1e-7)


def test_potential_at_margin_minus_60() -> None:
    for parameters, expected in (((0.5, 8), 30.84725), ((1, 8), 9.003205), ((2, 24), 31.773267)):
        margin = torch.tensor([-60.0], dtype=torch.float64)
        assert (potential(DM(*parameters), margin) + margin / 2).item() == pytest.approx(expected, rel=1e-6)


def test_modes() -> None:
    assert [DM(lam, 3).mode for lam in (0, 0.5, 1, 2)] == pytest.approx([0, 1 / 3, 1 / 2, 2 / 3])
    assert DM(0, -1).mode == 1
    assert DM(1, -1).mode == (0.0, 1.0)
    assert DM(1, 0).mode is None


def test_density_at_the_mode_after_unit_normalisation() -> None:
    assert unit_weighting(DM(0, 2))(0.0) == pytest.approx(2.3130, abs=5e-5)
    assert unit_weighting(DM(2, 8))(2 / 3) == pytest.approx(1.5530, abs=5e-5)


def test_emphasis_variance_over_uniform_p() -> None:
    assert emphasis_variance(CCE()).item() == pytest.approx(1 / 3, rel=1e-12)
    assert emphasis_variance(4 * Beta(2, 2)).item() == pytest.approx(16 / 180, rel=1e-11)
    assert emphasis_variance(DM(1, 8)).item() == pytest.approx(4.546, abs=5e-4)


def test_batch_shares() -> None:
    p = torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64)
    logits = torch.stack((p.logit(), torch.zeros(3, dtype=torch.float64)), 1)
    target = torch.zeros(3, dtype=torch.long)
    stats = reweigh.batch_stats(logits, target, DM(0.5, 12), taper=0.0)
    assert stats.w.tolist() == pytest.approx([3.12183, 69.59138, 30.42486], rel=1e-6)
    assert stats.share.tolist() == pytest.approx([0.030268, 0.674740, 0.294992], abs=5e-7)
    assert reweigh.batch_stats(logits, target, CCE()).share.tolist() == pytest.approx([1 / 15, 1 / 3, 3 / 5])


def test_forward_symmetric_modes_rise_with_the_rate() -> None:
    modes = [reweigh.ForwardSymmetric(rate, 10).mode for rate in (0.2, 0.4, 0.8)]
    assert modes == pytest.approx([0.143, 0.214, 0.400], abs=5e-4)
    assert [reweigh.ForwardSymmetric(rate, 100).mode for rate in (0.4, 0.6)] == pytest.approx([0.076, 0.110], abs=5e-4)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        (reweigh.Focal(2.0), 0.058),
        (reweigh.Focal(0.5), 0.018),
        (reweigh.AGCE(0.6, 0.6), 0.453),
        (reweigh.AGCE(6.0, 1.5), 0.510),
        (reweigh.AUL(5.5, 3.0), 0.451),
        (reweigh.AEL(2.5), 0.450),
        (reweigh.SL(0.1, 9.21), 0.495),
        (reweigh.PHuber(10.0), 0.1),
        (reweigh.PHuber(1.5), 0.5),
        (reweigh.TruncatedGCE(0.7, 0.5), 0.5),
        (reweigh.TruncatedGCE(0.7, 0.2), 0.411765),
    ],
    ids=repr,
)
def test_modes_of_published_losses(weighting: reweigh.Weighting, expected: float) -> None:
    assert weighting.mode == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("classes", "weighting", "expected"),
    [
        *((10, MAE(), 0.10), (10, MSE(), 0.18), (10, GCE(0.7), 0.20), (10, reweigh.SL(0.1, 9.21), 1.02)),
        *((10, reweigh.AGCE(0.6, 0.6), 0.12), (10, reweigh.AUL(5.5, 3.0), 2.9)),
        *((10, reweigh.ForwardSymmetric(0.4, 10), 0.56), (100, reweigh.ForwardSymmetric(0.4, 100), 0.60)),
        *((100, MAE(), 0.010), (100, MSE(), 0.020), (100, GCE(0.7), 0.040), (100, reweigh.SL(6, 0.921), 6.0)),
        (100, reweigh.AGCE(0.6, 0.6), 0.012),
    ],
    ids=str,
)
def test_initial_weight_relative_to_cce(classes: int, weighting: reweigh.Weighting, expected: float) -> None:
    """w at p = 1/C relative to CCE's, on which the start of training depends."""
    assert weighting(1 / classes) / CCE()(1 / classes) == pytest.approx(expected, rel=0.05)


def test_sl_equals_the_published_program() -> None:
    """The published program clips labels at 1e-4 and uses natural logarithms."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 10, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(10, (64,), generator=generator)
    label = torch.nn.functional.one_hot(target, 10).double().clamp(1e-4, 1)
    reverse = -(logits.softmax(1) * label.log()).sum(1)
    published = 0.1 * torch.nn.functional.cross_entropy(logits, target) + reverse.mean()
    (expected,) = torch.autograd.grad(published, logits)
    (gradient,) = torch.autograd.grad(reweigh.Criterion(reweigh.SL(0.1, -math.log(1e-4)))(logits, target), logits)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-14)


def test_integrals_of_published_losses() -> None:
    assert integral(reweigh.Focal(2.0)).item() == pytest.approx(0.861, abs=5e-4)
    assert integral(reweigh.Focal(3.0, detach=True)).item() == pytest.approx(2 / 5, rel=1e-12)
    assert integral(reweigh.SL(0.1, 9.21)).item() == pytest.approx(0.1 + 9.21 / 3, rel=1e-12)
    assert integral(reweigh.PHuber(10.0)).item() == pytest.approx(1 - 1 / 10 + 1 / 300, rel=1e-12)
