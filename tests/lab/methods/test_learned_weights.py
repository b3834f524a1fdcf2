"""Weights learned from trusted examples: Learning to Reweight and Meta-Weight-Net."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from reweigh.lab.batches import Batch
from reweigh.lab.methods import Context
from reweigh.lab.methods.learned_weights import MetaWeightNet, alignments, shares, trained_parameters, trusted_gradient
from reweigh.lab.nets import build

Make = Callable[..., Any]


def cce_gradient(logits: Tensor, target: Tensor) -> Tensor:
    return logits.softmax(1) - one_hot(target, logits.shape[1])


def test_alignments_are_inner_products_of_gradients() -> None:
    net = build("mlp-5", 3, 4, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    noisy = Batch(torch.randn(6, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2]), torch.arange(6))
    clean = Batch(torch.randn(5, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1]), torch.arange(5))
    parameters = trained_parameters(net)
    direction = trusted_gradient(net, parameters, clean)
    losses = cross_entropy(net(noisy.inputs), noisy.target, reduction="none")
    found = alignments(losses, list(parameters.values()), direction)
    for i in range(6):
        own = torch.autograd.grad(losses[i], list(parameters.values()), retain_graph=True)
        by_hand = sum((a * b).sum() for a, b in zip(own, direction, strict=True))
        torch.testing.assert_close(found[i], by_hand)


def test_linear_model_by_hand() -> None:
    net = build("linear", 3, 4, generator=torch.Generator().manual_seed(0))
    x, y = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2])
    clean = Batch(x[:2], y[:2], torch.arange(2))
    direction = trusted_gradient(net, trained_parameters(net), clean)
    losses = cross_entropy(net(x), y, reduction="none")
    found = alignments(losses, list(trained_parameters(net).values()), direction)
    g = cce_gradient(net(x), y).detach()
    # <g_i x_i^T, g_j x_j^T> + <g_i, g_j> = (g_i . g_j) (x_i . x_j + 1)
    pairs = (g @ g[:2].T) * (x @ x[:2].T + 1)
    torch.testing.assert_close(found, pairs.mean(1))


def test_learning_to_reweight_weights_examples_that_agree_with_trusted_ones() -> None:
    net = build("linear", 2, 2, generator=torch.Generator().manual_seed(0))
    x = torch.tensor([[3.0, 0.0], [0.0, 3.0], [3.0, 0.0], [0.0, 3.0]])
    given = torch.tensor([0, 1, 1, 0])  # the last two are flipped
    clean = Batch(x[:2], given[:2], torch.arange(2))
    losses = cross_entropy(net(x), given, reduction="none")
    w = shares(
        alignments(
            losses, list(trained_parameters(net).values()), trusted_gradient(net, trained_parameters(net), clean)
        )
    )
    assert (w[2:] == 0).all()
    assert (w[:2] > 0).all()
    assert w.sum().item() == pytest.approx(1)


def test_a_trusted_example_among_the_others_counts_most() -> None:
    net = build("linear", 3, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()  # so that all gradients are equally long, where the inputs are
    generator = torch.Generator().manual_seed(1)
    x = normalize(torch.randn(8, 4, generator=generator))
    y = torch.randint(3, (8,), generator=generator)
    for i in range(8):
        clean = Batch(x[i : i + 1], y[i : i + 1], torch.arange(1))
        losses = cross_entropy(net(x), y, reduction="none")
        w = shares(
            alignments(
                losses, list(trained_parameters(net).values()), trusted_gradient(net, trained_parameters(net), clean)
            )
        )
        assert w.argmax() == i


def test_running_statistics_ignore_the_trusted_batch() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    before = net[1].running_mean.clone()
    batch = Batch(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]), torch.arange(4))
    trusted_gradient(net, trained_parameters(net), batch)
    assert torch.equal(before, net[1].running_mean)


def test_meta_weight_net_updates_in_the_right_direction(make_context: Callable[..., Context]) -> None:
    method = MetaWeightNet(make_context(net="linear"))
    net = method.net
    x = torch.tensor([[3.0, 0, 0, 0, 0, 0], [3.0, 0, 0, 0, 0, 0]])
    given, truth = torch.tensor([0, 1]), torch.tensor([0, 0])
    with torch.no_grad():
        net.classifier.weight.zero_()
        net.classifier.bias.zero_()
        net.classifier.weight[0, 0] = 0.5  # so that the two losses, and with them their weights, can differ
    losses = cross_entropy(net(x), given, reduction="none")
    start = method.state_dict()
    clean = Batch(x, truth, torch.arange(2))

    def change(chosen: slice) -> Tensor:
        method.load_state_dict(deepcopy(start))
        before = method.V(losses).detach()
        for _ in range(20):
            method.train_weight_net(losses[chosen], clean, torch.tensor(0.1))
        return method.V(losses).detach() - before

    start = deepcopy(start)
    assert change(slice(0, 1))[0] > 0
    assert change(slice(1, 2))[1] < 0
    together = change(slice(0, 2))
    assert together[0] > together[1]


@pytest.mark.parametrize(("settings", "step", "alpha"), [({"inner_lr": 0.3}, 12, 0.3), ({}, 0, 0.05), ({}, 12, 0.005)])
def test_meta_gradient_is_that_of_the_unrolled_step(
    settings: dict[str, float], step: int, alpha: float, make_context: Callable[..., Context]
) -> None:
    method = MetaWeightNet(make_context(), meta_decay=0, **settings)
    batch, clean = method.context.batches.batch(step), method.clean.batch(step)
    method.optimiser.step = lambda: None  # look at the gradient alone
    method.loss(batch, step)
    found = [parameter.grad.clone() for parameter in method.V.parameters()]
    losses = cross_entropy(method.net(batch.inputs), batch.target, reduction="none")
    v = method.V(losses.detach())
    names, parameters = zip(*method.net.named_parameters(), strict=True)
    gradients = torch.autograd.grad((v * losses).mean(), parameters, create_graph=True)
    ahead = {name: p - alpha * g for name, p, g in zip(names, parameters, gradients, strict=True)}
    logits = torch.func.functional_call(method.net, ahead, (clean.inputs,))
    expected = torch.autograd.grad(cross_entropy(logits, clean.target), list(method.V.parameters()))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-8)


def test_a_constant_weight_net_is_a_multiple_of_cross_entropy(make_method: Make) -> None:
    method = make_method("MetaWeightNet(meta_lr=1e-30, meta_decay=0)")
    with torch.no_grad():
        for parameter in method.V.parameters():
            parameter.zero_()
    batch = method.context.batches.batch(0)
    parameters = list(method.net.parameters())
    found = torch.autograd.grad(method.loss(batch, 0), parameters)
    expected = torch.autograd.grad(0.5 * cross_entropy(method.net(batch.inputs), batch.target), parameters)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
