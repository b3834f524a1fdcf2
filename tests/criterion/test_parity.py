"""Criterion(CCE()) equals CrossEntropyLoss, and BinaryCriterion(CCE()) equals BCEWithLogitsLoss.

Documented exceptions: a batch without a valid label is 0 here and NaN in torch; probability targets under class weights
divide by the weights' sum here and by N in torch.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from reweigh import CCE, GCE, BinaryCriterion, Criterion

SHAPES = [(4,), (6, 4), (3, 4, 5), (2, 4, 3, 2), (2, 4, 2, 2, 2)]
REDUCTIONS = ["mean", "sum", "none"]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check(ours: nn.Module, theirs: nn.Module, logits: Tensor, target: Tensor) -> None:
    """Compare values and gradients for a random incoming gradient."""
    results = []
    for criterion in (ours, theirs):
        z = logits.clone().requires_grad_()
        value = criterion(z, target)
        value.backward(torch.rand(value.shape, generator=rng(9), dtype=value.dtype))
        results.append((value.detach(), z.grad))
    (value, grad), (their_value, their_grad) = results
    torch.testing.assert_close(value, their_value)
    torch.testing.assert_close(grad, their_grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_class_indices(
    shape: tuple[int, ...], ignored: bool, weighted: bool, reduction: str, dtype: torch.dtype
) -> None:
    logits = torch.randn(shape, generator=rng(), dtype=dtype) * 3
    positions = shape[1:] if len(shape) == 1 else (shape[0], *shape[2:])
    target = torch.randint(4, positions, generator=rng(1))
    if ignored and target.ndim:
        target.view(-1)[::3] = 1 if weighted else -100
    settings = {
        "weight": torch.rand(4, generator=rng(2), dtype=dtype) + 0.1 if weighted else None,
        "ignore_index": 1 if weighted else -100,
        "reduction": reduction,
    }
    if not target.ndim:
        target = torch.tensor(3)
    check(Criterion(CCE(), **settings), nn.CrossEntropyLoss(**settings), logits, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_probability_targets(shape: tuple[int, ...], reduction: str) -> None:
    logits = torch.randn(shape, generator=rng(), dtype=torch.float64)
    target = torch.randn(shape, generator=rng(1), dtype=torch.float64).softmax(0 if len(shape) == 1 else 1)
    check(Criterion(CCE(), reduction=reduction), nn.CrossEntropyLoss(reduction=reduction), logits, target)
    if reduction != "mean":
        weight = torch.rand(4, generator=rng(2), dtype=torch.float64)
        settings = {"weight": weight, "reduction": reduction}
        check(Criterion(CCE(), **settings), nn.CrossEntropyLoss(**settings), logits, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.1, 0.9, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_label_smoothing(shape: tuple[int, ...], smoothing: float, weighted: bool, reduction: str) -> None:
    logits = torch.randn(shape, generator=rng(), dtype=torch.float64)
    positions = () if len(shape) == 1 else (shape[0], *shape[2:])
    target = torch.randint(4, positions, generator=rng(1))
    if target.ndim:
        target.view(-1)[::3] = -100
    weight = torch.rand(4, generator=rng(2), dtype=torch.float64) + 0.1 if weighted else None
    settings = {"label_smoothing": smoothing, "reduction": reduction, "weight": weight}
    check(Criterion(CCE(), **settings), nn.CrossEntropyLoss(**settings), logits, target)


def test_one_hot_and_index_targets_agree_under_class_weights() -> None:
    logits = torch.randn(8, 4, generator=rng(), dtype=torch.float64)
    target = torch.randint(4, (8,), generator=rng(1))
    onehot = nn.functional.one_hot(target, 4).double()
    weight = torch.tensor([0.1, 1.0, 2.0, 5.0], dtype=torch.float64)
    for weighting, reduction in itertools.product((CCE(), GCE(0.7)), REDUCTIONS):
        grads = []
        for labels in (target, onehot):
            z = logits.clone().requires_grad_()
            Criterion(weighting, weight=weight, reduction=reduction)(z, labels).sum().backward()  # type: ignore[arg-type]
            grads.append(z.grad)
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("pos_weighted", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 4)], ids=str)
def test_binary(shape: tuple[int, ...], soft: bool, weighted: bool, pos_weighted: bool, reduction: str) -> None:
    logits = torch.randn(shape, generator=rng(), dtype=torch.float64) * 3
    target = torch.rand(shape, generator=rng(1), dtype=torch.float64)
    settings = {
        "weight": torch.rand(shape[-1:], generator=rng(2), dtype=torch.float64) if weighted else None,
        "pos_weight": torch.rand(shape[-1:], generator=rng(3), dtype=torch.float64) * 4 if pos_weighted else None,
        "reduction": reduction,
    }
    check(
        BinaryCriterion(CCE(), **settings),
        nn.BCEWithLogitsLoss(**settings),
        logits,
        target if soft else target.round(),
    )
