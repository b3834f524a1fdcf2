"""Kernels inside autograd: twice, in place, compiled, and out of the way where they can't help."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from float64_reference import OTHER
from reweigh import ops
from reweigh.criterion import Criterion
from reweigh.weightings import CCE, DM, Weighting

NORMALISE = [None, "batch", "class"]


def draw(device: torch.device, n: int = 6, c: int = 10) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return (torch.randn(n, c, generator=rng) * 2).to(device), torch.randint(c, (n,), generator=rng).to(device)


def gradient(criterion: Criterion, logits: Tensor, target: Tensor, **call: Any) -> Tensor:
    leaf = logits.detach().requires_grad_()
    z = leaf.view_as(leaf)
    (result,) = torch.autograd.grad(criterion(z, target, **call), z)
    return result


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("weighting", [CCE(), OTHER], ids=repr)
def test_many_gradients_at_once(weighting: Weighting, device: torch.device) -> None:
    logits, target = draw(device)
    leaf = logits.requires_grad_()
    values = Criterion(weighting, reduction="none")(leaf, target)
    each = torch.eye(len(target), device=device)
    one_by_one = [torch.autograd.grad(values, leaf, one, retain_graph=True)[0] for one in each]
    (at_once,) = torch.autograd.grad(values, leaf, each, retain_graph=True, is_grads_batched=True)
    torch.testing.assert_close(at_once, torch.stack(one_by_one), rtol=1e-5, atol=1e-7)
    mapped = torch.func.vmap(lambda one: torch.autograd.grad(values, leaf, one, retain_graph=True)[0])(each)
    torch.testing.assert_close(mapped, torch.stack(one_by_one), rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("normalise", NORMALISE)
@pytest.mark.parametrize("weighting", [DM(0.5, 8), OTHER], ids=repr)
def test_backward_twice(weighting: Weighting, normalise: Any, device: torch.device) -> None:
    logits, target = draw(device)
    z = logits.requires_grad_().view_as(logits)
    value = Criterion(weighting, normalise=normalise)(z, target)
    first, second, third = (
        torch.autograd.grad(value, z, torch.tensor(g, device=device), retain_graph=True)[0] for g in (2.0, 0.0, 2.0)
    )
    torch.testing.assert_close(first, third)
    assert not second.any()


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("normalise", NORMALISE)
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8), OTHER], ids=repr)
def test_second_derivative(weighting: Weighting, normalise: Any, device: torch.device) -> None:
    logits, target = draw(device, 3, 4)
    criterion = Criterion(weighting, normalise=normalise)

    def curvature(z: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(criterion(z, target), z, create_graph=True)
        (result,) = torch.autograd.grad(slope.square().sum(), z)
        return result

    ours = curvature(logits.requires_grad_())
    exact = curvature(logits.detach().double().requires_grad_())
    torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-6)


def test_derivative_with_respect_to_sample_weights(device: torch.device) -> None:
    logits, target = draw(device)
    s = torch.linspace(0.1, 1, 6, device=device)

    def slope(z: Tensor, s: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(Criterion(DM(0.5, 8))(z, target, sample_weight=s), z, create_graph=True)
        (result,) = torch.autograd.grad((first * torch.arange(10, device=device)).sum(), s)
        return result

    ours = slope(logits.requires_grad_(), s.requires_grad_())
    exact = slope(logits.detach().double().requires_grad_(), s.detach().double().requires_grad_())
    torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-6)


def test_the_first_gradient_is_not_changed_by_a_second_backward_pass(device: torch.device) -> None:
    logits, target = draw(device)
    z = logits.requires_grad_().view_as(logits)
    value = Criterion(DM(0.5, 8))(z, target)
    first = torch.autograd.grad(value, z, torch.tensor(2.0, device=device), retain_graph=True)[0]
    kept = first.clone()
    torch.autograd.grad(value, z, torch.tensor(5.0, device=device), retain_graph=True)
    assert torch.equal(first, kept)


def test_which_calls_take_kernels(backend: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "plain":
        pytest.skip("no kernels")
    logits, target = draw(device)
    assert ops.has_rows(logits, target)
    for z, y in (
        (logits.double(), target),
        (logits, logits.softmax(1)),
        (logits[0], target[0]),
        (logits[:, :, None], target[:, None]),
        (logits.T.contiguous().T, target),
        (logits[:0], target[:0]),
    ):
        assert not ops.has_rows(z, y)
    monkeypatch.setattr(ops, "ENABLED", False)
    assert not ops.has_rows(logits, target)


@pytest.mark.parametrize("weighting", [DM(0.5, 8), OTHER], ids=repr)
def test_transforms(weighting: Weighting, device: torch.device) -> None:
    logits, target = draw(device)
    criterion = Criterion(weighting, normalise=None)
    each = torch.func.vmap(torch.func.grad(lambda z, y: criterion(z[None], y[None])))(logits, target)
    together = gradient(Criterion(weighting, normalise=None, reduction="sum"), logits, target)
    torch.testing.assert_close(each, together, rtol=1e-5, atol=1e-7)
    batches = torch.func.vmap(lambda z: Criterion(weighting)(z, target))(torch.stack((logits, 2 * logits)))
    torch.testing.assert_close(batches[1], Criterion(weighting)(2 * logits, target))


@pytest.mark.parametrize("normalise", NORMALISE)
@pytest.mark.parametrize("weighting", [DM(0.5, 8), OTHER], ids=repr)
def test_compiles_without_a_break(weighting: Weighting, normalise: Any, device: torch.device) -> None:
    torch.compiler.reset()
    logits, target = draw(device)
    criterion = Criterion(weighting, normalise=normalise, weight=torch.rand(10, device=device) + 0.1)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    leaf = logits.clone().requires_grad_()
    compiled(leaf, target).backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, gradient(criterion, logits, target))


def test_operators_are_what_they_say(backend: str, device: torch.device) -> None:
    if backend == "plain":
        pytest.skip("no kernels")
    launch = pytest.importorskip("reweigh.ops.launch")
    logits, target = draw(device)
    row_stats = launch.measure(logits, target)
    force = torch.ones(6, dtype=torch.float64, device=device)
    weighed = (None, None, 1, [0.5, 8.0, 0.0, 0.0, 5e-7, 1.0], True, "mean", -100)
    for operator, arguments in (
        (launch.value_and_pull, (logits, target, *weighed)),
        (launch.measure, (logits, target)),
        (launch.emit, (logits, target, row_stats, force)),
        (launch.emit_, (logits.clone(), target, row_stats, force)),
        (launch.rescale_, (logits.clone(), force)),
    ):
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


def test_objective_normaliser_and_process_group_values_agree(device: torch.device) -> None:
    logits, target = draw(device)
    criterion = Criterion(DM(0.5, 8))
    total = criterion.log_normaliser(logits, target)
    torch.testing.assert_close(total, criterion.log_normaliser(logits.double(), target))
    torch.testing.assert_close(
        gradient(criterion, logits, target), gradient(criterion, logits, target, log_normaliser=total)
    )
    objective = Criterion(DM(0.5, 8), value="objective")
    torch.testing.assert_close(
        objective(logits, target).double(), objective(logits.double(), target), rtol=1e-5, atol=1e-6
    )
