"""The `weighting` attribute of a criterion: replacement, learnable parameters, callables and modules."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reweigh import CCE, DM, GCE, BinaryCriterion, Criterion, PerClass, Weighting
from reweigh.functional import derivative_manipulation

LOGITS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGET = torch.tensor([0, 1, 2, 0, 1, 2, 0])


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def grad_of(criterion: Callable[[Tensor, Tensor], Tensor], target: Tensor = TARGET) -> Tensor:
    z = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(criterion(z, target).sum(), z)
    return gradient


class Hill(nn.Module):
    """A weighting that is a module: w = a p (1 - p) + 1/10."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(1.0))

    def forward(self, p: Tensor) -> Tensor:
        return self.a * p * (1 - p) + 0.1


@pytest.mark.parametrize("make", [Criterion, BinaryCriterion])
def test_replacing_the_weighting(make: type[Criterion] | type[BinaryCriterion]) -> None:
    target = TARGET if make is Criterion else nn.functional.one_hot(TARGET, 3).double()
    criterion = make(DM(0.5, 8), reduction="none")
    for weighting in (DM(2, 8), GCE(0.7), lambda p: p, DM(0, 3)):
        criterion.weighting = weighting
        same = make(weighting, reduction="none")
        torch.testing.assert_close(grad_of(criterion, target), grad_of(same, target))
        assert repr(criterion) == repr(same)
        torch.testing.assert_close(criterion.log_normaliser(LOGITS, target), same.log_normaliser(LOGITS, target))


def test_a_bad_weighting_raises_at_the_next_call() -> None:
    criterion = Criterion(GCE(0.7), reduction="sum")
    criterion.weighting = 8  # type: ignore[assignment]
    with pytest.raises(TypeError, match="weighting must be a Weighting or a callable"):
        criterion(LOGITS, TARGET)
    criterion.weighting = DM(0.5, 8)
    with pytest.raises(ValueError, match="reduction='sum' does not go with normalise='batch'"):
        criterion(LOGITS, TARGET)


@pytest.mark.parametrize("normalise", ["batch", "unit"])
def test_weighting_schedule_of_a_compiled_criterion(normalise: Any) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    criterion = Criterion(DM(0.5, 2.0), normalise=normalise)
    compiled = torch.compile(criterion, fullgraph=True, backend=backend)
    for step in range(6):
        criterion.weighting = DM(0.5, 2.0 + step)
        expected = Criterion(DM(0.5, 2.0 + step), normalise=normalise)
        torch.testing.assert_close(grad_of(compiled), grad_of(expected))
    assert len(graphs) <= 2, "one for the first number, one for any number"


@pytest.mark.parametrize("normalise", [None, "unit", "batch"])
def test_parameter_tensor_modified_in_place(normalise: str | None) -> None:
    beta = torch.tensor(0.0, dtype=torch.float64)
    criterion = Criterion(DM(0.5, beta), normalise=normalise)  # type: ignore[arg-type]
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    for value in (2.0, 4.0, 8.0):
        beta.fill_(value)
        expected = grad_of(Criterion(DM(0.5, value), normalise=normalise))  # type: ignore[arg-type]
        torch.testing.assert_close(grad_of(criterion), expected)
        torch.testing.assert_close(grad_of(compiled), expected)


W = PerClass(DM(torch.tensor([0.1, 0.5, 2.0]), 8.0))


