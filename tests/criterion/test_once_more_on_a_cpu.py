"""A batch like one before, on a CPU: in C++ and in plain torch, beside the float64 reference."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from beside_float64 import OTHER, TOLERANCE, draw, needs_compiler, result
from odd_rows import ODD, spoil
from reweigh.criterion import Criterion
from reweigh.ops import cpu
from reweigh.weightings import CCE, DM, Weighting

CPU = torch.device("cpu")
SHAPE = (64, 600)
LOGITS, TARGET = draw(*SHAPE, CPU)
Call = Callable[..., tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True, params=[pytest.param("in C++", marks=needs_compiler), "in torch"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "ALLOWED", request.param == "in C++")


@pytest.fixture
def once_more(monkeypatch: pytest.MonkeyPatch) -> Call:
    """`result` of a criterion whose `forward` is not to be called."""

    def call(*arguments: Any) -> tuple[Tensor, Tensor]:
        with monkeypatch.context() as patched:
            patched.setattr(Criterion, "forward", lambda *_: pytest.fail("it was not remembered"))
            return result(*arguments)

    return call


def remembered(weighting: Weighting, **settings: Any) -> Criterion:
    """A criterion that has had a batch."""
    criterion = Criterion(weighting, **settings)
    result(criterion, LOGITS, TARGET)
    assert len(criterion.options.repeats) == 1
    return criterion


def agree(criterion: Criterion, logits: Tensor, target: Tensor, call: Call = result) -> None:
    value, gradient = call(criterion, logits, target)
    expected_value, expected = result(criterion, logits.double(), target)
    assert (gradient.double() - expected).norm() <= TOLERANCE[logits.dtype] * expected.norm()
    torch.testing.assert_close(value.double(), expected_value, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8), OTHER], ids=repr)
def test_a_batch_like_one_before(weighting: Weighting, normalise: Any, once_more: Call) -> None:
    criterion = remembered(weighting, normalise=normalise)
    agree(criterion, LOGITS.flip(0) * 0.3, TARGET.flip(0), once_more)
    value, _ = result(criterion, LOGITS, TARGET)
    with torch.no_grad():
        torch.testing.assert_close(criterion(LOGITS, TARGET), value)


@pytest.mark.parametrize("case", [*ODD, "ignored"])
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_odd_rows_among_them(case: str, normalise: Any, once_more: Call) -> None:
    criterion = remembered(DM(0.5, 8), normalise=normalise)
    logits, target = LOGITS.clone(), TARGET.clone()
    if case == "ignored":
        target[3::4] = -100
    else:
        spoil(case, logits, target)
    found = once_more(criterion, logits, target)
    for got, wanted in zip(found, result(Criterion(DM(0.5, 8), normalise=normalise), logits, target), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0, equal_nan=True)


def test_an_unknown_label_is_refused() -> None:
    criterion = remembered(DM(0.5, 8))
    with pytest.raises(ValueError, match=r"target must be in \[0, 599\]"):
        criterion(LOGITS, TARGET.where(TARGET > 5, 600))


def test_of_the_same_shape_but_not_as_simple() -> None:
    criterion = remembered(DM(0.5, 8))
    wide = torch.cat((LOGITS, LOGITS), 1)
    agree(criterion, wide[:, 1:601], TARGET)
    agree(criterion, LOGITS.t().contiguous().t(), TARGET)
    agree(criterion, LOGITS, torch.stack((TARGET, TARGET), 1)[:, 0])
    agree(criterion, LOGITS, TARGET.int())
    agree(criterion, torch._neg_view(LOGITS), TARGET)
    agree(criterion, LOGITS.bfloat16(), TARGET)
    shares = torch.nn.functional.one_hot(TARGET, SHAPE[1]).float()
    torch.testing.assert_close(criterion(LOGITS, shares), criterion(LOGITS, TARGET))


def test_factors_are_not_passed_by() -> None:
    criterion = remembered(CCE())
    s = torch.linspace(0.5, 2, SHAPE[0])
    expected = torch.nn.functional.cross_entropy(LOGITS, TARGET, reduction="none")
    torch.testing.assert_close(criterion(LOGITS, TARGET, sample_weight=s), (s * expected).sum() / s.sum())


def test_differentiated_twice_and_several_gradients() -> None:
    criterion = remembered(CCE())
    found = []
    for loss in (criterion, torch.nn.CrossEntropyLoss()):
        z = LOGITS.clone().requires_grad_()
        value = loss(z, TARGET)
        (first,) = torch.autograd.grad(value, z, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), z, retain_graph=True)
        (several,) = torch.autograd.grad(value, z, torch.tensor([1.0, -2.0]), is_grads_batched=True)
        found.append((first.detach(), second, several))
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-8)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_who_looks_on_sees_everything() -> None:
    class Seen(TorchDispatchMode):
        names: list[str]

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func.name())
            return func(*args, **(kwargs or {}))

    criterion = remembered(DM(0.5, 8))
    value, gradient = result(criterion, LOGITS, TARGET)
    with Seen() as seen:
        seen.names = []
        torch.testing.assert_close(criterion(LOGITS, TARGET), value)
    assert "aten::scatter.value" in seen.names
    torch.testing.assert_close(torch.func.grad(criterion)(LOGITS, TARGET), gradient)
    with torch.autograd.detect_anomaly(check_nan=False), pytest.raises(ValueError, match="NaN"):
        criterion(LOGITS.masked_fill(LOGITS > 1, torch.nan).requires_grad_(), TARGET)
    calls: list[Any] = []
    with criterion.register_forward_hook(lambda *of: calls.append(of[-1])):
        criterion(LOGITS, TARGET)
    assert len(calls) == 1


def test_settings_that_change_after_a_call() -> None:
    criterion = remembered(DM(0.5, 8))
    target = TARGET.clone()
    target[:9] = 7
    changes = {"ignore_index": 7, "label_smoothing": 0.1, "weight": torch.linspace(0.5, 1.5, 600), "weighting": CCE()}
    for name, value in changes.items():
        criterion(LOGITS, target)
        setattr(criterion, name, value)
        agree(criterion, LOGITS, target)


def test_what_is_remembered_is_not_copied_or_saved() -> None:
    criterion = remembered(DM(0.5, 8))
    value = criterion(LOGITS, TARGET)
    for twin in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert not twin.options.repeats
        assert torch.equal(twin(LOGITS, TARGET), value)
