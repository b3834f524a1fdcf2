"""Functions and modules as weightings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reweigh.weighting import Curve, FromCallable, as_weighting


class OfBoth(nn.Module):
    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        return 4 * p * q


def by_default(p: Tensor | float = 0.5) -> Tensor:
    return torch.as_tensor(p)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nn.Identity(), 0.25),
        (nn.Sequential(nn.Identity(), nn.ReLU()), 0.25),
        (OfBoth(), 0.75),
        (lambda *p: p[0], 0.25),
        (by_default, 0.25),
        (torch.sqrt, 0.5),
        (lambda p, q: q, 0.75),
    ],
)
def test_functions_and_modules_of_p_or_of_both(function: Callable[..., Tensor], expected: float) -> None:
    assert as_weighting(function)(0.25) == pytest.approx(expected)


def test_a_module_is_named_by_its_kind() -> None:
    assert repr(FromCallable(nn.Sequential(nn.Identity()))) == "Sequential"


def test_functions_of_nothing_or_of_three_are_refused() -> None:
    for function, count in ((lambda: 1.0, 0), (lambda a, b, c: a, 3)):
        with pytest.raises(TypeError, match=rf"takes \(p\) or \(p, q\), got one of {count} arguments"):
            as_weighting(function)  # type: ignore[arg-type]


@pytest.mark.parametrize("points", [[1, 2, 3], [(0, 1), (1,)], [("a", 1), (1, 1)], 5])
def test_points_are_pairs(points: Any) -> None:
    with pytest.raises(TypeError, match=r"Curve: points must be pairs \(p, w\) of numbers, got"):
        Curve(points)
