"""Weightings that no kernel knows: log w in plain torch, and kernels before and after it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from float64_reference import OTHER, check, draw, result
from reweigh.criterion import Criterion
from reweigh.weightings import AGCE, CCE, DM, Curve, PerClass


@pytest.mark.parametrize(
    "weighting",
    [AGCE(0.6, 0.6), Curve(((0.0, 0.2), (1.0, 0.0))), OTHER, lambda p: 1 - p],
    ids=["agce", "curve", "sum", "callable"],  # a lambda's repr has its address, which no two processes share
)
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_any_other_weighting(weighting: Any, normalise: Any, device: torch.device) -> None:
    check(Criterion(weighting, normalise=normalise), *draw(6, 10, device))


def test_parameters_by_class_and_by_example(device: torch.device) -> None:
    logits, target = draw(6, 10, device)
    by_class = torch.linspace(1, 8, 10, dtype=torch.float64, device=device)
    check(Criterion(PerClass(DM(0.5, by_class))), logits, target)
    check(Criterion(PerClass(DM(0.5, by_class))), logits, target.index_fill(0, target.new_tensor([1, 4]), -100))
    check(Criterion(DM(0.5, by_class[:6]), taper=by_class[:6] * 1e-3), logits, target)


def test_parameters_that_move_between_calls(device: torch.device) -> None:
    logits, target = draw(6, 10, device)
    beta = torch.tensor(2.0, dtype=torch.float64, device=device)
    criterion = Criterion(DM(0.5, beta))
    check(criterion, logits, target)
    beta.fill_(8.0)
    check(criterion, logits, target)


def test_whatever_a_function_returns(device: torch.device) -> None:
    logits, target = draw(6, 10, device)
    exact = result(Criterion(CCE(), normalise="batch"), logits, target)

    def single(p: Tensor, q: Tensor) -> Tensor:
        return q.float()

    for got, expected in zip(result(Criterion(single), logits, target), exact, strict=True):
        torch.testing.assert_close(got, expected)