@pytest.mark.parametrize(
    ("weighting", "alone"),
    [
        (W, lambda c: DM([0.1, 0.5, 2.0][c], 8.0)),
        (1.0 * W, lambda c: DM([0.1, 0.5, 2.0][c], 8.0)),
        (CCE() + W, lambda c: CCE() + DM([0.1, 0.5, 2.0][c], 8.0)),
        (PerClass(2.0 * W), lambda c: DM([0.1, 0.5, 2.0][c], 8.0)),
    ],
    ids=["outermost", "scaled", "in a sum", "inside another"],
)
def test_each_class_has_its_own_integral(weighting: Weighting, alone: Callable[[int], Weighting]) -> None:
    settings = {"normalise": "unit", "reduction": "none", "taper": 0.0}
    together = grad_of(Criterion(weighting, **settings))  # type: ignore[arg-type]
    for c in range(3):
        own, rows = grad_of(Criterion(alone(c), **settings)), TARGET.eq(c)  # type: ignore[arg-type]
        torch.testing.assert_close(together[rows], own[rows], rtol=1e-6, atol=1e-9)


def test_unit_normalisation_by_class_and_by_example_raises() -> None:
    with pytest.raises(ValueError, match="tensors by class or by example, not both"):
        Criterion(W * torch.ones(7), normalise="unit")


@pytest.mark.parametrize("by_class", [True, False])
def test_learnable_parameter_under_unit_normalisation(by_class: bool) -> None:
    def objective(lam: Tensor) -> Criterion:
        weighting = PerClass(DM(lam, 8.0)) if by_class else DM(lam, 8.0)
        return Criterion(weighting, normalise="unit", value="objective")

    start = torch.tensor([0.5, 1.0, 2.0] if by_class else 0.5, dtype=torch.float64)
    lam = nn.Parameter(start)
    criterion = objective(lam)
    for _ in range(2):  # a second backward pass needs a new graph
        criterion(LOGITS, TARGET).backward()
    with torch.no_grad():
        lam += 1.5
    torch.testing.assert_close(grad_of(criterion), grad_of(objective(lam.detach().clone())))
    assert torch.autograd.gradcheck(lambda x: objective(x)(LOGITS, TARGET), lam)
    (fresh,) = torch.autograd.grad(objective(lam)(LOGITS, TARGET), lam)
    (kept,) = torch.autograd.grad(criterion(LOGITS, TARGET), lam)
    torch.testing.assert_close(kept, fresh)
    for twin in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        torch.testing.assert_close(grad_of(twin), grad_of(criterion))
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(grad_of(compiled), grad_of(criterion))


def test_unit_normalisation_under_vmap() -> None:
    beta = torch.tensor([0.0, 2.0, 8.0], dtype=torch.float64)

    def gradient(b: Tensor) -> Tensor:
        value = derivative_manipulation
        return torch.func.grad(lambda z: value(z, TARGET, DM(0.5, b), normalise="unit"))(LOGITS)

    expected = [grad_of(Criterion(DM(0.5, b), normalise="unit")) for b in beta.tolist()]
    torch.testing.assert_close(torch.func.vmap(gradient)(beta), torch.stack(expected))


def test_repr_includes_the_normalisation_of_a_callable() -> None:
    for normalise in (None, "unit", "batch"):
        criterion = Criterion(lambda p: 1 - p, normalise=normalise)  # type: ignore[arg-type]
        assert repr(criterion) == f"Criterion(<lambda>, normalise={normalise!r}, taper=5e-07)"


@pytest.mark.parametrize("normalise", [None, "unit", "batch"])
def test_a_module_as_weighting_is_a_submodule(normalise: str | None) -> None:
    hill = Hill()
    criterion = Criterion(hill, normalise=normalise, value="objective")  # type: ignore[arg-type]
    torch.testing.assert_close(
        grad_of(criterion),
        grad_of(Criterion(lambda p: p * (1 - p) + 0.1, normalise=normalise)),  # type: ignore[arg-type]
    )
    assert dict(criterion.named_parameters()) == {"weighting.a": hill.a}
    for _ in range(2):
        criterion(LOGITS, TARGET).backward()
    assert hill.a.grad is not None
    assert hill.a.grad != 0
    assert list(criterion.state_dict()) == ["weighting.a"]
    torch.testing.assert_close(grad_of(copy.deepcopy(criterion)), grad_of(criterion))
