"""Methods under autocast, whose cached copies of weights must be neither stale nor without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Make = Callable[..., Any]
ONES = "[[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]"


def low() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("text", ["MDYRH(warm_up=1)", "MDDYRSH(warm_up=1, soft_from=1, cooling=3)"])
def test_a_pass_without_gradients_does_not_affect_the_next(make_method: Make, text: str) -> None:
    method = make_method(text)
    method.epoch_end(0)
    step = method.context.epoch
    with low():
        loss = method.loss(method.context.batches.batch(step), step)
    loss.backward()
    assert all(parameter.grad is not None for parameter in method.net.parameters())


def without_and_within(make_method: Make, text: str, act: Callable[[Any], object]) -> list[Any]:
    """The method after it acted without autocast, and after it acted under it."""
    methods = [make_method(text), make_method(text)]
    for method, within in zip(methods, (False, True), strict=True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=within):
            act(method)
    return methods


def first_loss(method: Any) -> object:
    return method.loss(method.context.batches.batch(0), 0)


def flat(net: nn.Module) -> Tensor:
    return torch.cat([parameter.flatten() for parameter in net.parameters()])


def test_mentors_train_the_same_under_autocast(make_method: Make) -> None:
    one, other = without_and_within(make_method, "MentorNetPD(mentor='net', mentor_steps=20)", first_loss)
    assert torch.equal(flat(one.mentor), flat(other.mentor))


def test_weights_updated_within_an_iteration_are_used_in_it(make_method: Make) -> None:
    masking = make_method(f"Masking({ONES}, warm_up=0, pretrain=20, lr=0.1)")
    with low():
        masking.loss(masking.context.batches.batch(0), 0)
        structure = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0))
        masking.train_critic(structure)
        within = masking.critic(structure)
    with low():
        assert torch.equal(masking.critic(structure), within)
    learned = make_method("MetaWeightNet(meta_lr=0.1)")
    batch, losses = learned.context.batches.batch(0), torch.linspace(0, 3, 8)
    with low():
        learned.loss(batch, 0)
        within = learned.V(losses)
    with low():
        assert torch.equal(learned.V(losses), within)


def test_generators_pretrain_the_same_under_autocast(make_method: Make) -> None:
    def begin(method: Any) -> None:
        method.net.forward = lambda x: torch.ones(len(x), 4)
        method.begin()

    text = f"Masking({ONES}, warm_up=0, pretrain=20, estimate='anchor')"
    one, other = without_and_within(make_method, text, begin)
    assert torch.equal(flat(one.generator), flat(other.generator))


def test_the_first_dimension_is_measured_like_later_ones(make_method: Make) -> None:
    one, other = without_and_within(make_method, "D2L(start=0, k=5)", first_loss)
    assert one.dimensions == other.dimensions
