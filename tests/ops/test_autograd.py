"""Kernels inside autograd: twice, in place, compiled, and out of the way where they can't help."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from beside_float64 import OTHER
from reweigh.criterion import Criterion
from reweigh.ops import choice
from reweigh.weightings import CCE, DM, Weighting

NORMALISE = [None, "batch", "class"]


def draw(device: torch.device, n: int = 6, c: int = 10) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    return (torch.randn(n, c, generator=rng) * 2).to(device), torch.randint(c, (n,), generator=rng).to(device)


@pytest.fixture
def _off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ENABLED", False)


def gradient(criterion: Criterion, logits: Tensor, target: Tensor, **call: Any) -> Tensor:
    leaf = logits.detach().requires_grad_()
    z = leaf.view_as(leaf)
    (result,) = torch.autograd.grad(criterion(z, target, **call), z)
    return result


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passes over the logits that are made from here on."""
    direct = pytest.importorskip("reweigh.ops.direct")
    original, made = direct.Launch.__call__, []

    def watched(self: Any, *tensors: Any) -> None:
        name = self.kernel.fn.__name__
        if name in ("measure", "emit", "fused", "at_once", "rescale"):
            made.append(name)
        original(self, *tensors)

    monkeypatch.setattr(direct.Launch, "__call__", watched)
    return made


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


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("normalise", NORMALISE)
@pytest.mark.parametrize("weighting", [DM(0.5, 8), OTHER], ids=repr)
def test_in_place(weighting: Weighting, normalise: Any, device: torch.device) -> None:
    logits, target = draw(device)
    plain = gradient(Criterion(weighting, normalise=normalise), logits, target)
    leaf = logits.clone().requires_grad_()
    z = leaf * 1
    version = z._version
    value = Criterion(weighting, normalise=normalise, inplace=True)(z, target)
    (result,) = torch.autograd.grad(value, z, retain_graph=True)
    assert result.data_ptr() == z.data_ptr()
    assert z._version > version
    assert torch.equal(result, plain)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation|nothing left"):
        torch.autograd.grad(value, z, create_graph=True)


@pytest.mark.usefixtures("_passes")
def test_in_place_is_noticed_by_an_operation_that_kept_its_result(device: torch.device) -> None:
    logits, target = draw(device)
    z = logits.requires_grad_().tanh()  # tanh's backward pass reads its own result
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Criterion(CCE(), inplace=True)(z, target).backward()


def test_in_place_refuses_a_leaf_and_spares_rows_that_share_memory(device: torch.device) -> None:
    logits, target = draw(device)
    for weighting in (CCE(), OTHER):
        with pytest.raises(ValueError, match="inplace=True would overwrite the logits"):
            Criterion(weighting, inplace=True)(logits.clone().requires_grad_(), target)
        with torch.no_grad():
            Criterion(weighting, inplace=True)(logits.clone().requires_grad_(), target)
        row = logits[:1].clone().requires_grad_()
        z = row.expand(6, 10)
        (result,) = torch.autograd.grad(Criterion(weighting, inplace=True)(z, target), z)
        torch.testing.assert_close(result, gradient(Criterion(weighting), row.detach().expand(6, 10), target))


def test_evaluation_reads_once_and_writes_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = draw(device)
    made, before = calls(monkeypatch), logits.clone()
    value = Criterion(CCE(), inplace=True)(logits, target)
    assert made == ["measure"]
    assert torch.equal(logits, before)
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(logits, target))


def test_which_calls_take_kernels(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = draw(device)
    made = calls(monkeypatch)
    plain = Criterion(CCE())
    for criterion, z, y in (
        (plain, logits.double(), target),
        (plain, logits, logits.softmax(1)),
        (plain, logits[0], target[0]),
        (plain, logits[:, :, None], target[:, None]),
        (plain, logits.T.contiguous().T, target),
        (Criterion(CCE(), label_smoothing=0.1), logits, target),
        (plain, logits[:0], target[:0]),
    ):
        criterion(z.detach().requires_grad_(), y).backward()
    torch.func.grad(lambda z: plain(z, target))(logits)
    torch.func.vmap(plain)(logits, target)
    assert not made
    gradient(plain, logits, target)
    assert made == ["at_once", "rescale"]
    monkeypatch.setattr(choice, "ENABLED", False)
    gradient(Criterion(CCE()), logits, target)
    assert len(made) == 2


def test_what_is_launched_for_small_large_and_other_batches(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    entire = pytest.importorskip("reweigh.ops.entire")
    monkeypatch.setattr(entire, "AT_ONCE", 64)
    monkeypatch.setattr(entire, "AT_ONCE_EAGERLY", 64)
    logits, target = draw(device, 10, 10)
    made = calls(monkeypatch)
    for normalise, rows, launched in (
        ("unit", 4, ["at_once", "rescale"]),
        ("batch", 4, ["at_once", "rescale"]),
        ("unit", 5, ["fused", "rescale"]),
        ("batch", 10, ["measure", "emit"]),
    ):
        gradient(Criterion(DM(0.5, 8), normalise=normalise), logits[:rows], target[:rows])
        assert made == launched
        made.clear()


@pytest.mark.parametrize("setting", [{}, {"reduction": "none"}, {"normalise": None}, {"inplace": True}], ids=str)
def test_what_plain_torch_weighs_without_a_graph_is_the_same(
    setting: dict[str, Any], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, target = draw(device)
    target[2] = -100
    tapered: dict[str, Any] = {"normalise": "batch", "taper": torch.tensor(1e-3, device=device), **setting}
    criterion = Criterion(OTHER, **tapered, weight=torch.rand(10, device=device) + 0.1)

    def result() -> tuple[Tensor, Tensor]:
        leaf = logits.clone().requires_grad_()
        value = criterion(leaf.view_as(leaf), target)
        (found,) = torch.autograd.grad(value, leaf, torch.linspace(1, 2, value.numel(), device=device).view_as(value))
        return value.detach(), found

    direct = result()
    monkeypatch.setattr("reweigh.criterion.call.is_direct", lambda *_: False)
    for got, expected in zip(direct, result(), strict=True):
        assert torch.equal(got, expected)


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


def test_operators_are_what_they_say(device: torch.device) -> None:
    operators = pytest.importorskip("reweigh.ops.operators")
    logits, target = draw(device)
    book = operators.measure(logits, target, -100, False)
    force = torch.ones(6, dtype=torch.float64, device=device)
    for operator, arguments in (
        (operators.measure, (logits.requires_grad_(), target, -100, False)),
        (operators.emit, (logits.detach(), target, book, force, -100)),
        (operators.emit_, (logits.detach().clone(), target, book, force, -100)),
        (operators.rescale_, (logits.detach().clone(), force)),
    ):
        tests = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(operator, arguments, test_utils=tests)


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
