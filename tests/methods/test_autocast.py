"""In bfloat16: autocast keeps copies of weights, which must be neither stale nor without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Make = Callable[..., Any]
ONES = "[[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]"


def low() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("text", ["MDYRH(warm_up=1)", "MDDYRSH(warm_up=1, soft_from=1, cooling=3)"])
def test_a_pass_without_gradients_leaves_the_next_one_its_own(make_method: Make, text: str) -> None:
    method = make_method(text)
    method.epoch_end(0)
    step = method.context.epoch
    with low():
        loss = method.loss(method.context.batches.batch(step), step)
    loss.backward()
    assert all(parameter.grad is not None for parameter in method.net.parameters())


def test_mentors_are_trained_as_without_it(make_method: Make) -> None:
    mentors = []
    for within in (False, True):
        method = make_method("MentorNetPD(mentor='net', mentor_steps=20)")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=within):
            method.loss(method.context.batches.batch(0), 0)
        mentors.append(torch.cat([parameter.flatten() for parameter in method.mentor.parameters()]))
    assert torch.equal(*mentors)


def test_weights_that_were_taught_within_an_iteration_are_used_in_it(make_method: Make) -> None:
    masking = make_method(f"Masking({ONES}, warm_up=0, pretrain=20, lr=0.1)")
    with low():
        masking.loss(masking.context.batches.batch(0), 0)
        structure = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0))
        masking.criticise(structure)
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


def test_a_generator_is_pretrained_as_without_it(make_method: Make) -> None:
    found = []
    for within in (False, True):
        method = make_method(f"Masking({ONES}, warm_up=0, pretrain=20, estimate='anchor')")
        method.net.forward = lambda x: torch.ones(len(x), 4)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=within):
            method.begin()
        found.append(torch.cat([parameter.flatten() for parameter in method.generator.parameters()]))
    assert torch.equal(*found)


def test_the_dimension_before_training_is_taken_as_all_later_ones(make_method: Make) -> None:
    found = []
    for within in (False, True):
        method = make_method("D2L(start=0, k=5)")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=within):
            method.loss(method.context.batches.batch(0), 0)
        found.append(method.dimensions)
    assert found[0] == found[1]
