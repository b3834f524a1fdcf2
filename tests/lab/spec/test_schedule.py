"""Schedules: values of the paper's solvers, end points and errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.spec import at_step, factor_at, is_scheduled, parse, value_at
from reweigh.lab.spec.schedule import check_parameters, check_rate, check_schedule


def lr(base: float, schedule: str, step: int, total: int) -> float:
    return base * factor_at(parse(schedule), step, total)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.01), (500, 0.0099627), (5_000, 0.0096407), (10_000, 0.0093101)])
def test_inv_of_the_imdb_solver(step: int, expected: float) -> None:
    assert lr(0.01, "inv(gamma=1e-5, power=0.75)", step, 10_000) == pytest.approx(expected, abs=5e-8)


def test_inv_of_the_solver_it_was_taken_from() -> None:
    assert lr(0.01, "inv(1e-4, 0.75)", 10_000, 10_000) == pytest.approx(0.0059460, abs=5e-8)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.1), (14_999, 0.1), (15_000, 0.01), (21_999, 0.01), (22_000, 0.001), (29_999, 0.001)],
)
def test_steps_of_cifar100(step: int, expected: float) -> None:
    assert lr(0.1, "step(0.1, at=[15000, 22000])", step, 30_000) == pytest.approx(expected)


def test_steps_as_fractions() -> None:
    text, iterations = "step(0.1, at=[0.5, 0.75])", "step(0.1, at=[50, 75])"
    assert [lr(1, text, t, 100) for t in range(100)] == [lr(1, iterations, t, 100) for t in range(100)]


@pytest.mark.parametrize("step", [0, 9_999, 10_000, 19_999, 20_000, 49_999])
def test_halving_of_mars(step: int) -> None:
    assert lr(0.01, "halving(every=10000)", step, 50_000) == 0.01 * 2.0 ** -(step // 10_000)


def test_cosine_and_constant_rates() -> None:
    assert lr(1, "cosine", 0, 100) == 1
    assert lr(1, "cosine", 50, 100) == pytest.approx(0.5)
    assert lr(1, "cosine", 99, 100) == pytest.approx(0.000247, abs=1e-6)
    assert lr(1, "cosine(end=0.1)", 100, 100) == pytest.approx(0.1)
    assert lr(0.3, "constant", 77, 100) == 0.3


@given(
    st.floats(-1e6, 1e6),
    st.floats(-1e6, 1e6),
    st.floats(0.01, 1),
    st.integers(1, 1000),
    st.sampled_from(["linear", "cosine"]),
)
def test_ramps_start_at_a_and_end_at_b(a: float, b: float, until: float, total: int, kind: str) -> None:
    ramp = parse(f"{kind}({a!r}, {b!r}, until={until!r})")
    assert value_at(ramp, 0, total) == a
    assert value_at(ramp, total, total) == b
    values = [value_at(ramp, total * i / 10, total) for i in range(11)]
    assert values == pytest.approx(sorted(values, reverse=a > b), rel=1e-12)


def test_until_in_iterations_and_fractions() -> None:
    assert value_at(parse("linear(2, 16, until=0.5)"), 25, 100) == 9
    assert value_at(parse("linear(2, 16, until=50)"), 25, 100) == 9
    assert value_at(parse("linear(2, 16)"), 50, 100) == 9
    assert value_at(parse("cosine(0, 1)"), 50, 100) == pytest.approx(0.5)


def test_step_values() -> None:
    schedule = parse("step(2, 8, 16, at=[0.5, 0.75])")
    assert [value_at(schedule, t, 100) for t in (0, 49, 50, 74, 75, 99)] == [2, 2, 8, 8, 16, 16]
    assert value_at(parse("constant(3)"), 9, 10) == 3
    assert value_at(0.5, 9, 10) == 0.5


def test_at_step_replaces_all_schedules() -> None:
    expression = parse("Tapered(DM(lam=0.5, beta=linear(2, 16)), step(0, 1e-3, at=[0.5])) + linear(0, 1) * MAE")
    assert is_scheduled(expression)
    assert str(at_step(expression, 50, 100)) == "Tapered(DM(lam=0.5, beta=9), 0.001) + 0.5 * MAE"
    assert str(at_step(parse("PerClass([linear(0, 2), 1])"), 5, 10)) == "PerClass([1, 1])"
    plain = parse("DM(0.5, 8)")
    assert not is_scheduled(plain)
    assert at_step(plain, 3, 10) == plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear(2, 16)", "can only replace a number"),
        ("DM(linear(2), 1)", "missing a required argument"),
        ("DM(linear(2, 3, 4), 1)", "too many positional"),
        ("DM(linear(2, 3, untl=4), 1)", "unexpected keyword"),
        ("DM(linear(2, 3, until=0), 1)", "more than 0"),
        ("DM(linear(2, True), 1)", "not a number"),
        ("DM(linear(2, [3]), 1)", "not a number"),
        ("DM(linear(2, cosine(0, 1)), 1)", "not a number"),
        ("DM(step(2, 3, at=[0.5, 0.6]), 1)", "need 3 values, not 2"),
        ("DM(step(2, 3, at=0.5), 1)", "rising order"),
        ("DM(step(2, 3, 4, at=[0.6, 0.5]), 1)", "rising order"),
        ("CCE + DM(1, constant)", "missing a required argument"),
    ],
)
def test_wrong_parameter_schedules_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_parameters(parse(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear(1, 0)", "no schedule is named 'linear'"),
        ("cosin", "did you mean 'cosine'"),
        ("step(0.1)", "missing a required"),
        ("step(0, at=[5])", "factor is 0"),
        ("inv(gamma=1e-4)", "power"),
        ("inv(gamma=-1, power=1)", "gamma is -1"),
        ("halving(every=0)", "more than 0"),
        ("cosine(end=2)", "0 to 1"),
        ("constant(1)", "too many"),
        ("step(0.1, at=['a'])", "not a number"),
    ],
)
def test_wrong_rate_schedules_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_rate(parse(text))


def test_values_out_of_range_are_refused() -> None:
    check_schedule(parse("linear(0, 1)"), low=0)
    with pytest.raises(ValueError, match="reaches -1; expected values from 0 to inf"):
        check_schedule(parse("linear(1, -1)"), low=0)


def test_unknown_kinds_are_refused_when_evaluated() -> None:
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        value_at(parse("liner(1, 2)"), 0, 1)
