"""Methods that weight examples: limits, identities and golden numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from reweigh import CCE, GCE, Criterion
from reweigh.lab.batches import Batch
from reweigh.lab.methods import Context
from reweigh.lab.methods.active_bias import ActiveBias
from reweigh.lab.methods.class_imbalance import CosineLinear, class_weights, margins, weighting_factor
from reweigh.lab.methods.selection import OHEM
from reweigh.lab.methods.self_paced import SPCL, Pace, SelfPaced
from reweigh.lab.objectives import method_from
from reweigh.lab.spec import parse

Make = Callable[..., Any]


def logit_gradient(method: Any, batch: Batch, step: int = 0) -> tuple[Tensor, Tensor]:
    """(B, C) the gradient that the method hands to the first net's logits, times B, and those logits."""
    caught: list[Tensor] = []

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.retain_grad()
            caught.append(output)

    handle = method.net.classifier.register_forward_hook(keep)
    method.loss(batch, step).backward()
    handle.remove()
    logits = next(output for output in reversed(caught) if len(output) == len(batch.target))
    assert logits.grad is not None
    return logits.grad * len(batch.target), logits.detach()


def cce_gradient(logits: Tensor, target: Tensor) -> Tensor:
    return logits.softmax(1) - one_hot(target, logits.shape[1])


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("SelfPaced(1)", 1),
        ("SelfPaced(threshold=1e30)", 1),
        ("SelfPaced(threshold=0)", 0),
        ("SPCL(threshold=1e30)", 1),
        ("SPCL(1)", 1),
        ("OHEM(1)", 1),
        ("ClassBalanced(0)", 1),
        ("ActiveBias(warm_up=0, epsilon=1e6)", 1),
        ("ActiveBias(warm_up=1)", 1),
        ("PrunedGCE(q=0, start=1)", 1),
        ("ELR(lam=0)", 1),
        ("D2L(start=0, k=5)", 1),
        ("SIGUA(0)", 1),
        ("Decoupling(warm_up=1)", 1),
        ("CoTeaching(0)", 1),
        ("SAdaptation(beta=1, warm_up=0)", 1),
        ("MentorNetPD(1, example_dropout=[[0, 100]])", 1),
    ],
)
def test_limits_are_cross_entropy(make_method: Make, text: str, factor: float) -> None:
    method = make_method(text)
    batch = method.context.batches.batch(0)
    gradient, logits = logit_gradient(method, batch)
    torch.testing.assert_close(gradient, factor * cce_gradient(logits, batch.target), atol=1e-6, rtol=1e-4)


def test_pace_keeps_its_percentile_of_a_stationary_stream() -> None:
    generator = torch.Generator().manual_seed(0)
    pace, kept = Pace(0.7, 0.5), []
    for step in range(300):
        losses = torch.rand(1000, generator=generator)
        age = pace.update(losses)
        if step > 10:
            kept.append((losses <= age).float().mean())
    assert torch.stack(kept).mean().item() == pytest.approx(0.7, abs=0.005)
    pace = Pace(0.7, 0.5)
    losses = torch.arange(1.0, 11.0)
    for _ in range(100):
        pace.update(losses)
    assert (losses <= pace.age + 1e-5).sum() == 7


def test_self_paced_divides_by_batch_or_by_what_is_kept(make_context: Callable[..., Context]) -> None:
    context = make_context()
    batch = context.batches.batch(0)
    losses = cross_entropy(context.net(batch.inputs), batch.target, reduction="none").detach()
    age = losses.median().item()
    kept = losses[losses <= age]
    by_batch = SelfPaced(context, threshold=age).loss(batch, 0)
    by_kept = SelfPaced(context, threshold=age, divide_by="kept").loss(batch, 0)
    torch.testing.assert_close(by_batch, kept.sum() / len(losses))
    torch.testing.assert_close(by_kept, kept.mean())


