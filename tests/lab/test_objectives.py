"""The registry: a class in one of its lists is all that a new objective needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from reweigh.lab import objectives
from reweigh.lab.figures.curves import curve_of
from reweigh.lab.objectives import KINDS, kind_of, loss_from, rescale_objective
from reweigh.lab.report.catalogue import catalogue, sliders_of
from reweigh.lab.search.space import parse_space
from reweigh.lab.spec import Run, parse
from reweigh.lab.weightings import WEIGHTINGS, parameters_of, weighting_from
from reweigh.losses import Loss
from reweigh.weightings import Weighting


@dataclass(frozen=True)
class Mine(Weighting):
    """w = strength (1 - p)^power."""

    strength: float
    power: float = 2.0

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return torch.tensor(self.strength).log() + self.power * log_q


class MyLoss(Loss):
    """L = scale (1 - p)."""

    def __init__(self, scale: float = 2.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.scale = scale

    def rows(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.scale * (1 - logits.softmax(1).gather(1, target[:, None]).squeeze(1))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    WEIGHTINGS.append(Mine)
    objectives.LOSSES.append(MyLoss)
    yield
    WEIGHTINGS.remove(Mine)
    objectives.LOSSES.remove(MyLoss)


def run_of(**values: Any) -> Run:
    return Run(data="digits", net="linear", **values)


def test_a_weighting_needs_a_class_and_its_name_in_the_list() -> None:
    run = run_of(weighting="Mine(2)")
    assert run.identity()["weighting"] == "Mine(power=2, strength=2)"
    assert run.hash() == run_of(weighting="Mine(power=2.0, strength=2)").hash()
    assert run.folder_name() == f"digits-linear-Mine-2-2-s0-{run.hash()}"
    assert weighting_from(parse("Mine(2)"))(0.5) == pytest.approx(0.5)
    assert weighting_from(parse("Mine(2) + 0.5 * MAE"))(0.5) == pytest.approx(0.75)
    assert curve_of(weighting_from(parse("Mine(2)")), "Mine(2)").modes == (0.0,)
    assert parse_space("Mine(strength=1..2)").branches[0].objective == "Mine"
    with pytest.raises(ValueError, match="Mine has no argument 'stength'; did you mean 'strength'"):
        run_of(weighting="Mine(stength=2)").hash()
    with pytest.raises(ValueError, match="Mine needs strength"):
        weighting_from(parse("Mine(power=3)"))


def test_the_explorer_has_a_slider_for_every_number_once_there_is_a_formula() -> None:
    assert [(slider["name"], slider["start"]) for slider in sliders_of(Mine)] == [("strength", 1), ("power", 2)]
    assert "Mine" not in {entry["name"] for entry in catalogue()}


def test_a_loss_needs_a_class_and_its_name_in_the_list() -> None:
    run = run_of(loss="MyLoss(scale=2)")
    assert run.identity()["loss"] == "MyLoss"
    assert run.hash() == run_of(loss="MyLoss").hash() != run_of(loss="MyLoss(3)").hash()
    loss = loss_from(parse("MyLoss(3)"), 2, [1, 1])
    assert loss(torch.zeros(1, 2), torch.tensor([0])) == 1.5
    assert repr(loss) == "MyLoss(scale=3)"


def test_names_are_unique() -> None:
    names = [each.__name__ for classes in KINDS.values() for each in classes]
    assert len(set(names)) == len(names)
    assert all(kind_of(each.__name__) == kind for kind, classes in KINDS.items() for each in classes)


def test_what_is_on_by_default_in_a_weighting_would_be_lost() -> None:
    """`bound` leaves out the flags that are off, so that a flag added later renames no run."""
    defaults = [default for cls in WEIGHTINGS for default in parameters_of(cls).values()]
    assert True not in [default for default in defaults if isinstance(default, bool)]


def test_what_counts_epochs_in_one_method_does_in_all() -> None:
    times = {cls.__name__: set(getattr(cls, "times", ())) for cls in objectives.METHODS}
    words = set().union(*times.values())
    found = {cls.__name__: set(parameters_of(cls)) & words for cls in objectives.METHODS}
    assert found == times | {"Curriculum": {"start"}}  # a share of the examples


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D2L(start=34)", "D2L(8, 2)"),
        ("CoTeaching(0.4)", "CoTeaching(0.4, 2)"),
        ("MDDYRSH", "MDDYRSH(26, 27, 22)"),
        ("ELR(lam=1)", "ELR(lam=1)"),
        ("CoTeaching(linear(0, 0.4, until=1000))", "CoTeaching(linear(0, 0.4, until=250), 2)"),
        ("DM(0.5, step(2, 8, at=[0.5, 1000]))", "DM(0.5, step(2, 8, at=[0.5, 250]))"),
    ],
)
def test_objectives_of_shorter_runs(text: str, expected: str) -> None:
    assert str(rescale_objective(parse(text), 0.25)) == expected
