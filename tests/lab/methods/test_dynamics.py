"""Methods that follow the training: mixture models of losses, intrinsic dimension."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from reweigh.lab.methods import Context
from reweigh.lab.methods.d2l import D2L, intrinsic_dimension, trust, turns
from reweigh.lab.methods.dynamic_bootstrap import MDDYRSH, MDYRH, bootstrapped, mixup_loss, spread
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
from reweigh.labels.beta_mixture import fit, look_up, scaled
from reweigh.losses import BootstrapHard

MakeContext = Callable[..., Context]


def test_beta_mixture_golden() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.concatenate((rng.beta(2, 12, 6000), rng.beta(10, 4, 4000))))
    mixture = fit(x)
    assert mixture.a.tolist() == pytest.approx([0.667, 5.083], abs=5e-4)
    assert mixture.b.tolist() == pytest.approx([2.553, 2.154], abs=5e-4)
    assert mixture.weight.tolist() == pytest.approx([0.667, 0.333], abs=5e-4)
    right = (mixture.noisy(x) > 0.5) == (torch.arange(10_000) >= 6000)
    assert right.double().mean().item() == pytest.approx(0.979, abs=2e-3)
    table = mixture.table()
    lowest, highest = int(table.argmin()), int(table.argmax())
    assert (table[lowest:].diff() >= 0).all()
    assert (table[highest:] == table.max()).all()
    found = look_up(table, torch.tensor([-3.0, 0.505, 7.0]))
    torch.testing.assert_close(found, table[[0, 50, 99]].clamp(1e-4, 1 - 1e-4))


def test_losses_are_scaled_as_published() -> None:
    losses = np.random.default_rng(0).exponential(size=20_000) ** 3  # many lie close to the least
    low, high = np.percentile(losses, (5, 95))
    expected = (losses[(losses >= low) & (losses <= high)] - (low + 1e-5)) / (high - (low + 1e-5) + 1e-6)
    assert ((expected > 0) & (expected < 1e-3)).any()
    assert ((expected < 1) & (expected > 1 - 1e-3)).any()
    assert (expected <= 0).any()
    expected[expected >= 1] = 1 - 1e-3
    expected[expected <= 0] = 1e-3
    x, *ends = scaled(losses)
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12)
    assert ends == [low + 1e-5, high]


def test_beta_mixture_of_degenerate_losses() -> None:
    for x in (torch.full((50,), 0.3), torch.linspace(0, 1, 50), torch.tensor([0.0, 1.0] * 20)):
        mixture = fit(x)
        assert all(part.isfinite().all() for part in mixture)
        means = mixture.a / (mixture.a + mixture.b)
        assert means[0] <= means[1] + 1e-9


def test_bootstrapped_mixup_limits() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 4, generator=generator)
    target, guess = torch.randint(4, (2, 8), generator=generator)
    order = torch.randperm(8, generator=generator)
    never, always = torch.zeros(8), torch.ones(8)
    plain = mixup_loss(logits, target, order, 0.3)
    torch.testing.assert_close(bootstrapped(logits, target, guess, never, order, 0.3), plain)
    own = mixup_loss(logits, guess, order, 0.3)
    torch.testing.assert_close(bootstrapped(logits, target, guess, always, order, 0.3), own)
    soft = one_hot(guess, 4).float()
    torch.testing.assert_close(bootstrapped(logits, target, soft, always, order, 0.3), own)
    torch.testing.assert_close(mixup_loss(logits, target, order, 1.0), cross_entropy(logits, target))
    assert spread(torch.zeros(5, 4)).item() == pytest.approx(0, abs=1e-6)
    p = logits.softmax(1).mean(0)
    torch.testing.assert_close(spread(logits), (0.25 * (0.25 / p).log()).sum())


@pytest.mark.parametrize("hard", [True, False])
def test_dynamic_bootstrap_by_hand(hard: bool, make_context: MakeContext) -> None:
    context = make_context()
    method = MDYRH(context, warm_up=1) if hard else MDDYRSH(context, warm_up=1, soft_from=1, cooling=3)
    method.epoch_end(0)
    step = 2 * context.epoch  # the second epoch of bootstrapping: the temperature has fallen to 0.5005
    batch = context.batches.batch(step)
    x, y = batch.inputs, one_hot(batch.target, 4).double()
    share, order = method.draw(len(x), step)
    with torch.no_grad():
        before = context.net(x).double()
        z = (before.argmax(1)[:, None] == torch.arange(4)).double() if hard else (before / 0.5005).softmax(1)
        w = method.wrong(batch).double()[:, None]
        part = share if hard else (1 - w) / ((1 - w) + (1 - w[order]))
        log_p = context.net((part * x + (1 - part) * x[order]).float()).double().log_softmax(1)
        q = (1 - w) * y + w * z
        labels = share * q + (1 - share) * q[order] if hard else (q + q[order]) / 2
        regular = (0.25 * (0.25 / log_p.exp().mean(0)).log()).sum()
        expected = -(labels * log_p).sum(1).mean() + regular
    assert method.loss(batch, step).item() == pytest.approx(expected.item(), rel=1e-5)


def test_dynamic_bootstrap_schedule(make_context: MakeContext) -> None:
    context = make_context()
    method = MDYRH(context, warm_up=2)
    method.epoch_end(0)
    assert method.table is None
    method.epoch_end(1)
    assert method.table is not None
    assert method.high > method.low
    batch = context.batches.batch(0)
    w = method.wrong(batch)
    losses = cross_entropy(context.net(batch.inputs), batch.target, reduction="none")
    assert w[losses.argmax()] >= w[losses.argmin()]
    cooling = MDDYRSH(context, warm_up=1, soft_from=3, cooling=89)
    assert cooling.temperature(3) == 1
    assert cooling.temperature(3 + 88) == pytest.approx(0.001)
    assert cooling.temperature(500) == pytest.approx(0.001)
    share, order = method.draw(32, 7)
    assert 0.2 < share < 0.8
    assert order.sort().values.tolist() == list(range(32))


@pytest.mark.parametrize("dimension", [2, 5])
def test_intrinsic_dimension_of_a_cube(dimension: int) -> None:
    generator = torch.Generator().manual_seed(dimension)
    cube = torch.rand(2000, dimension, generator=generator)
    embedded = cube @ torch.linalg.qr(torch.randn(64, dimension, generator=generator)).Q.T
    assert intrinsic_dimension(embedded, 20).mean().item() == pytest.approx(dimension, rel=0.15)
    assert intrinsic_dimension(torch.zeros(30, 3), 20).isfinite().all()


def test_turning_point() -> None:
    falling = [20 * 0.9**epoch for epoch in range(20)]
    assert not any(turns(falling[: epoch + 1], start=0) for epoch in range(20))
    turned = [5.0, 4.9, 5.1, 5.0, 4.9, 5.0, 5.1, 5.0, 4.9, 6.0]
    assert [turns(turned[: epoch + 1], start=3) for epoch in range(10)] == [False] * 9 + [True]
    assert not turns(turned, start=5)


@pytest.mark.parametrize("place", [-1, -2])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_dimensions_are_no_turning_point(value: float, place: int) -> None:
    dimensions = [9.0, 8.0, 7.0, 6.0, 5.0, 10.0]
    dimensions[place] = value
    assert not turns(dimensions, start=0)


def test_d2l_finishes_when_training_diverges(tmp_path: Path) -> None:
    run = Run(
        data="digits",
        net="mlp-8",
        method="D2L(start=0, window=2)",
        lr=1e30,
        batch_size=300,
        iterations=20,
        evaluate_every=20,
        device="cpu",
    )
    folder = execute(run, tmp_path)
    assert json.loads((folder / "result.json").read_text())["diverged"]


def test_d2l_goes_back_and_trusts_less(make_context: MakeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_context()
    method = D2L(context, start=0, window=2, k=5)
    series = iter([5.0, 4.0, 3.0, 9.0, 3.0])
    monkeypatch.setattr(method, "dimension", lambda epoch: next(series))
    batch = context.batches.batch(0)
    torch.testing.assert_close(method.loss(batch, 0), cross_entropy(context.net(batch.inputs), batch.target))
    marks = []
    for epoch in range(3):
        marks.append(context.net.classifier.bias.detach().clone())
        with torch.no_grad():
            context.net.classifier.bias += 1
        method.epoch_end(epoch)
    assert method.turned
    torch.testing.assert_close(context.net.classifier.bias.detach(), marks[2])  # as it was when epoch 2 began
    assert method.alpha == pytest.approx(math.exp(-3 / 6 * 9 / 3))
    value = BootstrapHard(method.alpha)(context.net(batch.inputs), batch.target)
    torch.testing.assert_close(method.loss(batch, 15), value)
    method.epoch_end(3)
    assert method.alpha == pytest.approx(math.exp(-4 / 6))
    path = [trust(epoch / 10, [4.0] * (epoch + 1)) for epoch in range(10)]
    assert all(a >= b for a, b in pairwise(path))


def test_d2l_leaves_the_net_alone_when_training_ends(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context()
    method = D2L(context, start=0, window=2, k=5)
    monkeypatch.setattr(method, "dimension", lambda epoch: 50.0 if epoch == 6 else 9.0 - epoch)
    method.begin(0)
    for epoch in range(6):
        with torch.no_grad():
            context.net.classifier.bias += 1
        before = context.net.classifier.bias.detach().clone()
        method.epoch_end(epoch)
    assert torch.equal(context.net.classifier.bias.detach(), before)
    assert not method.turned


def test_d2l_sample_is_fresh_and_unaugmented(make_context: MakeContext) -> None:
    method = D2L(make_context(), start=0, k=5)
    rows = {tuple(row) for batch in method.context.batches.evaluation() for row in batch.inputs.tolist()}
    first, second = method.sample(0), method.sample(1)
    assert {tuple(row) for row in first.tolist()} <= rows
    assert not torch.equal(first, second)
    assert torch.equal(first, method.sample(0))
