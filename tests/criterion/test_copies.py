"""Copies of a criterion, tensors that replace its buffers, and what cannot be traced."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from reweigh import CCE, DM, BinaryCriterion, Criterion, LinearCriterion

LOGITS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 1, 2, 0, 1, 2])
WEIGHT = torch.tensor([1.0, 2.0, 3.0])
MAKERS: list[Callable[..., Any]] = [Criterion, BinaryCriterion, LinearCriterion]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Any]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
def test_copies_share_the_process_group(make: Callable[..., Any], copier: Callable[[Any], Any], group: Any) -> None:
    criterion = make(DM(0.5, 8), weight=WEIGHT, process_group=group)
    copied = copier(criterion)
    assert copied.process_group is group
    assert repr(copied) == repr(criterion)
    assert (copied.weight is criterion.weight) == (copier is copy.copy)
    restored = make(CCE(), weight=torch.zeros(3))
    restored.load_state_dict(criterion.state_dict())
    assert torch.equal(restored.weight, WEIGHT)


@pytest.mark.parametrize("make", MAKERS)
def test_a_process_group_is_not_pickled(make: Callable[..., Any], group: Any) -> None:
    criterion = make(DM(0.5, 8), process_group=group)
    for save in (pickle.dumps, lambda c: torch.save(c, io.BytesIO())):
        with pytest.raises(TypeError, match=r"set criterion\.process_group = None before, and assign the group after"):
            save(criterion)
    criterion.process_group = None
    assert repr(pickle.loads(pickle.dumps(criterion))) == repr(criterion)


def test_a_copy_and_its_original_have_settings_of_their_own() -> None:
    criterion = Criterion(DM(0.5, 8), normalise="unit")
    for copied in (copy.copy(criterion), copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        copied.weighting = CCE()
        torch.testing.assert_close(copied(LOGITS, TARGET), Criterion(CCE(), normalise="unit")(LOGITS, TARGET))
        assert criterion.settings.weighting != copied.settings.weighting


@pytest.mark.parametrize("make", MAKERS)
def test_settings_are_resolved_again_only_after_a_change(make: Callable[..., Any]) -> None:
    criterion = make(DM(0.5, 8), normalise="unit")  # which integrates the weighting
    first = criterion.settings
    assert criterion.settings is first
    criterion.taper = 0.1
    assert criterion.settings.taper == 0.1
    criterion.weighting = DM(0.5, 8)
    assert criterion.settings.weighting == first.weighting
    beta = torch.tensor(8.0)
    criterion.weighting = DM(0.5, beta)
    before = criterion.settings.weighting
    beta.fill_(2.0)
    assert criterion.settings.weighting.log_divisor != before.log_divisor


def gradient(criterion: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(criterion(logits, TARGET), logits)[0]


@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8)], ids=repr)
def test_a_class_weight_given_after_a_first_call_counts(weighting: Any) -> None:
    criterion, expected = Criterion(weighting), gradient(Criterion(weighting, weight=WEIGHT))
    assert not torch.allclose(gradient(criterion), expected)
    criterion.register_buffer("weight", WEIGHT)
    torch.testing.assert_close(gradient(criterion), expected)
    criterion.weight = WEIGHT.flip(0)
    gradient(criterion)

    def with_weight(logits: Tensor, target: Tensor) -> Tensor:
        value: Tensor = torch.func.functional_call(criterion, {"weight": WEIGHT}, (logits, target))
        return value

    torch.testing.assert_close(gradient(with_weight), expected)
    torch.testing.assert_close(gradient(criterion), gradient(Criterion(weighting, weight=WEIGHT.flip(0))))


class Model(nn.Module):
    """A layer that ends in its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.criterion = nn.Linear(3, 3), Criterion(DM(0.5, 8))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.criterion(self.layer(x), target)
        return value


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_traced_raises_a_sentence() -> None:
    with pytest.raises(TypeError, match=r"has no TorchScript form: use torch\.compile or torch\.export"):
        torch.jit.script(Model())
    with pytest.raises(TypeError, match=r"torch\.jit\.trace would record this batch's labels and size"):
        torch.jit.trace(Model(), (LOGITS, TARGET))
    with pytest.raises(TypeError, match=r"torch\.fx cannot trace a criterion"):
        torch.fx.symbolic_trace(Model())
    with torch.no_grad():
        exported = torch.export.export(Model(), (LOGITS, TARGET)).module()
        assert exported(LOGITS.flip(0), TARGET).isfinite()
