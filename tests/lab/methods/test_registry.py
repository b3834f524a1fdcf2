"""A method needs a class, and its name in the list of `reweigh.lab.objectives`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from reweigh.lab import objectives
from reweigh.lab.batches import Batch
from reweigh.lab.methods import Context
from reweigh.lab.methods.base import BaseMethod, row_losses
from reweigh.lab.objectives import method_from, rescale_objective
from reweigh.lab.search.space import parse_space
from reweigh.lab.spec import Run, parse


class HalfSpeed(BaseMethod):
    """L = factor CE after `warm_up` epochs of CE."""

    times: ClassVar[dict[str, int]] = {"warm_up": 0}

    def __init__(self, context: Context, factor: float = 0.5, warm_up: int = 4) -> None:
        super().__init__(context)
        self.factor, self.warm_up = factor, warm_up

    def loss(self, batch: Batch, step: int) -> Tensor:
        warming = step // self.context.epoch < self.warm_up
        return (1.0 if warming else self.factor) * row_losses(self.net(batch.inputs), batch.target).mean()


def test_adding_a_method(
    make_context: Callable[..., Context], train: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="no method is named 'HalfSpeed'"):
        method_from(parse("HalfSpeed"), make_context())
    monkeypatch.setattr(objectives, "METHODS", [*objectives.METHODS, HalfSpeed])
    monkeypatch.setitem(objectives.KINDS, "method", objectives.METHODS)
    values: dict[str, Any] = {"data": "digits", "net": "linear"}
    run = Run(**values, method="HalfSpeed(0.5, warm_up=2)")
    assert run.identity()["method"] == "HalfSpeed(warm_up=2)"
    assert run.hash() == Run(**values, method="HalfSpeed(warm_up=2)").hash() != Run(**values, method="HalfSpeed").hash()
    assert str(rescale_objective(parse("HalfSpeed"), 0.25)) == "HalfSpeed(warm_up=1)"
    assert parse_space("HalfSpeed(factor=0.1..1)").branches[0].objective == "HalfSpeed"
    context = make_context()
    method = method_from(parse("HalfSpeed(warm_up=0)"), context)
    train(method, torch.optim.SGD(method.trainable.parameters(), lr=0.1), context, 0, 3)
