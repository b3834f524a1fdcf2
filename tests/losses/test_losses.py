"""Each loss: limits, identities and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from reweigh import AGCE, GCE, MAE, MSE, Criterion, ForwardSymmetric, emphasis_of
from reweigh.losses import (
    ANL_CE,
    NCE_AGCE,
    NCE_RCE,
    Backward,
    BalancedSoftmax,
    BootstrapHard,
    BootstrapSoft,
    Brier,
    Forward,
    FullMAE,
    LabelSmoothing,
    LogitAdjustment,
    LogitClip,
    Loss,
)
from reweigh.losses.normalised import normalised
from reweigh.noise.class_noise import symmetric_matrix

C = 10
COUNTS = torch.arange(1, C + 1)
CE = torch.nn.CrossEntropyLoss()


def draw(n: int = 64, classes: int = C, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(classes, (n,), generator=generator)


def gradient(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Tensor:
    """Per row, so that formulas need no division by N."""
    value = loss(logits, target)
    (result,) = torch.autograd.grad(value, logits)
    return result * len(logits)


def same(a: Callable[[Tensor, Tensor], Tensor], b: Callable[[Tensor, Tensor], Tensor], tolerance: float = 1e-9) -> None:
    for classes in (2, 10, 100):
        logits, target = draw(classes=classes)
        torch.testing.assert_close(gradient(a, logits, target), gradient(b, logits, target), atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    "build",
    [
        lambda classes: LabelSmoothing(0.0),
        lambda classes: BootstrapSoft(1.0),
        lambda classes: BootstrapHard(1.0),
        lambda classes: Forward(torch.eye(classes)),
        lambda classes: Backward(torch.eye(classes), clip=0),
        lambda classes: LogitAdjustment(torch.arange(1, classes + 1), tau=0.0),
        lambda classes: BalancedSoftmax([7] * classes),
        lambda classes: LogitClip(1e30),
    ],
    ids=["LS", "soft", "hard", "Forward", "Backward", "LA", "BalancedSoftmax", "LogitClip"],
)
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_limits_are_cross_entropy(build: Callable[[int], Loss], classes: int) -> None:
    logits, target = draw(classes=classes)
    loss = build(classes)
    torch.testing.assert_close(loss(logits, target), CE(logits, target))
    torch.testing.assert_close(gradient(loss, logits, target), gradient(CE, logits, target), atol=1e-9, rtol=0)


def test_label_smoothing_is_torchs_and_its_gradient_p_minus_q() -> None:
    for classes in (2, 10, 100):
        logits, target = draw(classes=classes)
        torch.testing.assert_close(
            LabelSmoothing(0.1)(logits, target), cross_entropy(logits, target, label_smoothing=0.1)
        )
        q = 0.9 * one_hot(target, classes).double() + 0.1 / classes
        torch.testing.assert_close(q.sum(1), torch.ones(len(q), dtype=q.dtype))
        torch.testing.assert_close(gradient(LabelSmoothing(0.1), logits, target), logits.softmax(1) - q)
        at_minimum = q.log().requires_grad_()
        torch.testing.assert_close(gradient(LabelSmoothing(0.1), at_minimum, target), 0 * logits, atol=1e-12, rtol=0)


def test_sl_compat_reproduces_the_published_target() -> None:
    for classes, total in ((10, 0.99), (100, 1.89)):
        logits, target = draw(classes=classes)
        own = one_hot(target, classes).double()
        q = 0.9 * own + 0.01 * (1 - own)
        assert math.isclose(q[0].sum().item(), total)
        found = gradient(LabelSmoothing(0.1, sl_compat=True), logits, target)
        torch.testing.assert_close(found, total * logits.softmax(1) - q)


def test_bootstrapping_gradients() -> None:
    logits, target = draw()
    p, e = logits.softmax(1).detach(), one_hot(target, C)
    entropy = -(p * p.log()).sum(1, keepdim=True)
    soft = 0.95 * (p - e) - 0.05 * p * (p.log() + entropy)
    torch.testing.assert_close(gradient(BootstrapSoft(0.95), logits, target), soft)
    guess = one_hot(p.argmax(1), C)
    hard = gradient(BootstrapHard(0.8), logits, target)
    torch.testing.assert_close(hard, p - 0.8 * e - 0.2 * guess)
    right = p.argmax(1) == target
    torch.testing.assert_close(hard[right], (p - e)[right])


def test_a_detached_soft_target_would_be_beta_times_cross_entropy() -> None:
    logits, target = draw()

    def detached(z: Tensor, y: Tensor) -> Tensor:
        q = 0.95 * one_hot(y, C) + 0.05 * z.softmax(1).detach()
        return -(q * z.log_softmax(1)).sum(1).mean()

    torch.testing.assert_close(gradient(detached, logits, target), 0.95 * gradient(CE, logits, target))
    assert (gradient(BootstrapSoft(0.95), logits, target) - gradient(detached, logits, target)).abs().max() > 1e-3


def test_soft_bootstrapping_without_labels_lowers_the_entropy() -> None:
    logits, target = draw()
    stepped = logits - 0.1 * gradient(BootstrapSoft(0.0), logits, target)
    assert BootstrapSoft(0.0)(stepped, target) < BootstrapSoft(0.0)(logits, target)


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.8])
def test_forward_with_symmetric_noise_is_a_weighting(rate: float) -> None:
    same(
        lambda z, y: Forward(symmetric_matrix(z.shape[1], rate * (z.shape[1] - 1) / z.shape[1]))(z, y),
        lambda z, y: Criterion(ForwardSymmetric(rate * (z.shape[1] - 1) / z.shape[1], z.shape[1]))(z, y),
    )


def test_forward_gradient_is_the_posterior_and_catches_transposition() -> None:
    logits, target = draw(classes=3)
    T = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)
    p = logits.softmax(1).detach()
    posterior = p * T[:, target].T
    posterior /= posterior.sum(1, keepdim=True)
    torch.testing.assert_close(gradient(Forward(T), logits, target), p - posterior)
    noisy = torch.tensor([[0.6, 0.3, 0.1]]).log()
    values = [Forward(T)(noisy, torch.tensor([y])).exp().reciprocal().item() for y in range(3)]
    assert values == pytest.approx([0.55, 0.30, 0.15], abs=1e-6)


def test_backward_is_unbiased_and_label_smoothing_below_zero() -> None:
    T = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)
    logits, target = draw(classes=3)
    loss = Backward(T, clip=0, reduction="none")
    given = torch.stack([loss(logits, torch.full_like(target, y)) for y in range(3)], 1)
    expected = (T[target] * given).sum(1)
    torch.testing.assert_close(expected, cross_entropy(logits, target, reduction="none"))
    wrong = (T.T[target] * given).sum(1)
    assert (wrong - expected).abs().max() > 0.1
    share = 0.4 / (C - 1)
    epsilon = -share * C / (1 - 0.4 - share)
    logits, target = draw()
    mine, smoothed = Backward(symmetric_matrix(C, 0.4), clip=0), LabelSmoothing(epsilon)
    torch.testing.assert_close(gradient(mine, logits, target), gradient(smoothed, logits, target))
    assert mine(10 * one_hot(target, C).double(), target) < 0


def test_backward_clips() -> None:
    loss = Backward(symmetric_matrix(C, 0.4))
    target = torch.arange(C)
    assert loss(1e4 * torch.eye(C), target) == pytest.approx(loss(1e5 * torch.eye(C), target).item())


def test_logit_adjustment_gradient_and_scale() -> None:
    logits, target = draw()
    shifted = (logits + 1.5 * (COUNTS / COUNTS.sum()).double().log()).softmax(1) - one_hot(target, C)
    torch.testing.assert_close(gradient(LogitAdjustment(COUNTS, 1.5), logits, target), shifted, atol=1e-6, rtol=0)
    same_counts = LogitAdjustment(COUNTS / COUNTS.sum())
    torch.testing.assert_close(
        gradient(same_counts, logits, target), gradient(BalancedSoftmax(COUNTS), logits, target), atol=1e-6, rtol=0
    )
    empty = LogitAdjustment([0, 5, 5])(torch.zeros(1, 3), torch.tensor([1]))
    assert empty.item() == pytest.approx(math.log(2))


def test_posthoc_adjustment_moves_the_threshold_by_the_log_odds() -> None:
    # two unit Gaussians at -1 and 1 with prior 9 : 1; the balanced threshold is 0, Bayes' is half the log-odds
    x = torch.linspace(-3, 3, 601, dtype=torch.float64)
    prior = torch.tensor([0.9, 0.1], dtype=torch.float64)
    bayes = torch.stack((-x, x), 1) + prior.log()
    threshold = x[(bayes[:, 1] > bayes[:, 0])][0]
    assert threshold.item() == pytest.approx(math.log(9) / 2, abs=0.02)
    adjusted = bayes - prior.log()
    assert x[adjusted[:, 1] > adjusted[:, 0]][0].item() == pytest.approx(0, abs=0.02)
    # and so the loss, which adds the prior in training, wants the balanced logits
    balanced = LogitAdjustment(prior)(torch.stack((-x, x), 1), torch.zeros(601, dtype=torch.long))
    torch.testing.assert_close(balanced, CE(bayes, torch.zeros(601, dtype=torch.long)))


def test_nce_sums_to_one_and_has_its_gradient() -> None:
    logits, target = draw()
    log_p = logits.log_softmax(1)
    total = sum(normalised(log_p, torch.full_like(target, y)) for y in range(C))
    assert isinstance(total, Tensor)
    torch.testing.assert_close(total, torch.ones_like(total))
    p, e = log_p.exp().detach(), one_hot(target, C)
    S = -log_p.detach().sum(1, keepdim=True)
    n = -log_p.detach().gather(1, target[:, None])
    expected = (p - e) / S - n / S**2 * (C * p - 1)
    torch.testing.assert_close(gradient(NCE_RCE(1, 0), logits, target), expected)
    torch.testing.assert_close(normalised(3 * log_p, target), normalised(log_p, target))


def test_passive_parts() -> None:
    b = -math.log(1e-4)
    same(NCE_RCE(0, 0.5), Criterion((0.5 * b) * MAE()))
    same(NCE_AGCE(0, 1, a=6, q=1.5), Criterion(AGCE(6, 1.5)))
    same(NCE_AGCE(0, 1, a=0, q=0.7), Criterion(GCE(0.7)))
    same(NCE_AGCE(0, 2, a=3, q=1), FullMAE())


def test_anl_ce_by_hand() -> None:
    logits, target = draw(n=5, classes=3)
    log_p = logits.log_softmax(1)
    a = -math.log(1e-7)
    values = []
    for row, y in zip(log_p, target.tolist(), strict=True):
        values.append(5 * row[y] / row.sum() + 2 * (1 - (a + row[y]) / (3 * a + row.sum())))
    torch.testing.assert_close(ANL_CE(5, 2)(logits, target), torch.stack(values).mean())


def test_logit_clip() -> None:
    logits, target = draw()
    tau = 1.5
    norm = logits.norm(dim=1, keepdim=True).detach()
    assert (norm > tau).all()
    unit = (logits / norm).detach()
    g = (tau * unit).softmax(1) - one_hot(target, C)
    expected = tau / norm * (g - unit * (unit * g).sum(1, keepdim=True))
    found = gradient(LogitClip(tau), logits, target)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close((found * unit).sum(1), torch.zeros(len(unit), dtype=unit.dtype), atol=1e-12, rtol=0)
    bound = math.log(1 + (C - 1) * math.exp(math.sqrt(2) * tau))
    assert LogitClip(tau, reduction="none")(100 * logits, target).max() <= bound
    inside, outside = ((1 + d) * tau * unit for d in (-1e-9, 1e-9))
    torch.testing.assert_close(LogitClip(tau)(inside, target), LogitClip(tau)(outside, target))
    assert LogitClip(tau)(torch.zeros(1, C, requires_grad=True), torch.tensor([0])).isfinite()


def test_full_forms() -> None:
    same(FullMAE(), Criterion(2 * MAE()))
    logits, target = draw()
    p = logits.softmax(1).detach()
    p_y = p.gather(1, target[:, None])
    expected = 2 * p * (p - one_hot(target, C) - (p.square().sum(1, keepdim=True) - p_y))
    torch.testing.assert_close(gradient(Brier(), logits, target), expected)
    generator = torch.Generator().manual_seed(0)
    assert emphasis_of(Brier(), C, generator=generator).cosine.max() < 1
    torch.testing.assert_close(emphasis_of(Brier(), 2).cosine, torch.ones(101, dtype=torch.float64))
    logits, target = draw(classes=2)
    torch.testing.assert_close(gradient(Brier(), logits, target), 2 * gradient(Criterion(MSE()), logits, target))
