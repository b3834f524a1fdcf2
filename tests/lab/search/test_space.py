"""The grammar of spaces, their order, and invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.search.space import Range, SpaceError, parse_space
from reweigh.lab.spec import Run

PAPER = (
    "DM(lam=0, beta={0.5,1,2,4}) | DM(lam=0.5, beta={4,8,12,16}) | "
    "DM(lam=1, beta={8,12,16,20}) | DM(lam=2, beta={12,16,20,24})"
)


def test_a_space_with_ranges() -> None:
    space = parse_space("DM(lam=0..2, beta=0.5..24, taper=1e-7..1:log), lr=0.01..0.3:log, batch_size=32..256:log")
    (branch,) = space.branches
    assert branch.objective == "DM"
    assert branch.choices == {
        "lam": Range(0, 2),
        "beta": Range(0.5, 24),
        "taper": Range(1e-7, 1, log=True),
        "lr": Range(0.01, 0.3, log=True),
        "batch_size": Range(32, 256, log=True, is_integer=True),
    }
    assert not space.is_grid
    point = {"lam": 0.5, "beta": 8, "taper": 1e-6, "lr": 0.1, "batch_size": 64}
    run = Run(data="digits", net="mlp", **space.settle(point))
    assert (run.weighting, run.taper, run.lr, run.batch_size) == ("DM(lam=0.5, beta=8)", 1e-6, 0.1, 64)


def test_the_papers_ablation_is_sixteen_points_in_order() -> None:
    space = parse_space(PAPER)
    settled = [space.settle(point)["weighting"] for point in space.points()]
    assert len(settled) == 16
    assert settled[:2] == ["DM(lam=0, beta=0.5)", "DM(lam=0, beta=1)"]
    assert settled[-1] == "DM(lam=2, beta=24)"


def test_the_last_key_varies_fastest() -> None:
    space = parse_space("GCE(q={0.5, 0.7}), seed={0, 1}")
    assert [tuple(space.settle(point).values()) for point in space.points()] == [
        ("GCE(q=0.5)", 0),
        ("GCE(q=0.5)", 1),
        ("GCE(q=0.7)", 0),
        ("GCE(q=0.7)", 1),
    ]


def test_positions_words_schedules_losses_and_methods() -> None:
    assert parse_space("DM(0.5, {8, linear(2, 16)})").branches[0].arguments["beta"] == (8, "linear(2, 16)")
    space = parse_space("net={mlp-32, mlp-64}, decay_exempt={true, false}")
    assert space.branches[0].fields == {"net": ("mlp-32", "mlp-64"), "decay_exempt": (True, False)}
    assert "loss" in parse_space("BootstrapHard(beta=0.5..0.9)").branches[0].settle({"beta": 0.7})
    assert "method" in parse_space("CoTeaching(forget_rate=0.1..0.5)").branches[0].settle({"forget_rate": 0.2})


def test_corners_reach_both_ends_of_every_range() -> None:
    corners = list(parse_space("DM(lam=0..2, beta=0.5..24)").corners())
    assert corners == [{"weighting": "DM(lam=0, beta=0.5)"}, {"weighting": "DM(lam=2, beta=24)"}]


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("", "empty"),
        ("DM(lam=2..0)", "has its limits swapped; write 0..2"),
        ("DM(lam=2..2)", "single number"),
        ("DM(lmb=0..1)", "did you mean 'lam'"),
        ("DMM(lam=0..1)", "did you mean 'DM'"),
        ("lrr=0..1", "did you mean 'lr'"),
        ("lr=0..1:log", "needs a low end above 0"),
        ("lr=0..1:lin", ":log or :int, not :lin"),
        ("lr=1..", "is not a range"),
        ("batch_size=1.5..3", "integers as its ends"),
        ("DM(lam=0..2", "unclosed"),
        ("DM(lam=0..2))", "unmatched"),
        ("DM(lam={1, 1})", "twice"),
        ("DM(lam={}, beta=8)", "lam={} has no value"),
        ("DM(lam={1, 2)", "unclosed|ends with"),
        ("DM(lam=0..1, lam=2)", "twice"),
        ("DM(lam=0..1),, lr=0.1", "empty part"),
        ("DM(lam=0..1), GCE(q=0..1)", "separate alternatives"),
        ("DM(0..1, 1..2, 3)", "write key=3"),
        ("CCE", "no choices"),
        ("lr={0.1}, 3", "neither"),
    ],
)
def test_invalid_spaces_are_refused(text: str, about: str) -> None:
    with pytest.raises(SpaceError, match=about):
        parse_space(text)


def test_a_grid_has_its_limits() -> None:
    many = "{" + ",".join(map(str, range(101))) + "}"
    with pytest.raises(SpaceError, match="10201 points"):
        parse_space(f"seed={many}, batch_size={many}")


@given(st.floats(1e-6, 1e6), st.floats(1.001, 1e3))
def test_sampled_numbers_are_rounded_within_the_range(low: float, factor: float) -> None:
    drawn = Range(low, low * factor)
    for raw in (drawn.low, drawn.high, (drawn.low + drawn.high) / 2):
        value = drawn.value(raw)
        assert drawn.low <= value <= drawn.high
        assert value == pytest.approx(raw, rel=1e-3)
