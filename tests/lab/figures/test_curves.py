from __future__ import annotations

import math

import pytest

from reweigh.lab.figures.curves import curve_of, density_of, height_of
from reweigh.weightings import CCE, DM, GCE, MAE, Beta, Tapered, Uniform


@pytest.mark.parametrize("weighting", [CCE(), MAE(), GCE(0.7), DM(0.5, 12), DM(2, -3), Uniform()], ids=repr)
def test_a_curve_is_a_density_with_its_mode_on_top(weighting) -> None:
    curve = curve_of(weighting)
    assert density_of(weighting) == (curve.p, curve.h)
    inner = sum(a + b for a, b in zip(curve.h, curve.h[1:], strict=False)) / 2 / (len(curve.h) - 1)
    assert inner == pytest.approx(1, abs=2e-3)
    for mode in curve.modes:
        assert curve.at(mode) == pytest.approx(max(curve.h), rel=1e-3)
    assert curve.label == repr(weighting)


def test_numbers_do_not_depend_on_the_scale() -> None:
    one, three = curve_of(GCE(0.7)), curve_of(3.0 * GCE(0.7))
    assert three.h == pytest.approx(one.h)
    assert three.density_variance == pytest.approx(one.density_variance)
    assert three.variance == pytest.approx(9 * one.variance)


def test_the_objective_is_that_of_training() -> None:
    assert curve_of(CCE()).taper == 0
    assert curve_of(DM(0.5, 8)).taper == 5e-7
    assert curve_of(Tapered(DM(0.5, 8), 1e-3)).taper == 0  # it has its own
    assert curve_of(DM(0.5, 8), taper=0).objective[0] == -math.inf
    assert curve_of(GCE(0.5)).objective == pytest.approx((0, 2))


def test_a_function_has_a_curve() -> None:
    assert curve_of(lambda p: 1 - p).integral == pytest.approx(0.5)


def test_an_infinite_integral_is_drawn_as_it_is() -> None:
    curve = curve_of(Beta(0, 2))
    assert curve.integral == math.inf
    assert curve.hard is None
    assert curve.h[200] == pytest.approx(Beta(0, 2)(0.5))


def test_one_spike_does_not_hide_the_others() -> None:
    flat, spike = curve_of(CCE()), curve_of(DM(0, 1000))
    assert height_of([flat]) == 2
    assert height_of([spike]) == pytest.approx(1000, rel=1e-3)
    assert height_of([flat, flat, spike]) == 10
