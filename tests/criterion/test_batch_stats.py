"""`batch_stats` agrees with the gradients of the criterion."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from reweigh import CCE, DM, Criterion, Weighting, batch_stats


def draw(*shape: int) -> Tensor:
    return 3 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def norms(criterion: Criterion, logits: Tensor, target: Tensor, **call: Any) -> Tensor:
    z = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(criterion(z, target, **call), z)
    return gradient.abs().sum(1)


@pytest.mark.parametrize("kind", ["indices", "smoothed", "probabilities"])
@pytest.mark.parametrize("shape", [(40, 6), (5, 4, 3, 2)], ids=str)
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8), DM(0.5, torch.tensor(4.0))], ids=repr)
def test_shares_equal_the_gradient_norms(weighting: Weighting, shape: tuple[int, ...], kind: str) -> None:
    logits = draw(*shape)
    positions = (shape[0], *shape[2:])
    target = torch.randint(shape[1], positions, generator=torch.Generator().manual_seed(1))
    settings: dict[str, Any] = {"weight": torch.linspace(0.5, 2, shape[1], dtype=torch.float64)}
    if kind == "probabilities":
        target = draw(*shape).flip(0).softmax(1)
    elif kind == "smoothed":
        settings["label_smoothing"] = 0.2
    if kind != "probabilities":
        target.view(-1)[::5] = -100
    call = {"sample_weight": torch.linspace(0, 1, shape[0], dtype=torch.float64)}
    g = norms(Criterion(weighting, **settings), logits, target, **call)
    stats = batch_stats(logits, target, weighting, **settings, **call)
    torch.testing.assert_close(stats.share, g / g.sum())
    torch.testing.assert_close(stats.effective_size, g.sum().square() / g.square().sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ignored_positions_are_nan(smoothing: float) -> None:
    logits, target = draw(4, 3), torch.tensor([0, -100, 2, 1])
    stats = batch_stats(logits, target, DM(0.5, 8), label_smoothing=smoothing)
    without = batch_stats(logits[[0, 2, 3]], target[[0, 2, 3]], DM(0.5, 8), label_smoothing=smoothing)
    assert stats.p.isnan().tolist() == stats.w.isnan().tolist() == [False, True, False, False]
    assert stats.share[1] == 0
    torch.testing.assert_close(stats.p.nanmean(), without.p.mean())
    torch.testing.assert_close(stats.w[[0, 2, 3]], without.w)
    torch.testing.assert_close(stats.effective_size, without.effective_size)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_infinite_logits_and_nan_logits_without_weight(smoothing: float) -> None:
    logits, target = draw(5, 3), torch.tensor([0, 1, 2, 1, -100])
    logits[0, 1] = logits[1, 1] = -math.inf
    logits[3:] = math.nan
    s = torch.tensor([1.0, 1, 1, 0, 1])
    stats = batch_stats(logits, target, DM(0.5, 8), label_smoothing=smoothing, sample_weight=s)
    g = norms(Criterion(DM(0.5, 8), label_smoothing=smoothing), logits[:3], target[:3])
    torch.testing.assert_close(stats.share, torch.cat((g / g.sum(), torch.zeros(2, dtype=g.dtype))))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_any_grad_mode_and_tiny_weights(mode: Any, smoothing: float) -> None:
    logits, target = draw(4, 3), torch.tensor([0, 1, 2, 1])
    settings: dict[str, Any] = {"label_smoothing": smoothing, "normalise": None, "taper": 0.0}
    expected = batch_stats(logits, target, DM(0.5, 4), **settings).share
    with mode():
        stats = batch_stats(logits.clone(), target, 1e-300 * (1e-300 * DM(0.5, 4)), **settings)
    torch.testing.assert_close(stats.share, expected)
    assert not stats.share.requires_grad


def test_empty_batch_and_zero_sample_weights() -> None:
    assert batch_stats(torch.empty(0, 3), torch.empty(0, dtype=torch.long), CCE()).share.shape == (0,)
    for smoothing in (0.0, 0.1):
        stats = batch_stats(
            draw(2, 3), torch.tensor([0, 1]), CCE(), label_smoothing=smoothing, sample_weight=torch.zeros(2)
        )
        assert not stats.share.any()
        assert stats.effective_size == 0


def test_stats_of_a_batch() -> None:
    logits = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 1, 2, 3, 0, 1, 2, -100])
    stats = batch_stats(logits, target, DM(0.5, 8))
    assert stats.share.sum().item() == pytest.approx(1)
    assert stats.share[-1] == 0
    torch.testing.assert_close(stats.effective_size, 1 / stats.share.square().sum())
    torch.testing.assert_close(stats.p[:-1], logits[:-1].double().softmax(1).gather(1, target[:-1, None])[:, 0])
    even = batch_stats(torch.zeros(5, 2), torch.zeros(5).long(), CCE())
    assert even.effective_size.item() == pytest.approx(5)
    empty = batch_stats(torch.zeros(2, 2), torch.full((2,), -100), CCE())
    assert not empty.share.any()


@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8)], ids=repr)
def test_examples_that_are_all_fitted_have_shares_although_their_norms_underflow(weighting: Weighting) -> None:
    logits = torch.tensor([[800.0, 0.0], [800.0, 0.0], [801.0, 0.0]], dtype=torch.float64)
    stats = batch_stats(logits, torch.zeros(3, dtype=torch.long), weighting)
    parts = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64).softmax(0)
    torch.testing.assert_close(stats.share, parts)
