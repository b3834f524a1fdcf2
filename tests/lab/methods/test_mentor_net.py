"""MentorNet: the curriculum, the mentor trained on it, and the student's gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from reweigh.lab.methods import Context
from reweigh.lab.methods.mentor_net import (
    Mentor,
    MentorNetDD,
    MentorNetPD,
    predefined,
    predefined_rows,
    survivors,
    train_mentor,
)

MakeContext = Callable[..., Context]


def test_predefined_curriculum() -> None:
    rows = [(1, 18, 1), (0, 50, 1), (0.1, 50, 0), (0.4, 90, 0.6), (2, 95, 0), (-1, 95, 1)]
    delta, epoch, expected = (torch.tensor(column) for column in zip(*rows, strict=True))
    torch.testing.assert_close(predefined(delta, epoch), expected)


def test_example_dropout_and_burn_in(make_context: MakeContext) -> None:
    assert survivors(128, 0.05, torch.Generator()).sum() == 121
    assert survivors(10, 0.9, torch.Generator()).sum() == 1
    context = make_context(total=100)
    method = MentorNetDD(context, burn_in=18)
    losses = torch.linspace(0, 5, 32)
    method.pace.update(losses)
    admitted = [bool((method.v(losses, step) == 1).all()) for step in range(30)]
    assert admitted == [True] * 17 + [False] * 13
    assert [method.epoch_at(step) for step in (0, 17, 18, 19, 99)] == [0, 17, 18, 18, 18]
    assert method.rates[0] == 0.5
    assert method.rates[17] == 0.05


def test_mentor_net_divides_by_the_batch(make_context: MakeContext) -> None:
    context = make_context(total=100)
    method = MentorNetPD(context, percentile=0.5, decay=0.0, example_dropout=((0, 100),))
    batch = context.batches.batch(0)
    losses = cross_entropy(context.net(batch.inputs), batch.target, reduction="none")
    torch.testing.assert_close(method.loss(batch, 10), losses.mean())
    value = method.loss(batch, 50)
    kept = (losses <= method.pace.age).float()
    assert 16 <= kept.sum() <= 17
    torch.testing.assert_close(value, (kept * losses).sum() / 32)


@pytest.mark.parametrize("mentor", ["formula", "net"])
def test_logit_gradients_are_weighted_cross_entropy(make_context: MakeContext, mentor: str) -> None:
    context = make_context(net="linear", total=100)
    method = MentorNetPD(context, mentor=mentor, mentor_steps=20)
    batch = context.batches.batch(0)
    method.loss(batch, 95).backward()
    with torch.no_grad():
        logits = context.net(batch.inputs)
        losses = cross_entropy(logits, batch.target, reduction="none")
        v = method.v(losses, 95) * method.draw(95, 32)[0]
        given = v[:, None] / 32 * (logits.softmax(1) - one_hot(batch.target, 4))
    assert 0 < (v > 0).sum() < 32
    torch.testing.assert_close(context.net.classifier.weight.grad, given.T @ batch.inputs, atol=1e-7, rtol=1e-4)


def test_a_mentor_learns_the_curriculum() -> None:
    draws = torch.Generator().manual_seed(0)
    mentor = Mentor(draws)
    frozen = mentor.epochs.clone()
    train_mentor(mentor, predefined_rows(draws), draws, 300)
    assert torch.equal(frozen, mentor.epochs)
    rows = predefined_rows(torch.Generator().manual_seed(1), 5000)
    with torch.no_grad():
        error = (mentor(rows.loss, rows.delta, rows.epoch).sigmoid() - rows.target).square().mean()
    assert error < 0.5 * rows.target.var()


def test_the_dump_marks_noisy_labels(make_context: MakeContext) -> None:
    method = MentorNetDD(make_context(), dump_epochs=30, noise=0.25, q=0.9)
    rows = method.dump()
    assert len(rows.loss) == 30 * 40
    assert rows.target[:40].mean().item() == pytest.approx(0.75)
    assert rows.epoch.unique().tolist() == [100 * epoch // 30 for epoch in range(30)]
    late = rows.epoch > 20
    assert rows.loss[late & (rows.target == 0)].mean() > 2 * rows.loss[late & (rows.target == 1)].mean()
    assert (rows.delta <= 0).float().mean().item() == pytest.approx(0.9, abs=0.01)


def test_the_dump_has_noise_with_few_trusted_examples(make_context: MakeContext) -> None:
    rows = MentorNetDD(make_context(), dump_epochs=1, noise=0.05).dump()  # 10 a class, of which that is half a label
    assert int((rows.target == 0).sum()) == 2


@pytest.mark.slow
def test_the_published_mentor_learns_the_curriculum_well() -> None:
    draws = torch.Generator().manual_seed(0)
    mentor = Mentor(draws)
    train_mentor(mentor, predefined_rows(draws), draws)
    losses = torch.linspace(0.1, 10, 30)
    with torch.no_grad():
        for epoch in range(90):
            below, above = (
                mentor(losses, torch.full((30,), d), torch.full((30,), epoch)).sigmoid() for d in (-1.0, 1.0)
            )
            if epoch <= 18:
                assert min(below.min(), above.min()) > 0.9
            else:
                assert (below > above).all()
        rows = predefined_rows(torch.Generator().manual_seed(1), 20_000)
        error = (mentor(rows.loss, rows.delta, rows.epoch).sigmoid() - rows.target).square().mean()
    assert error < 0.005
