"""The criterion under fake tensors and `make_fx`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from float64_reference import draw, result
from reweigh.criterion import Criterion
from reweigh.weightings import CCE, DM, Weighting

CPU = torch.device("cpu")
SHAPES = [(64, 600), (6, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8)], ids=repr)
def test_fake_tensors(weighting: Weighting, shape: tuple[int, int]) -> None:
    logits, target = draw(*shape, CPU)
    with FakeTensorMode(allow_non_fake_inputs=True):
        for z in (logits, logits.clone().requires_grad_()):
            value = Criterion(weighting)(z, target)
            assert isinstance(value, FakeTensor)
        (gradient,) = torch.autograd.grad(value, z)
    assert isinstance(gradient, FakeTensor)
    assert gradient.shape == shape


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_traced_graph_applies_to_other_logits(shape: tuple[int, int], mode: Any) -> None:
    criterion = Criterion(DM(0.5, 8))

    def value_and_gradient(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return result(criterion, z, target)

    logits, target = draw(*shape, CPU)
    other = logits.flip(0) * 2
    traced = make_fx(value_and_gradient, tracing_mode=mode)(logits, target)
    for got, expected in zip(traced(other, target), value_and_gradient(other, target), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-8)
