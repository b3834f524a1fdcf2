"""Comparison of the kernels with the same criterion in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.criterion import Criterion
from reweigh.weightings import CCE, MAE, Weighting

# A weighting without a kernel.
OTHER: Weighting = CCE() + 3.0 * MAE()
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 4e-3, torch.float16: 1e-3}


def draw(
    n: int, c: int, device: torch.device, dtype: torch.dtype = torch.float32, spread: float = 3.0
) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(n * 1000 + c)
    logits = (torch.randn(n, c, generator=rng) * spread).to(dtype)
    return logits.to(device), torch.randint(c, (n,), generator=rng).to(device)


def result(
    criterion: Criterion, logits: Tensor, target: Tensor, incoming: Tensor | None = None, **call: Any
) -> tuple[Tensor, Tensor]:
    """Return the value and the gradient with respect to non-leaf logits."""
    leaf = logits.detach().requires_grad_()
    z = leaf.view_as(leaf)
    value = criterion(z, target, **call)
    (gradient,) = torch.autograd.grad(value, z, torch.ones_like(value) if incoming is None else incoming)
    return value.detach(), gradient


def check(criterion: Criterion, logits: Tensor, target: Tensor, incoming: Tensor | None = None, **call: Any) -> None:
    """Compare value and gradient with those for float64 logits, which the kernels do not support."""
    value, gradient = result(criterion, logits, target, incoming, **call)
    exact = None if incoming is None else incoming.double()
    expected_value, expected = result(criterion, logits.double(), target, exact, **call)
    assert gradient.dtype == logits.dtype
    assert value.dtype == torch.float32
    assert (gradient.double() - expected).norm() <= TOLERANCE[logits.dtype] * expected.norm()
    torch.testing.assert_close(value.double(), expected_value, rtol=2e-6, atol=2e-6)