def test_spcl_is_continuous_and_kumars_age_grows(make_context: Callable[..., Context]) -> None:
    method = SPCL(make_context(), threshold=2.0)
    losses = torch.linspace(0, 4, 4001)
    v = method.v(losses)
    assert v.diff().abs().max() < 1e-3
    assert v[0] == 1
    assert (v[2001:] == 0).all()
    by_percentile = SPCL(make_context())
    by_percentile.pace.update(losses)
    assert by_percentile.v(losses).diff().abs().max() < 2e-3
    paced = SelfPaced(make_context(), threshold=1.0)
    paced.epoch_end(0)
    assert paced.threshold == pytest.approx(1.3)


def test_ohem_drops_the_easy_and_meets_the_noise(make_method: Make) -> None:
    method = make_method("OHEM(0.5)")
    batch = method.context.batches.batch(0)
    gradient, logits = logit_gradient(method, batch)
    losses = cross_entropy(logits, batch.target, reduction="none")
    kept = losses >= losses.sort(descending=True).values[15]
    assert (gradient[~kept] == 0).all()
    torch.testing.assert_close(gradient[kept], 2 * cce_gradient(logits, batch.target)[kept])
    assert len(OHEM(method.context, keep=0.3).hardest(torch.arange(10.0))) == 3
    assert OHEM(method.context, keep=1e-12).hardest(torch.arange(10.0)).tolist() == [9]
    # a model that knows the truth finds the wrong labels hard
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(4, (400,), generator=generator)
    given = torch.where(torch.rand(400, generator=generator) < 0.5, (truth + 1) % 4, truth)
    losses = cross_entropy(3.0 * one_hot(truth, 4), given, reduction="none")
    hardest = method.hardest(losses)
    assert (given == truth)[hardest].float().mean() < 0.5 * (given == truth).float().mean()


def test_class_weights() -> None:
    counts = np.array([5000, 500, 50])
    for beta in (0.0, 0.9, 0.9999):
        assert class_weights(counts, beta).sum().item() == pytest.approx(3)
    torch.testing.assert_close(class_weights([7, 7], 0.99), torch.ones(2, dtype=torch.float64))
    inverse = torch.from_numpy(1 / counts)
    torch.testing.assert_close(class_weights(counts, 1 - 1e-12), 3 * inverse / inverse.sum(), rtol=1e-6, atol=0)
    torch.testing.assert_close(class_weights(counts, 0.1), torch.ones(3, dtype=torch.float64))
    assert class_weights([3, 0, 3], 0.9).tolist() == pytest.approx([1.5, 0, 1.5])


