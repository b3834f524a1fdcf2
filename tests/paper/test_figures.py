"""The paper's figures, from groups of runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paper.figures import paper_figure
from paper.findings import Finding
from reweigh import DM
from reweigh.emphasis import unit_weighting
from reweigh.lab.figures import Lines
from reweigh.lab.report import Group, group
from reweigh.lab.spec import Run

COLUMNS: dict[str, list[float | None]] = {
    "step": [100, 200],
    "test_accuracy": [0.5, 0.7],
    "train_accuracy": [0.3, 0.5],
    "p_mean": [0.2, 0.4],
}


@pytest.fixture
def groups(measured: Callable[..., Finding]) -> list[Group]:
    def finding(weighting: str, rate: float | None = 0.4, final: float = 0.7) -> Finding:
        noise = None if rate is None else "symmetric"
        return measured(
            Run(data="digits", net="mlp", weighting=weighting, noise=noise, rate=rate), COLUMNS, final=final
        )

    best = {0.2: 0.5, 0.4: 1}
    found = [
        finding(f"DM({lam}, {beta})", rate, 0.9 if lam == best[rate] else 0.8)
        for rate in best
        for lam in (0.5, 1)
        for beta in (4, 8)
    ]
    return group([each.run_summary() for each in (*found, finding("CCE"), finding("CCE", None))])


def test_figure_1b_shows_the_densities_of_the_library() -> None:
    (figure,) = paper_figure("1b").figures
    assert isinstance(figure, Lines)
    shown = {series.name: series for series in figure.series}
    middle = shown["DM(0.5, 8)"].x.index(0.5)
    assert shown["DM(0.5, 8)"].y[middle] == pytest.approx(unit_weighting(DM(0.5, 8))(0.5))


def test_figure_2_has_dynamics_at_one_rate_and_the_best_modes(groups: list[Group]) -> None:
    a, b, c = (figure for figure in paper_figure("2", groups).figures if isinstance(figure, Lines))
    assert a.title == "(a) Mean p of the given label, r = 40 %"
    assert {series.name for series in b.series} == {"CCE", "DM(0.5, 4)", "DM(0.5, 8)", "DM(1, 4)", "DM(1, 8)"}
    assert c.series[0].x == (0.2, 0.4)
    assert c.series[0].y == pytest.approx((1 / 3, 1 / 2))


def test_figure_2_at_a_given_rate(groups: list[Group]) -> None:
    a, b, _ = (figure for figure in paper_figure("2", groups, 0.2).figures if isinstance(figure, Lines))
    assert a.title == "(a) Mean p of the given label, r = 20 %"
    assert {series.name for series in b.series} == {"DM(0.5, 4)", "DM(0.5, 8)", "DM(1, 4)", "DM(1, 8)"}
    assert [figure.key for figure in paper_figure("2", groups, 0.3).figures] == ["modes"]
    with pytest.raises(ValueError, match=r"nothing to show of these runs at a noise rate of 0\.2"):
        paper_figure("2", [member for member in groups if member.run.rate == 0.4], 0.2)


def test_the_grid_has_a_column_for_each_mode_and_a_line_for_each_beta(groups: list[Group]) -> None:
    figures, columns = paper_figure("grid", groups)
    assert (columns, len(figures)) == (2, 8)
    assert all(isinstance(figure, Lines) for figure in figures)
    assert {tuple(series.name for series in figure.series) for figure in figures if isinstance(figure, Lines)} == {
        ("β = 4", "β = 8")
    }


def test_impossible_figures_are_refused(groups: list[Group]) -> None:
    with pytest.raises(ValueError, match="figure is '7'; the paper's figures here are 1b, 2, grid"):
        paper_figure("7")
    with pytest.raises(ValueError, match="needs runs, and there are none"):
        paper_figure("2")
    losses = [member for member in groups if member.run.weighting == "CCE"]
    with pytest.raises(ValueError, match="none of these is one"):
        paper_figure("grid", losses)
