"""NaN logits, and an infinite one of the label, through the kernels, against the float64 reference."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import torch
from torch import Tensor

from float64_reference import OTHER
from reweigh.criterion import Criterion
from reweigh.weightings import CCE, DM, Weighting


@pytest.fixture(params=["one program", "several programs"])
def n(request: pytest.FixtureRequest, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> int:
    """A number of rows that so many programs weigh."""
    if request.param == "one program":
        return 6
    if device.type == "cuda":
        return 1300
    if os.environ.get("TRITON_INTERPRET") == "1":  # the interpreter takes seconds for that many
        launch = pytest.importorskip("reweigh.ops.launch")
        monkeypatch.setattr(launch, "ROWS_AT_ONCE", 256)
    return 300


def result(criterion: Criterion, logits: Tensor, target: Tensor, **call: Any) -> tuple[Tensor, Tensor]:
    z = logits.detach().clone().requires_grad_()
    value = criterion(z, target, **call)
    (gradient,) = torch.autograd.grad(value, z)
    return value.detach().double(), gradient.double()


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("weighting", [DM(0.5, 8), CCE(), OTHER], ids=repr)
def test_nan_rows(weighting: Weighting, normalise: Any, bad: float, n: int, device: torch.device) -> None:
    rng = torch.Generator().manual_seed(0)
    logits, target = torch.randn(n, 5, generator=rng).to(device), (torch.arange(n) % 5).to(device)
    logits[0, : 5 if math.isnan(bad) else 1] = bad
    s = torch.ones(n, device=device)
    s[0] = 0
    criterion = Criterion(weighting, normalise=normalise)
    for call in ({"sample_weight": s}, {}):
        value, gradient = result(criterion, logits, target, **call)
        expected_value, expected = result(criterion, logits.double(), target, **call)
        torch.testing.assert_close(value, expected_value, equal_nan=True, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient[1:], expected[1:], equal_nan=True, rtol=1e-5, atol=1e-6)
    s[1:150] = 0  # a program whose only row that counts is NaN
    s[0] = 1
    torch.testing.assert_close(
        result(criterion, logits, target, sample_weight=s)[1][150:],
        result(criterion, logits.double(), target, sample_weight=s)[1][150:],
        equal_nan=True,
        rtol=1e-5,
        atol=1e-6,
    )
