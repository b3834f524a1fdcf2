"""Forward-mode derivatives of the criterion, by `torch.func` and by dual tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from reweigh import CCE, DM, GCE, BinaryCriterion, Criterion, Curve, LinearCriterion, Weighting


def data(n: int, num_classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, a direction and labels."""
    logits, direction = torch.randn(2, n, num_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (logits * 2).to(dtype), direction.to(dtype), torch.arange(n) % num_classes


def gradient_of(criterion: Criterion, logits: Tensor, target: Tensor) -> Tensor:
    z = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(criterion(z, target).sum(), z)
    return gradient


@pytest.mark.parametrize("settings", [{}, {"normalise": "unit"}, {"normalise": "batch"}, {"label_smoothing": 0.2}])
@pytest.mark.parametrize(
    "weighting", [CCE(), GCE(0.7), DM(0.5, 8), Curve(((0.0, 1.0), (0.5, 2.0), (1.0, 0.0)))], ids=repr
)
def test_forward_mode(weighting: Weighting, settings: dict[str, object]) -> None:
    """The directional derivative of the value and a Hessian-vector product agree with reverse mode."""
    logits, direction, target = data(4, 3, torch.float64)
    criterion = Criterion(weighting, **settings)  # type: ignore[arg-type]

    def gradient(z: Tensor) -> Tensor:
        return torch.autograd.grad(criterion(z, target), z, create_graph=True)[0]

    value, slope = torch.func.jvp(lambda z: criterion(z, target), (logits,), (direction,))
    torch.testing.assert_close(value, criterion(logits, target))
    torch.testing.assert_close(slope, (gradient_of(criterion, logits, target) * direction).sum())
    _, column = torch.func.jvp(torch.func.grad(lambda z: criterion(z, target)), (logits,), (direction,))
    rows = torch.autograd.functional.jacobian(gradient, logits)
    torch.testing.assert_close(column, torch.tensordot(rows, direction, 2))
    torch.testing.assert_close(torch.func.hessian(lambda z: criterion(z, target))(logits), rows)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8)], ids=repr)
def test_forward_mode_of_repeated_calls(weighting: Weighting, reduction: Any, dtype: torch.dtype) -> None:
    logits, direction, target = data(12, 400, dtype)
    criterion = Criterion(weighting, reduction=reduction)
    slope = (gradient_of(criterion, logits, target) * direction).double().sum()
    for _ in range(2):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(logits, direction)
            tangent = forward_ad.unpack_dual(criterion(dual, target)).tangent
        assert tangent is not None
        tolerance = 1e-12 if dtype == torch.float64 else 1e-5 if dtype == torch.float32 else 0.02
        torch.testing.assert_close(tangent.double().sum(), slope, rtol=tolerance, atol=tolerance / 10)


def test_forward_mode_of_the_binary_criterion() -> None:
    logits, direction, _ = data(4, 3, torch.float64)
    target = (logits > 1).double()

    def derivatives(loss: nn.Module) -> tuple[Tensor, Tensor]:
        _, slope = torch.func.jvp(lambda z: loss(z, target), (logits,), (direction,))
        return slope, torch.func.hessian(lambda z: loss(z, target))(logits)

    torch.testing.assert_close(derivatives(BinaryCriterion(CCE())), derivatives(nn.BCEWithLogitsLoss()))


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacfwd, torch.func.vmap])
def test_transforms_of_linear_criterion_raise(transform: Any) -> None:
    hidden, weight, target = torch.ones(2, 6, 4), torch.ones(3, 4), torch.arange(6) % 3
    inputs = hidden if transform is torch.func.vmap else hidden[0]
    with pytest.raises(RuntimeError, match=r"setup_context|forward AD"):
        transform(lambda h: LinearCriterion(CCE())(h, weight, target))(inputs)
