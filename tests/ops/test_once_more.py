"""A batch like one before, whose plan is remembered, and one without a gradient, beside the float64 reference."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from reweigh.criterion import Criterion
from reweigh.weightings import DM


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_batch_like_one_before(reduction: Any, normalise: Any, device: torch.device) -> None:
    criterion = Criterion(DM(0.5, 8), normalise=normalise, reduction=reduction)
    rng = torch.Generator().manual_seed(0)
    logits = (torch.randn(12, 10, generator=rng) * 2).to(device)
    target = torch.randint(10, (12,), generator=rng).to(device)
    criterion(logits.clone().requires_grad_(), target)
    assert len(criterion.options.repeats) == 1

    def push(z: Tensor, y: Tensor) -> Tensor:
        z = z.detach().requires_grad_()
        (found,) = torch.autograd.grad(criterion(z, y).sum(), z)
        return found

    def agree(z: Tensor, y: Tensor) -> None:
        value, exact = criterion(z, y), criterion(z.double(), y)
        torch.testing.assert_close(value.double(), exact, rtol=2e-6, atol=2e-6)
        got, expected = (push(z_, y).double() for z_ in (z, z.double()))
        assert (got - expected).norm() <= 1e-6 * expected.norm()

    ignored = target.flip(0)
    ignored[3] = -100
    agree(logits.flip(0) * 0.3, ignored)
    # of the same shape, but not as simple
    wide = torch.randn(12, 16, device=device)
    agree(wide[:, 1:11], target)
    agree(wide[:, :10], torch.stack((target, target), 1)[:, 0])
    agree(torch.randn(121, device=device)[1:].view(12, 10), target)
    agree(logits, target.int())
    agree(torch._neg_view(logits), target)
    # differentiated again, several gradients at a time, and a look at every value
    leaf = logits.clone().requires_grad_()
    (first,) = torch.autograd.grad(criterion(leaf, target).sum(), leaf, create_graph=True)
    exact = logits.double().requires_grad_()
    (expected,) = torch.autograd.grad(criterion(exact, target).sum(), exact, create_graph=True)
    (second,) = torch.autograd.grad((first * first.detach().cos()).sum(), leaf)
    (expected,) = torch.autograd.grad((expected * expected.detach().cos()).sum(), exact)
    torch.testing.assert_close(second.double(), expected, rtol=1e-4, atol=1e-6)
    assert torch.func.grad(lambda z: criterion(z, target).sum())(logits).shape == logits.shape
    with torch.autograd.detect_anomaly(check_nan=False), pytest.raises(ValueError, match="NaN"):
        criterion(logits.masked_fill(logits > 1, float("nan")).requires_grad_(), target)


@pytest.mark.parametrize("rows", [12, 1100])
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_values_that_nobody_differentiates(reduction: Any, normalise: Any, rows: int, device: torch.device) -> None:
    if reduction == "sum" and normalise == "batch":
        pytest.skip("refused: batch normalisation is its own divisor")
    rng = torch.Generator().manual_seed(1)
    logits = torch.randn(rows, 3, generator=rng).to(device)
    target = torch.randint(3, (rows,), generator=rng).to(device)
    target[::5] = -100
    criterion = Criterion(DM(0.5, 8), normalise=normalise, reduction=reduction)
    with torch.no_grad():
        for _ in range(2):  # the second time by what is remembered
            value, exact = criterion(logits, target).double(), criterion(logits.double(), target)
            torch.testing.assert_close(value, exact, rtol=2e-6, atol=2e-6)


def test_what_is_remembered_is_not_copied_or_saved(device: torch.device) -> None:
    criterion = Criterion(DM(0.5, 8))
    logits, target = torch.randn(6, 10, device=device), torch.arange(6, device=device)
    value = criterion(logits, target)
    for twin in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert criterion.options.repeats
        assert not twin.options.repeats
        assert torch.equal(twin(logits, target), value)


def test_settings_that_change_after_a_call(device: torch.device) -> None:
    logits, target = torch.randn(6, 10, device=device), torch.arange(6, device=device)
    weight = torch.linspace(0.5, 1.5, 10, device=device)
    criterion = Criterion(DM(0.5, 8))
    for name, value in {"ignore_index": 3, "label_smoothing": 0.1, "weight": weight, "weighting": DM(1, 2)}.items():
        criterion(logits, target)
        setattr(criterion, name, value)
        torch.testing.assert_close(criterion(logits, target).double(), criterion(logits.double(), target))


def test_a_shallow_copy_with_another_setting(device: torch.device) -> None:
    logits, target = torch.randn(6, 10, device=device), torch.arange(6, device=device)
    criterion = Criterion(DM(0.5, 8))
    twin = copy.copy(criterion)
    twin.ignore_index = 3
    for _ in range(2):
        for each in (criterion, twin):
            torch.testing.assert_close(each(logits, target).double(), each(logits.double(), target))


def test_batches_that_one_program_takes_outside_of_graphs(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    criterion = Criterion(DM(0.5, 8))
    logits, target = torch.randn(100, 100, device=device), torch.arange(100, device=device)
    value = criterion(logits, target)
    assert criterion.options.repeats[logits.shape].plan.eager
    for name in ("entire", "repeat"):
        monkeypatch.setattr(f"reweigh.ops.{name}.is_captured", lambda _: True)
    torch.testing.assert_close(criterion(logits, target), value)
    assert criterion.options.repeats[logits.shape].plan.at_once is None


def test_hooks_and_subclasses_are_not_passed_by(device: torch.device) -> None:
    class Twice(Criterion):
        def forward(self, logits: Tensor, target: Tensor, **_: Any) -> Tensor:
            return 2 * super().forward(logits, target)

    logits, target = torch.randn(6, 10, device=device), torch.arange(6, device=device)
    plain, twice = Criterion(DM(0.5, 8)), Twice(DM(0.5, 8))
    value = plain(logits, target)
    for _ in range(2):
        assert torch.equal(twice(logits, target), 2 * value)
    seen: list[Tensor] = []
    with plain.register_forward_hook(lambda *of: seen.append(of[-1])):
        for _ in range(2):
            plain(logits, target)
    plain(logits, target)
    assert len(seen) == 2


def test_in_place_once_more(device: torch.device) -> None:
    target = torch.arange(6, device=device)
    criterion, plain = Criterion(DM(0.5, 8), inplace=True), Criterion(DM(0.5, 8))
    for seed in range(3):
        leaf = torch.randn(6, 10, generator=torch.Generator().manual_seed(seed)).to(device).requires_grad_()
        z = leaf * 2
        (found,) = torch.autograd.grad(criterion(z, target), z)
        assert found.data_ptr() == z.data_ptr()
        z = leaf * 2
        assert torch.equal(found, torch.autograd.grad(plain(z, target), z)[0])
        with pytest.raises(ValueError, match="leaf"):
            criterion(leaf, target)
        with torch.no_grad():
            torch.testing.assert_close(criterion(leaf, target), plain(leaf, target))
    assert criterion.options.repeats


def test_a_mode_of_the_dispatcher_sees_the_operators(device: torch.device) -> None:
    class Seen(TorchDispatchMode):
        names: list[str]

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func.name())
            return func(*args, **(kwargs or {}))

    criterion = Criterion(DM(0.5, 8))
    logits, target = torch.randn(6, 10, device=device), torch.arange(6, device=device)
    value = criterion(logits, target)
    assert criterion.options.repeats
    with Seen() as seen:
        seen.names = []
        torch.testing.assert_close(criterion(logits, target), value)
    assert "reweigh::measure" in seen.names
