"""Noise channels: S-adaptation and Masking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from reweigh.lab.methods import Context
from reweigh.lab.methods.masking import Generator, Masking, draw_noise, pretrain
from reweigh.lab.methods.s_adaptation import Channel, SAdaptation, channel_losses, log_channel, rows_of
from reweigh.noise import transition
from reweigh.streams import generator as stream

MakeContext = Callable[..., Context]
THETA = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)


def test_channel_gradient_and_identity() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    (gradient,) = torch.autograd.grad(channel_losses(logits, THETA.log(), target).sum(), logits)
    p = logits.softmax(1)
    through = (p @ THETA).gather(1, target[:, None])
    torch.testing.assert_close(gradient, p - p * THETA.T[target] / through)
    identity = Channel(log_channel(torch.eye(3), 1))(torch.empty(0)).double()
    torch.testing.assert_close(
        channel_losses(logits, identity, target), cross_entropy(logits, target, reduction="none"), atol=1e-6, rtol=0
    )
    per_example = THETA.log().expand(6, 3, 3)
    torch.testing.assert_close(channel_losses(logits, per_example, target), channel_losses(logits, THETA.log(), target))


def test_channel_starts_from_the_confusion(make_context: MakeContext) -> None:
    counts = torch.tensor([[6, 2, 0], [0, 0, 0], [1, 1, 2]])
    torch.testing.assert_close(rows_of(counts), torch.tensor([[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]))
    context = make_context()
    method = SAdaptation(context, warm_up=2)
    uninformed = method.channel(torch.empty(0)).exp()
    torch.testing.assert_close(uninformed.diagonal(), torch.full((4,), 0.9))
    torch.testing.assert_close(uninformed[0, 1], torch.tensor(0.1 / 3), rtol=1e-4, atol=0)
    method.epoch_end(0)
    torch.testing.assert_close(method.channel(torch.empty(0)).exp(), uninformed)
    method.epoch_end(1)
    guess = torch.cat([context.net(b.inputs).argmax(1) for b in context.batches.evaluation()])
    i = int(guess[0])
    given = torch.tensor(context.labels)[guess == i].bincount(minlength=4)
    torch.testing.assert_close(method.channel(torch.empty(0)).exp()[i], given / given.sum(), atol=1e-6, rtol=1e-4)


def test_sparse_channel_and_complex_size(make_context: MakeContext) -> None:
    rows = log_channel(THETA, 2).log_softmax(1).exp()
    assert (rows[1] > 0).sum() == 2
    tied = torch.tensor([[0.6, 0.0, 0.4, 0.0], [0.0, 1.0, 0.0, 0.0], [0.1, 0.1, 0.7, 0.1], [0.25, 0.25, 0.25, 0.25]])
    for top in (1, 2, 3, 4):
        assert (log_channel(tied, top) > -100).sum(1).tolist() == [top] * 4
    kept = torch.tensor([[0.6, 0.0, 0.4, 0.0], [0.0, 1.0, 0.0, 0.0], [0.1, 0.0, 0.7, 0.0], [0.25, 0.25, 0.0, 0.0]])
    torch.testing.assert_close(log_channel(tied, 2).exp(), kept, atol=1e-7, rtol=0)
    method = SAdaptation(make_context(), "complex", warm_up=0)
    extra = sum(parameter.numel() for parameter in method.channel.parameters())
    assert extra == 4 * 4 * (16 + 1)
    features = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    assert method.channel(features).shape == (5, 4, 4)


def test_an_exact_channel_stays(make_context: MakeContext, train: Callable[..., None]) -> None:
    context = make_context(rate=0.3, total=300)
    method = SAdaptation(context, warm_up=0, noise=0.3)
    T = method.channel(torch.empty(0)).exp().detach()
    train(method, torch.optim.SGD(method.trainable.parameters(), lr=0.02), context, 0, 300)
    assert (method.channel(torch.empty(0)).exp() - T).abs().max() < 0.05


def test_masking_classifier_gradient_is_that_of_the_channel(make_context: MakeContext) -> None:
    context = make_context()
    method = Masking(context, [[1] * 4] * 4, warm_up=0, pretrain=0, lr=1e-30)
    batch = context.batches.batch(0)
    found = torch.autograd.grad(method.loss(batch, 0), list(context.net.parameters()))
    assert all(parameter.grad is None for parameter in context.net.parameters())
    draws = stream(context.seed, "masking", 1)
    draw_noise(32, draws, context.device)
    log_s = method.generator(draw_noise(32, draws, context.device)).detach()
    through = channel_losses(context.net(batch.inputs), log_s, batch.target).mean()
    for a, b in zip(found, torch.autograd.grad(through, list(context.net.parameters())), strict=True):
        torch.testing.assert_close(a, b)


def test_masking_uses_the_rmsprop_of_tensorflow(make_context: MakeContext) -> None:
    """Its mean square starts at 1, decays by 0.9, and ε = 1e-10 is inside the root."""
    method = Masking(make_context(), [[1] * 4] * 4, warm_up=0, pretrain=0, lr=0.01)
    for optimiser in (method.rms_g, method.rms_d):
        parameter = optimiser.param_groups[0]["params"][0]
        expected, mean_square = parameter.detach().clone(), torch.ones_like(parameter)
        for scale in (0.1, 3.0, 0.0):
            gradient = scale * torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape)
            parameter.grad = gradient.clone()
            optimiser.step()
            mean_square = 0.9 * mean_square + 0.1 * gradient**2
            expected = expected - 0.01 * gradient / (mean_square + 1e-10).sqrt()
            torch.testing.assert_close(parameter.detach(), expected)


def test_generator_learns_the_estimate() -> None:
    draws = torch.Generator().manual_seed(0)
    generator = Generator(3, draws)
    pretrain(generator, THETA.float(), draws, 800, size=64)
    with torch.no_grad():
        mean = generator(draw_noise(4000, draws, torch.device("cpu"))).exp().mean(0)
    assert (mean - THETA).abs().max() < 0.02


def test_masking_average_predicts(make_context: MakeContext, train: Callable[..., None]) -> None:
    context = make_context()
    method: Any = Masking(context, [[1] * 4] * 4, warm_up=1, pretrain=5, average=0.5)
    optimiser = torch.optim.SGD(method.trainable.parameters(), lr=0.1)
    train(method, optimiser, context, 0, 5)
    assert method.predictor is context.net
    train(method, optimiser, context, 5, 6)
    assert method.predictor is not context.net
    start = [parameter.clone() for parameter in method.predictor.parameters()]
    now = [parameter.clone() for parameter in context.net.parameters()]
    train(method, optimiser, context, 6, 7)
    for mean, a, b in zip(method.predictor.parameters(), start, now, strict=True):
        torch.testing.assert_close(mean, (a + b) / 2)


@pytest.mark.slow
def test_masking_forbids_what_the_mask_forbids(make_context: MakeContext, train: Callable[..., None]) -> None:
    T = np.array([[0.7, 0.3, 0, 0], [0.2, 0.6, 0.2, 0], [0, 0.2, 0.6, 0.2], [0, 0, 0.3, 0.7]])
    context = make_context(rate=0.0, total=1000)
    noisy = transition(context.labels, T, seed=1).labels
    context = replace(context, batches=context.batches.with_labels(noisy), labels=noisy)
    method = Masking(context, (T > 0).astype(int).tolist(), warm_up=20, pretrain=1000, lr=1e-3)
    train(method, torch.optim.SGD(method.trainable.parameters(), lr=0.05, momentum=0.9), context, 0, 1000)
    with torch.no_grad():
        mean = method.generator(draw_noise(2000, torch.Generator().manual_seed(0), context.device)).exp().mean(0)
    assert mean[torch.tensor(T) == 0].max() < 0.02
