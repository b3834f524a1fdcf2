"""Schedules at each iteration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from paper.protocols import authors, paper
from reweigh.criterion import Criterion
from reweigh.lab.spec import Expression, parse
from reweigh.lab.train.schedules import learning_rate, over_steps, taper_at, weighting_in_tensors
from reweigh.lab.weightings import WEIGHTINGS, parameters_of, weighting_from
from reweigh.weightings import Weighting

SCHEDULED = [
    *("DM(linear(0, 1), 2)", "DM(1, linear(0, 2))", "Normal(linear(0, 1), 2)", "Normal(0.3, linear(0, 2))"),
    *("Exponential(linear(0, 1))", "Beta(linear(1, 2), 2)", "Beta(2, linear(1, 2))", "IMAE(linear(1, 8))"),
    *("GCE(linear(0, 1))", "TruncatedGCE(linear(0, 1), 0.5)", "TruncatedGCE(0.7, step(0, 0.5, at=[0.3]))"),
    *("SL(linear(0, 1), 2)", "SL(1, linear(0, 2))", "Focal(linear(0, 2))", "Focal(linear(0, 2), detach=True)"),
    *("PHuber(linear(1, 2))", "AGCE(linear(0, 1), 0.6)", "AGCE(0.6, linear(0, 1))", "AUL(linear(1, 2), 3)"),
    *("AUL(2, linear(1, 2))", "AEL(linear(1, 2))", "ForwardSymmetric(linear(0, 0.4), 10)"),
    *("Tapered(DM(1, 4), linear(0, 1))", "linear(0, 1) * CCE + MAE"),
]


@pytest.mark.parametrize(
    ("data", "steps", "rates"),
    [
        ("cifar100", (0, 14_999, 15_000, 22_000), (0.1, 0.1, 0.01, 0.001)),
        ("clothing1m", (0, 10_000, 15_000), (0.01, 0.001, 0.0001)),
        ("mars", (0, 10_000, 20_000, 49_999), (0.01, 0.005, 0.0025, 0.000625)),
        ("imdb", (0, 500, 5_000, 10_000), (0.01, 0.0099627, 0.0096407, 0.0093101)),
    ],
)
def test_the_rates_of_the_paper(data: str, steps: tuple[int, ...], rates: tuple[float, ...]) -> None:
    for protocol in (paper, authors):
        run = protocol(data, weighting="CCE")
        got = [learning_rate(run.lr, parse(run.schedule), step, run.iterations) for step in steps]
        assert got == pytest.approx(rates, abs=5e-8)


def test_an_object_without_schedules_is_built_once() -> None:
    built: list[Expression] = []
    now = over_steps(lambda expression: built.append(expression) or object(), parse("DM(0.5, 8)"), 100)
    assert now(0) is now(99)
    assert len(built) == 1


def test_an_object_with_schedules_is_built_when_its_numbers_change() -> None:
    built: list[str] = []
    now = over_steps(
        lambda expression: built.append(str(expression)) or object(), parse("DM(0, linear(0, 2, until=0.5))"), 8
    )
    objects = [now(step) for step in range(8)]
    assert built == ["DM(0, 0)", "DM(0, 0.5)", "DM(0, 1)", "DM(0, 1.5)", "DM(0, 2)"]
    assert objects[4] is objects[7]
    now(0)
    assert built[-1] == "DM(0, 0)"  # a function of the step alone: a resumed run sees what an unbroken one saw


def test_taper() -> None:
    assert taper_at("auto", 3, 10) == "auto"
    assert taper_at(0.5, 3, 10) == 0.5
    assert taper_at("step(1, 0, at=[0.5])", 5, 10) == 0


def test_every_weighting_with_a_number_is_among_the_scheduled() -> None:
    with_numbers = {cls.__name__ for cls in WEIGHTINGS if parameters_of(cls)} - {"Curve"}  # whose points are fixed
    assert {parse(text).name for text in SCHEDULED} >= with_numbers


@pytest.mark.parametrize("text", SCHEDULED)
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_scheduled_numbers_in_tensors_are_never_read_on_the_host(normalise: Any, text: str) -> None:
    def gradient(weighting: Weighting, device: str) -> Tensor:
        logits = torch.linspace(-30, 30, 40, device=device).reshape(4, 10).requires_grad_()
        target = torch.tensor([0, 3, 9, 5], device=device)
        (found,) = torch.autograd.grad(Criterion(weighting, normalise=normalise)(logits, target), logits)
        return found

    on_no_device = weighting_in_tensors(parse(text), 100, torch.device("meta"))
    assert on_no_device is not None
    on_no_device[1](50)
    assert gradient(on_no_device[0], "meta").is_meta  # where there are no values, nobody can have looked at one
    here = weighting_in_tensors(parse(text), 100, torch.device("cpu"))
    assert here is not None
    by_numbers = over_steps(weighting_from, parse(text), 100)
    for step in (0, 50, 99):
        here[1](step)
        torch.testing.assert_close(gradient(here[0], "cpu"), gradient(by_numbers(step), "cpu"))
