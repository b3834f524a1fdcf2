"""torch's own sample inputs of cross entropy, with the documented differences as the only exceptions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from reweigh import CCE, BinaryCriterion, Criterion

SAMPLES = list(
    next(op for op in op_db if op.name == "nn.functional.cross_entropy").sample_inputs("cpu", torch.float64, True)
)
MODULE_SAMPLES = [
    inputs
    for info in module_db
    if info.module_cls is nn.CrossEntropyLoss
    for inputs in info.module_inputs_func(info, "cpu", torch.float64, True, True)
]


def differs(target: Tensor, settings: dict[str, Any]) -> bool:
    """Whether docs/criterion.md lists a call among the differences."""
    if not target.is_floating_point():
        return bool((target == settings.get("ignore_index", -100)).all())  # nothing valid: 0 instead of NaN
    return settings.get("weight") is not None and settings.get("reduction", "mean") == "mean"


def agree(logits: Tensor, target: Tensor, settings: dict[str, Any]) -> None:
    settings = {name: value for name, value in settings.items() if name not in ("size_average", "reduce")}
    if target.is_floating_point() and settings.get("ignore_index", -100) >= 0:
        with pytest.raises(ValueError, match="ignore_index"):  # torch ignores the setting
            Criterion(CCE(), **settings)(logits, target)
        return
    values, gradients = [], []
    for loss in (Criterion(CCE(), **settings), nn.CrossEntropyLoss(**settings)):
        z = logits.detach().clone().requires_grad_()
        values.append(loss(input=z, target=target))
        gradients.append(torch.autograd.grad(values[-1].sum(), z)[0])
    if differs(target, settings):
        return
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("sample", SAMPLES, ids=map(str, range(len(SAMPLES))))
def test_operator_samples(sample: Any) -> None:
    agree(sample.input, sample.args[0], sample.kwargs)


@pytest.mark.parametrize("sample", MODULE_SAMPLES, ids=map(str, range(len(MODULE_SAMPLES))))
def test_module_samples(sample: Any) -> None:
    logits, target = sample.forward_input.args
    agree(logits, target, sample.constructor_input.kwargs)


def test_most_samples_are_compared() -> None:
    assert len(SAMPLES) > 15
    assert sum(differs(sample.args[0], sample.kwargs) for sample in SAMPLES) < len(SAMPLES) / 3
    assert MODULE_SAMPLES


def test_signature() -> None:
    weight = torch.tensor([1.0, 2.0, 0.5])
    ours, theirs = Criterion(CCE(), weight), nn.CrossEntropyLoss(weight)
    assert isinstance(ours, nn.CrossEntropyLoss)
    assert isinstance(BinaryCriterion(CCE()), nn.BCEWithLogitsLoss)
    assert (ours.reduction, ours.ignore_index, ours.label_smoothing) == ("mean", -100, 0.0)
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(ours(input=logits, target=target), theirs(input=logits, target=target))
    ours.reduction = theirs.reduction = "none"
    torch.testing.assert_close(ours(logits, target), theirs(logits, target))


def test_weights_given_after_a_first_call_take_effect() -> None:
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    weight = torch.tensor([1.0, 5.0, 0.1])
    criterion, expected = Criterion(CCE()), Criterion(CCE(), weight)(logits, target)
    criterion(logits, target)
    torch.testing.assert_close(torch.func.functional_call(criterion, {"weight": weight}, (logits, target)), expected)
    criterion.register_buffer("weight", weight)
    torch.testing.assert_close(criterion(logits, target), expected)
