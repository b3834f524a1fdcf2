"""Co-teaching, Decoupling and SIGUA: who learns from which losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from reweigh.lab.methods import Context
from reweigh.lab.methods.selection import SIGUA, SIGUABC, CoTeaching, Decoupling, ForgetRate, exchange

MakeContext = Callable[..., Context]


def test_co_teaching_exchanges_small_losses() -> None:
    f = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    g = torch.tensor([4.0, 3.0, 2.0, 1.0], requires_grad=True)
    exchange(f, g, 2).backward()
    assert f.grad is not None
    assert f.grad.tolist() == [0, 0, 0.5, 0.5]
    assert g.grad is not None
    assert g.grad.tolist() == [0.5, 0.5, 0, 0]


def test_forget_rate_rises_and_keeps_at_least_one() -> None:
    forgetting = ForgetRate(0.45)
    assert [forgetting.at(epoch) for epoch in (1, 9, 100)] == pytest.approx([0.05, 0.45, 0.45])
    assert ForgetRate(0.9, warm_up=0).keeps(10, 0) == 1
    assert ForgetRate(0.4, warm_up=0).keeps(128, 0) == 76
    assert ForgetRate(0.2, warm_up=0, exponent=0.5).at(0) == 0.2
    assert ForgetRate(0.04, warm_up=2, exponent=0.5).at(1) == pytest.approx(0.2)


def test_co_teaching_nets_differ_and_are_both_trained(make_context: MakeContext) -> None:
    method = CoTeaching(make_context(), 0.4, warm_up=0)
    batch = method.context.batches.batch(0)
    assert not torch.equal(method.net(batch.inputs), method.other(batch.inputs))
    method.loss(batch, 0).backward()
    assert all(parameter.grad is not None for parameter in method.trainable.parameters())


def test_forgetting_starts_in_the_first_epoch(make_context: MakeContext) -> None:
    """The published programs count epochs from 1: with τ = 0.9 and T_k = 4, 0.3 of a batch of 32 in the first one."""
    method = CoTeaching(make_context(), 0.9, warm_up=4)
    batch = method.context.batches.batch(0)
    f, g = (cross_entropy(net(batch.inputs), batch.target, reduction="none") for net in (method.net, method.other))
    for epoch, kept in enumerate((22, 12, 3, 3)):
        torch.testing.assert_close(method.loss(batch, epoch * method.context.epoch), exchange(f, g, kept))
    losses = f.sort().values
    sigua = SIGUA(method.context, 0.9, gamma=0.1, rate=0.5, warm_up=4)
    torch.testing.assert_close(sigua.loss(batch, 0), losses[:22].mean() - 0.1 * losses[22:27].mean())


def test_decoupling_is_silent_on_agreement(make_context: MakeContext) -> None:
    method = Decoupling(make_context())
    method.other.load_state_dict(method.net.state_dict())
    batch = method.context.batches.batch(0)
    method.loss(batch, 0).backward()
    assert all((parameter.grad == 0).all() for parameter in method.trainable.parameters())
    method = Decoupling(make_context())
    f, g = method.net(batch.inputs), method.other(batch.inputs)
    u = (f.argmax(1) != g.argmax(1)).float()
    total = cross_entropy(f, batch.target, reduction="none") + cross_entropy(g, batch.target, reduction="none")
    torch.testing.assert_close(method.loss(batch, 0), (u * total).sum() / max(3.2, u.sum().item()))


def test_sigua(make_context: MakeContext) -> None:
    context = make_context()
    batch = context.batches.batch(0)
    losses = cross_entropy(context.net(batch.inputs), batch.target, reduction="none").sort().values
    method = SIGUA(context, 0.5, gamma=0.1, rate=0.5, warm_up=0)
    torch.testing.assert_close(method.loss(batch, 0), losses[:16].mean() - 0.1 * losses[16:24].mean())
    least = SIGUA(context, 0.5, gamma=0.1, rate=0.0, warm_up=0)
    torch.testing.assert_close(least.loss(batch, 0), losses[:16].mean() - 0.1 * losses[16])


def test_sigua_bc_turns_negative_losses(make_context: MakeContext) -> None:
    context = make_context()
    T = np.full((4, 4), 0.4 / 3) + np.eye(4) * (0.6 - 0.4 / 3)
    method = SIGUABC(context, T, gamma=0.5, warm_up=1)
    with torch.no_grad():
        context.net.classifier.weight.mul_(20)
    batch = context.batches.batch(0)
    raw = method.correction(context.net(batch.inputs), batch.target)
    assert (raw < 0).any()
    torch.testing.assert_close(method.loss(batch, 0), raw.mean())
    turned = torch.where(raw < 0, -0.5 * raw, raw).mean()
    torch.testing.assert_close(method.loss(batch, context.epoch), turned)


def test_sigua_bc_does_not_clip(make_context: MakeContext) -> None:
    context = make_context()
    T = np.full((4, 4), 0.4 / 3) + np.eye(4) * (0.6 - 0.4 / 3)
    method = SIGUABC(context, T, gamma=0.5)
    with torch.no_grad():
        context.net.classifier.weight.mul_(500)
    batch = context.batches.batch(0)
    log_p = context.net(batch.inputs).log_softmax(1)
    assert (log_p < np.log(1e-7)).any()
    raw = -(torch.tensor(np.linalg.inv(T))[batch.target].to(log_p) * log_p).sum(1)
    torch.testing.assert_close(method.loss(batch, 0), torch.where(raw < 0, -0.5 * raw, raw).mean())
