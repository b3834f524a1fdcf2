"""OSM+CAA against numbers obtained independently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from reweigh.lab.methods.osm_caa import attention, pair_losses

F = torch.tensor([[1, 0], [0.8, 0.6], [0, 1], [-1, 0]], dtype=torch.float64)
Y = torch.tensor([0, 0, 1, 1])


def losses(temperature: float, f: Tensor = F, y: Tensor = Y) -> tuple[float, float]:
    trust = attention(f, y, torch.eye(2, dtype=torch.float64), temperature)
    positive, negative = pair_losses(f, y, trust)
    return positive.item(), negative.item()


def test_published_example() -> None:
    trust = attention(F, Y, torch.eye(2, dtype=torch.float64), 1.0)
    assert trust.tolist() == pytest.approx([0.731059, 0.549834, 0.731059, 0.731059], abs=1e-6)
    positive, negative = losses(1.0)
    assert (positive, negative) == pytest.approx((0.278721, 0.046687), abs=1e-6)
    assert (positive + negative) / 2 == pytest.approx(0.162704, abs=1e-6)
    positive, negative = losses(0.18)
    assert positive == pytest.approx(0.278426, abs=1e-6)
    assert (positive + negative) / 2 == pytest.approx(0.162556, abs=1e-6)


def test_order_does_not_matter() -> None:
    order = torch.tensor([2, 0, 3, 1])
    assert losses(0.18, F[order], Y[order]) == pytest.approx(losses(0.18))


@pytest.mark.parametrize(
    ("f", "y", "expected"),
    [
        (F[:1], Y[:1], (0.0, 0.0)),  # no pair at all
        (F[[0, 3]], Y[[0, 3]], (0.0, 0.0)),  # the only negative is beyond alpha
        (F[[0, 0]], Y[[0, 0]], (0.0, 0.0)),  # the same place
        (F[[0, 0]], Y[[0, 2]], (0.0, 0.72)),  # the same place, but two people: alpha² / 2
    ],
)
def test_special_cases_have_finite_gradients(f: Tensor, y: Tensor, expected: tuple[float, float]) -> None:
    f = f.clone().requires_grad_()
    positive, negative = pair_losses(f, y, torch.ones(len(f), dtype=torch.float64))
    assert (positive.item(), negative.item()) == pytest.approx(expected, abs=1e-5)
    (positive + negative).backward()
    assert f.grad is not None
    assert f.grad.isfinite().all()


def test_nothing_learns_through_the_weights() -> None:
    f = F.clone().requires_grad_()
    trust = torch.rand(4, dtype=torch.float64, requires_grad=True)
    sum(pair_losses(f, Y, trust)).backward()
    assert trust.grad is None


def test_a_wrong_label_counts_less() -> None:
    """The pair of a frame that looks like the other class weighs next to nothing."""
    f = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 0])
    trust = attention(f, y, torch.eye(2, dtype=torch.float64))
    assert pair_losses(f, y, trust)[0] < 0.05 * pair_losses(f, y, torch.ones_like(trust))[0]


def test_parts_add_up(make_method: Callable[..., Any]) -> None:
    def loss(text: str) -> float:
        method = make_method(text)
        return float(method.loss(method.context.batches.batch(0), 0).detach())

    whole, cce = loss("OSMCAA(lam=0.3)"), loss("OSMCAA(lam=0.3, cce=2)")
    positive, negative = loss("OSMCAA(lam=0, cce=0)"), loss("OSMCAA(lam=1, cce=0)")
    assert whole == pytest.approx(cce - whole + 0.7 * positive + 0.3 * negative, rel=1e-5)
