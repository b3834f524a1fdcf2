"""Curves, functions and modules as weightings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reweigh.weightings import Curve, FromCallable, as_weighting
from reweigh.weightings.curve import constants_like


class ProductOfBoth(nn.Module):
    def forward(self, p: Tensor, q: Tensor) -> Tensor:
        return 4 * p * q


def with_default(p: Tensor | float = 0.5) -> Tensor:
    return torch.as_tensor(p)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nn.Identity(), 0.25),
        (nn.Sequential(nn.Identity(), nn.ReLU()), 0.25),
        (ProductOfBoth(), 0.75),
        (lambda *p: p[0], 0.25),
        (with_default, 0.25),
        (torch.sqrt, 0.5),
        (lambda p, q: q, 0.75),
    ],
)
def test_functions_and_modules_of_p_or_of_p_and_q(function: Callable[..., Tensor], expected: float) -> None:
    assert as_weighting(function)(0.25) == pytest.approx(expected)


def test_repr_of_a_module_is_its_class_name() -> None:
    assert repr(FromCallable(nn.Sequential(nn.Identity()))) == "Sequential"


def test_functions_of_no_or_three_arguments_raise() -> None:
    for function, count in ((lambda: 1.0, 0), (lambda a, b, c: a, 3)):
        with pytest.raises(TypeError, match=rf"takes \(p\) or \(p, q\), got one of {count} arguments"):
            as_weighting(function)  # type: ignore[arg-type]


def test_curve_copies_nothing_to_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy would synchronise with the GPU at every call and prevent graph capture."""
    numbers, log_p = [0.0, 0.3, 1 / 3], torch.full((5,), -0.5, dtype=torch.float64)
    assert torch.equal(constants_like(numbers, log_p), torch.tensor(numbers, dtype=torch.float64))
    monkeypatch.setattr(Tensor, "new_tensor", lambda *_: pytest.fail("copied"))
    monkeypatch.setattr(torch, "tensor", lambda *_, **__: pytest.fail("copied"))
    curve, log_p_elsewhere = Curve(((0.0, 0.2), (0.3, 2.0), (1.0, 0.0))), log_p.to("meta")
    assert curve.log_weight(log_p_elsewhere, log_p_elsewhere).shape == (5,)


@pytest.mark.parametrize("points", [[1, 2, 3], [(0, 1), (1,)], [("a", 1), (1, 1)], 5])
def test_points_that_are_not_pairs_raise(points: Any) -> None:
    with pytest.raises(TypeError, match=r"Curve: points must be pairs \(p, w\) of numbers, got"):
        Curve(points)


def test_functions_with_a_wrong_result_raise() -> None:
    p = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    for wrong in (lambda p: p[:, None], lambda p: p[:2]):
        with pytest.raises(ValueError, match=r"one w for every p, of shape \(3,\), got shape \((3, 1|2,)\): <lambda>"):
            as_weighting(wrong)(p)
    with pytest.raises(TypeError, match="must return a tensor or a number, got None: <lambda>"):
        as_weighting(lambda p: None)(p)  # type: ignore[arg-type, return-value]
    for one in (2.0, torch.tensor(2.0), torch.tensor([2.0])):
        assert as_weighting(lambda p, one=one: one)(p).tolist() == pytest.approx([2.0] * 3)
