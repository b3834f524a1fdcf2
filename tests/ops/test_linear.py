"""LinearCriterion on the kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from float64_reference import OTHER
from reweigh.criterion import Criterion
from reweigh.linear import LinearCriterion
from reweigh.weightings import DM, MAE, Weighting


def draw(device: torch.device, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """Hidden states and weight; labels, of which one is ignored."""
    rng = torch.Generator().manual_seed(0)
    layer = [torch.randn(shape, generator=rng).to(device, dtype).requires_grad_() for shape in ((9, 8), (24, 8))]
    target = torch.randint(24, (9,), generator=rng).to(device)
    target[4] = -100
    return layer, target


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("weighting", [DM(0.5, 8), MAE(), OTHER], ids=repr)
def test_in_chunks(weighting: Weighting, normalise: Any, dtype: torch.dtype, device: torch.device) -> None:
    layer, target = draw(device, dtype)
    value = LinearCriterion(weighting, normalise=normalise, chunk=4)(*layer, target)
    ours = torch.autograd.grad(value, layer)
    exact = [part.detach().double().requires_grad_() for part in layer]
    expected = Criterion(weighting, normalise=normalise)(exact[0] @ exact[1].T, target)
    for got, wanted in zip(ours, torch.autograd.grad(expected, exact), strict=True):
        assert (got.double() - wanted).norm() <= (2e-6 if dtype == torch.float32 else 2e-2) * wanted.norm()
    torch.testing.assert_close(value.double(), expected, rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weighting", [DM(0.5, 8), MAE()], ids=repr)
def test_compiles_without_a_break(weighting: Weighting, dtype: torch.dtype, device: torch.device) -> None:
    torch.compiler.reset()
    layer, target = draw(device, dtype)
    criterion = LinearCriterion(weighting, chunk=4)
    found = []
    for loss in (torch.compile(criterion, fullgraph=True, backend="aot_eager"), criterion):
        value = loss(*layer, target)
        found.append((value, *torch.autograd.grad(value, layer)))
    torch.testing.assert_close(*found)
