"""ELR, ProSelfLC and ANL: targets from the model's own predictions, and a penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from reweigh.lab.methods import Context
from reweigh.lab.methods.anl import ANL
from reweigh.lab.methods.elr import ELR
from reweigh.lab.methods.pro_self_lc import ProSelfLC, own_trust
from reweigh.losses import ANL_CE

MakeContext = Callable[..., Context]


class Given(nn.Module):
    """Logits as they are, whatever the inputs."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.logits


def test_elr_average_gradient_and_bound(make_context: MakeContext) -> None:
    context = make_context()
    method = ELR(context, lam=3.0, beta=0.7)
    batch = context.batches.batch(0)
    by_hand = torch.zeros(len(batch.target), 4)
    for step in range(3):
        with torch.no_grad():
            p = context.net(batch.inputs).softmax(1).clamp(1e-4, 1 - 1e-4)
            by_hand = 0.7 * by_hand + 0.3 * p / p.sum(1, keepdim=True)
            context.net.classifier.bias += 0.1 * torch.arange(4)
        logits = context.net(batch.inputs)
        with torch.no_grad():
            context.net.classifier.bias -= 0.1 * torch.arange(4)
        method.loss(batch, step)
        with torch.no_grad():
            context.net.classifier.bias += 0.1 * torch.arange(4)
    torch.testing.assert_close(method.t[batch.index], by_hand)
    untouched = torch.ones(len(method.t), dtype=torch.bool)
    untouched[batch.index] = False
    assert (method.t[untouched] == 0).all()

    net = Given(logits.detach().clone())
    method.net = net
    before = method.t[batch.index].clone()
    method.loss(batch, 3).backward()
    p = net.logits.detach().softmax(1)
    t = 0.7 * before + 0.3 * p
    along = (t * p).sum(1, keepdim=True)
    expected = p - one_hot(batch.target, 4) - 3 * p * (t - along) / (1 - along)
    torch.testing.assert_close(net.logits.grad * len(p), expected, atol=1e-5, rtol=1e-3)
    # a prediction that is certain for ever
    method.net = Given(100.0 * one_hot(batch.target, 4).float())
    for step in range(200):
        value = method.loss(batch, step)
    assert value.isfinite()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.257, 0.298, 0.7, 0.9])
def test_elr_is_bounded_where_two_classes_are_certain_for_ever(
    beta: float, half: bool, make_context: MakeContext
) -> None:
    context = replace(make_context(), num_classes=2)
    method, batch = ELR(context, lam=3.0, beta=beta, half=half), context.batches.batch(0)
    target = batch.target % 2
    method.net = net = Given(100.0 * one_hot(target, 2).float())
    for step in range(20):
        value = method.loss(batch._replace(target=target), step)
        assert value >= 3 * math.log(1e-4) - 0.01
    value.backward()
    assert net.logits.grad is not None
    assert net.logits.grad.isfinite().all()


def test_pro_self_lc_golden(make_context: MakeContext) -> None:
    log_p = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    trusted = own_trust(log_p, 0.75, 10.0)
    assert trusted.item() == pytest.approx(0.249660, abs=1e-6)
    target = (1 - trusted) * torch.tensor([0.0, 1.0, 0.0]) + trusted * log_p.exp()[0]
    assert target.tolist() == pytest.approx([0.174762, 0.800272, 0.024966], abs=1e-6)
    assert own_trust(torch.full((1, 3), 1 / 3).log(), 0.75, 10.0).item() == pytest.approx(0, abs=1e-6)
    masked = torch.tensor([[0.0, 0.0, -torch.inf]]).log_softmax(1)
    assert own_trust(masked, 0.5, 10.0).item() == pytest.approx((1 - math.log(2) / math.log(3)) / 2)
    context = make_context()
    batch = context.batches.batch(0)
    with torch.no_grad():
        for parameter in context.net.parameters():
            parameter.zero_()
    torch.testing.assert_close(ProSelfLC(context).loss(batch, 10), torch.tensor(math.log(4)))


def test_pro_self_lc_with_a_sudden_turn(make_context: MakeContext) -> None:
    context = make_context()
    method, batch = ProSelfLC(context, B=1e9), context.batches.batch(0)
    torch.testing.assert_close(method.loss(batch, 0), cross_entropy(context.net(batch.inputs), batch.target))
    p = torch.tensor([[0.7, 0.2, 0.1]])
    assert [own_trust(p.log(), time, 1e9).item() for time in (0.499, 0.501)] == pytest.approx([0, 0.270153], abs=1e-6)


def test_pro_self_lc_detach_is_another_method(make_context: MakeContext) -> None:
    gradients = []
    for detach in (False, True):
        context = make_context()
        ProSelfLC(context, detach=detach).loss(context.batches.batch(0), context.total - 1).backward()
        gradients.append(context.net.classifier.weight.grad)
    assert not torch.allclose(gradients[0], gradients[1])


def test_anl_is_its_loss_and_the_size_of_the_weights(make_context: MakeContext) -> None:
    context = make_context()
    batch = context.batches.batch(0)
    size = sum(parameter.abs().sum() for parameter in context.net.parameters())
    expected = ANL_CE(5, 2)(context.net(batch.inputs), batch.target) + 1e-3 * size
    torch.testing.assert_close(ANL(context, 5, 2, 1e-3).loss(batch, 0), expected)
