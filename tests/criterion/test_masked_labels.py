"""Batch normalisation of examples whose labels are all masked, so that log p is -inf."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from instances import WEIGHTINGS, name
from reweigh import Criterion, LinearCriterion, Weighting

OTHERS = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
TARGET = torch.zeros(3, dtype=torch.long)
OPTIONS: dict[str, Any] = {"normalise": "batch", "taper": 0.0}


def shares(weighting: Weighting) -> torch.Tensor:
    """Return equal shares, or zeros if w(0) = 0."""
    return torch.full((3,), 1 / 3 if weighting(0.0) > 0 else 0.0, dtype=torch.float64)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_criterion(weighting: Weighting, dense: bool) -> None:
    logits = torch.cat((torch.full((3, 1), -math.inf), OTHERS), 1).requires_grad_()
    target = torch.nn.functional.one_hot(TARGET, 3).double() if dense else TARGET
    Criterion(weighting, **OPTIONS)(logits, target).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad.abs().sum(1), shares(weighting))


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_linear_criterion(weighting: Weighting, chunk: int) -> None:
    weight = torch.cat((torch.zeros(3, 1), OTHERS), 1).T.contiguous().requires_grad_()
    bias = torch.tensor([-math.inf, 0.0, 0.0], dtype=torch.float64)
    hidden = torch.eye(3, dtype=torch.float64)  # makes the gradient of the weight that of the logits
    LinearCriterion(weighting, chunk=chunk, **OPTIONS)(hidden, weight, TARGET, bias).backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad.abs().sum(0), shares(weighting))
