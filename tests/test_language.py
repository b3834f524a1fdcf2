"""Token objectives from log-probabilities, and advice by the mean probability of the labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from instances import INSTANCES
from reweigh import CCE, DM, GCE, MAE, Criterion, TruncatedGCE, from_loss
from reweigh.language import advise, divergence, entropy_weight, weigh_log_probs


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda each: repr(each.weighting))
def test_the_derivative_is_that_of_the_criterion(instance: Any) -> None:
    logits = (3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).requires_grad_()
    target = torch.arange(50) % 7
    expected = Criterion(instance.weighting, normalise=None, reduction="sum")(logits, target)
    log_p = logits.log_softmax(1).gather(1, target[:, None])[:, 0]
    found = -weigh_log_probs(log_p, instance.weighting).sum()
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("weighting", [CCE(), MAE(), GCE(0.7), DM(0.5, 8)], ids=repr)
def test_both_ends_are_finite(weighting: Any) -> None:
    log_p = torch.tensor([0.0, -1e-7, -200.0, -math.inf], requires_grad=True)
    (slope,) = torch.autograd.grad(weigh_log_probs(log_p, weighting)[:3].sum(), log_p)
    assert slope.isfinite().all()
    assert slope[0] == 0


@pytest.mark.parametrize(
    ("objective", "weighting", "w"),
    [
        (lambda p: -p.log(), CCE(), lambda p: 2 * (1 - p)),
        (lambda p: -p, MAE(), lambda p: 2 * p * (1 - p)),
        (lambda p: (1 - p**10) / 10, GCE(10), lambda p: 2 * p**10 * (1 - p)),
        (lambda p: -p.clamp_min(0.3).log(), TruncatedGCE(0, 0.3), lambda p: 2 * (1 - p) * (p > 0.3)),
        (lambda p: (1 - p).log(), from_loss(lambda p: torch.log1p(-p)), lambda p: 2 * p),
    ],
    ids=["NLL", "-p", "-p^10", "thresholded NLL", "log(1 - p)"],
)
def test_published_objectives_are_weightings(
    objective: Callable[[Tensor], Tensor], weighting: Any, w: Callable[[Tensor], Tensor]
) -> None:
    logits = torch.randn(40, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    target = torch.arange(40) % 5
    p = logits.softmax(1).gather(1, target[:, None])[:, 0]
    (expected,) = torch.autograd.grad(objective(p).sum(), logits, retain_graph=True)
    (found,) = torch.autograd.grad(Criterion(weighting, reduction="sum")(logits, target), logits)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.abs().sum(1), w(p.detach()), rtol=1e-6, atol=1e-9)


def test_entropy_weights_are_a_sample_weight() -> None:
    logits = torch.randn(6, 30, generator=torch.Generator().manual_seed(2), requires_grad=True)
    weight = entropy_weight(logits)
    top = logits.detach().topk(20).values.softmax(1)
    torch.testing.assert_close(weight, -(top * top.log()).sum(1) / math.log(20))
    target = torch.arange(6)
    value = Criterion(CCE(), reduction="sum")(logits, target, sample_weight=weight)
    torch.testing.assert_close(value, (weight * nn.functional.cross_entropy(logits, target, reduction="none")).sum())
    with pytest.raises(ValueError, match="k must be from 2 to the 5 classes, got 20"):
        entropy_weight(torch.zeros(1, 5))


def test_divergence_is_that_of_torch() -> None:
    rng = torch.Generator().manual_seed(3)
    logits, reference = torch.randn(4, 9, generator=rng, requires_grad=True), torch.randn(4, 9, generator=rng)
    expected = nn.functional.kl_div(logits.log_softmax(1), reference.softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(divergence(logits, reference.log_softmax(1)), expected)
    masked = torch.tensor([[0.0, -math.inf]])
    torch.testing.assert_close(divergence(torch.zeros(1, 2), masked), torch.tensor([math.log(2)]))


class Fixed(nn.Module):
    """Predicts the token that it reads, with probability p."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, input_ids: Tensor) -> Any:
        assert not self.training
        rest = (1 - self.p) / 4
        return SimpleNamespace(logits=(rest + (self.p - rest) * nn.functional.one_hot(input_ids, 5)).log())


@pytest.mark.parametrize(("p", "weighting"), [(0.8, MAE()), (0.5, GCE(0.5)), (0.02, CCE())])
def test_advice_follows_the_mean_probability(p: float, weighting: Any) -> None:
    ids = torch.full((2, 6), 3)
    labels = ids.clone()
    labels[:, :3] = -100
    advice = advise(Fixed(p).train(), labels, input_ids=ids)
    assert advice.weighting == weighting
    assert advice.mean_p == pytest.approx(p)
    assert "arXiv:2510.00526" in str(advice)
    assert "\n" not in str(advice)
    log_probs = Fixed(p).eval()(ids).logits
    for given in (log_probs, torch.where(labels == 3, math.log(p), -9.0)):
        again = advise(given, labels)
        assert (again.weighting, again.mean_p) == (weighting, pytest.approx(p))


def test_advice_needs_labels() -> None:
    with pytest.raises(ValueError, match="a token that is not -100"):
        advise(torch.zeros(1, 3), torch.full((1, 3), -100))
    with pytest.raises(ValueError, match="input_ids must be given"):
        advise(Fixed(0.5), torch.tensor([[-100, 1]]))
    with pytest.raises(ValueError, match="don't go with labels"):
        advise(torch.zeros(1, 4), torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(TypeError, match="labels must be token ids"):
        advise(torch.zeros(1, 3), torch.zeros(1, 3))