def test_active_bias_histories(make_context: Callable[..., Context]) -> None:
    method = ActiveBias(make_context(), warm_up=0, epsilon=0.2)
    everyone = torch.arange(len(method.mean))
    history = torch.rand(5, len(everyone), generator=torch.Generator().manual_seed(0))
    for p in history:
        method.record(everyone, p)
    variance = history.numpy().var(0)
    np.testing.assert_allclose((method.squares / method.count).numpy(), variance, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(method.mean.numpy(), history.numpy().mean(0), rtol=1e-5)
    expected = np.sqrt(variance + variance**2 / 4) + 0.2
    np.testing.assert_allclose(method.u(everyone).numpy(), expected, rtol=1e-4)
    assert method.v(everyone, 0).mean().item() == pytest.approx(1, abs=1e-5)
    constant = ActiveBias(make_context(), warm_up=0)
    for _ in range(3):
        constant.record(everyone, torch.full((len(everyone),), 0.3))
    torch.testing.assert_close(constant.v(everyone, 0), torch.ones(len(everyone)))


def test_pruned_gce(make_method: Make, make_context: Callable[..., Context]) -> None:
    method = make_method("PrunedGCE(q=0.7, k=0.26, start=2, every=2)")
    context = method.context
    batch = context.batches.batch(0)
    reference = make_context().net
    Criterion(GCE(0.7))(reference(batch.inputs), batch.target).backward()
    method.loss(batch, 0).backward()
    for mine, other in zip(method.net.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    weights = {name: tensor.clone() for name, tensor in method.net.state_dict().items()}
    method.epoch_end(0)
    assert all(torch.equal(weights[name], tensor) for name, tensor in method.net.state_dict().items())
    logits = torch.cat([method.net(b.inputs) for b in context.batches.evaluation()]).detach()
    p = logits.softmax(1).gather(1, torch.tensor(context.labels)[:, None]).squeeze(1)
    assert torch.equal(method.kept_examples, p > 0.26)
    assert 0 < method.kept_examples.sum() < len(p)
    gradient, _ = logit_gradient(method, batch)
    assert (gradient[~method.kept_examples[batch.index]] == 0).all()
    # an even epoch count is not a pruning epoch, and a threshold nobody passes prunes nobody
    before = method.kept_examples.clone()
    method.k = 0.0
    method.epoch_end(1)
    assert torch.equal(before, method.kept_examples)
    method.k = 0.999999
    method.epoch_end(2)
    assert torch.equal(before, method.kept_examples)


def test_pruned_gce_prunes_before_the_epoch_of_that_number(make_method: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The published program prunes before epochs 40, 50, ..., counted from 1."""
    method = make_method("PrunedGCE(start=4, every=3)", total=12 * 5)
    pruned = []
    monkeypatch.setattr(method, "prune", lambda: pruned.append(epoch + 2))  # the epoch that follows, from 1
    for epoch in range(11):
        method.epoch_end(epoch)
    assert pruned == [4, 7, 10]


def test_pruned_gce_decides_by_the_best_model(make_method: Make) -> None:
    method = make_method("PrunedGCE(k=0.3, start=2, every=1)")
    method.epoch_end(0)
    best = method.best_accuracy
    first = {name: tensor.clone() for name, tensor in method.best.items()}
    with torch.no_grad():
        method.net.classifier.weight.mul_(-1)
    method.epoch_end(1)
    assert method.best_accuracy >= best
    if method.best_accuracy == best:
        assert all(torch.equal(first[name], tensor) for name, tensor in method.best.items())


def test_ldam(make_method: Make) -> None:
    torch.testing.assert_close(margins([8, 8]), torch.full((2,), 0.5, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 10, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(10, (64,), generator=generator)
    shift = 30 * margins(torch.arange(1, 11))[target]
    adjusted = logits - one_hot(target, 10) * shift[:, None]
    (gradient,) = torch.autograd.grad(cross_entropy(adjusted, target, reduction="sum"), logits)
    p = logits.softmax(1).gather(1, target[:, None]).squeeze(1)
    torch.testing.assert_close(gradient, weighting_factor(p, shift)[:, None] * cce_gradient(logits, target))

    method = make_method("LDAM(max_margin=0, drw_at=3)")
    batch = method.context.batches.batch(0)
    assert isinstance(method.net.classifier, CosineLinear)
    features = method.net.features(batch.inputs)
    cosine = torch.nn.functional.cosine_similarity(features[:, None], method.net.classifier.weight[None], dim=-1)
    torch.testing.assert_close(method.net(batch.inputs), 30 * cosine)
    torch.testing.assert_close(method.loss(batch, 0), cross_entropy(30 * cosine, batch.target))
    per_epoch = method.context.epoch
    assert [method.reweighted(step) for step in (0, 3 * per_epoch - 1, 3 * per_epoch)] == [False, False, True]
    assert method.loss(batch, 3 * per_epoch) != method.loss(batch, 0)


@pytest.mark.parametrize("text", ["ClassBalanced(0)", "OHEM(1)", "SelfPaced(1)"])
def test_weights_are_the_norms_of_the_derivative(make_method: Make, text: str) -> None:
    method = make_method(text)
    batch = method.context.batches.batch(0)
    gradient, logits = logit_gradient(method, batch)
    weights = method.weights(logits, batch.target, batch.index, 0)
    torch.testing.assert_close(weights, gradient.abs().sum(1), atol=1e-5, rtol=1e-4)
    p = logits.softmax(1).gather(1, batch.target[:, None]).squeeze(1)
    torch.testing.assert_close(weights, CCE()(p), atol=1e-5, rtol=1e-4)


def test_the_same_expression_gives_the_same_method(make_context: Callable[..., Context]) -> None:
    a, b = (method_from(parse("CoTeaching(0.2)"), make_context()) for _ in range(2))
    for one, other in zip(a.trainable.parameters(), b.trainable.parameters(), strict=True):
        assert torch.equal(one, other)
