"""What the loop gets at each iteration."""

from __future__ import annotations

import pytest

from reweigh.spec import Expression, authors, parse, text
from reweigh.train.schedules import learning_rate, over_steps, taper_at


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
    for protocol in (text, authors):
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
