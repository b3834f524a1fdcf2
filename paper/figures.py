"""Figures of the paper by name: 1b (densities), 2 (dynamics), grid (emphasis mode x variance)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from reweigh.lab.figures.curves import curve_of
from reweigh.lab.objectives.weightings import weighting_from
from reweigh.lab.report.collect import Group, group, spread
from reweigh.lab.report.dynamics import dynamics, line
from reweigh.lab.report.figure import Figure, Lines, Series
from reweigh.lab.spec import Expression, parse
from reweigh.weightings import Weighting

NAMES = ("1b", "2", "grid")
SHOWN = ("CCE", "MAE", "MSE", "GCE(0.7)", "DM(0.5, 8)", "DM(1, 16)", "DM(2, 24)")
POINTS = 200


class Panels(NamedTuple):
    """A figure of several panels, and how many of them stand in a row."""

    figures: list[Figure]
    columns: int


def paper_figure(name: str, groups: Sequence[Group] = (), rate: float | None = None) -> Panels:
    """A figure of the paper, from groups of runs where it needs them.

    1b      emphasis densities of CCE, MAE, MSE, GCE and DM; the paper does not print the parameters of its curves, so
            these are GCE's q = 0.7 and three settings of its ablation
    2       from runs: (a) mean p of right and wrong labels, (b) test accuracy, both at the noise rate `rate`, by
            default the one that most groups have; (c) at each rate the emphasis mode of the DM runs that end best
    grid    from runs of DM(lam, beta): a column of panels for each mode, a line for each beta; on top the accuracy on
            the training labels as given, below on the test part, for one noise rate after the other

    >>> [series.name for series in paper_figure("1b").figures[0].series][:4]
    ['CCE', 'MAE', 'MSE', 'GCE(0.7)']
    """
    if name not in NAMES:
        raise ValueError(f"figure is {name!r}; the paper's figures here are {', '.join(NAMES)}")
    if name == "1b":
        return Panels([density_figure([(text, weighting_from(parse(text))) for text in SHOWN])], 1)
    if not groups:
        raise ValueError(f"figure {name} is drawn from runs, and there are none")
    return _dynamics(groups, rate) if name == "2" else _grid(groups)


def density_figure(weightings: Sequence[tuple[str, Weighting]], title: str = "Emphasis densities") -> Lines:
    """w / ∫ w dp of named weightings over p."""
    curves = [curve_of(weighting, name) for name, weighting in weightings]
    series = tuple(
        Series(curve.label, curve.p, tuple(h if h < 1e6 else None for h in curve.h), variant=i // 4)
        for i, curve in enumerate(curves)
    )
    caption = "How much an example counts, over the probability of its label; the area below each curve is 1."
    labels = ("p, the probability of the label", "emphasis density w / ∫ w dp")
    return Lines("densities", title, caption, *labels, series)


def _dynamics(groups: Sequence[Group], rate: float | None) -> Panels:
    rates = Counter(member.run.rate for member in groups if member.run.rate is not None)
    if not rates:
        raise ValueError("figure 2 needs runs with a noise rate, and none of these has one")
    if rate is None:
        rate = max(rates, key=lambda each: (rates[each], each))
    # grouped anew, so that labels need not repeat the rate
    at_rate = group([told for member in groups if member.run.rate == rate for told in member.runs])
    found = {figure.key: figure for figure in dynamics(at_rate, POINTS)}
    panels: list[Figure] = []
    for letter, key in (("a", "p"), ("b", "accuracy")):
        if key in found:
            panels.append(_titled(found[key], f"({letter}) {found[key].title}, r = {100 * rate:g} %"))
    best = _best_modes(groups)
    if best is not None:
        panels.append(best)
    if not panels:
        raise ValueError(f"figure 2 has nothing to show of these runs at a noise rate of {rate:g}")
    return Panels(panels, len(panels))


def _best_modes(groups: Sequence[Group]) -> Lines | None:
    by_rate: dict[float, list[tuple[float, float]]] = {}
    for member in groups:
        parameters, scores = dm_parameters(member), member.score("final")
        if parameters is not None and parameters[1] > 0 and scores:
            lam = parameters[0]
            by_rate.setdefault(member.run.rate or 0.0, []).append((spread(scores)[0], lam / (lam + 1)))
    if len(by_rate) < 2:
        return None
    rates = sorted(by_rate)
    series = Series("DM", tuple(rates), tuple(max(by_rate[rate])[1] for rate in rates))
    caption = "The emphasis mode of the DM runs with the best final test accuracy at each noise rate."
    return Lines("modes", "(c) Best emphasis mode", caption, "noise rate", "emphasis mode", (series,), top=1.0)


def _grid(groups: Sequence[Group]) -> Panels:
    found = [(parameters, member) for member in groups if (parameters := dm_parameters(member)) is not None]
    if not found:
        raise ValueError("figure grid needs runs of DM(lam, beta) without schedules, and none of these is one")
    lams = sorted({lam for (lam, _), _ in found})
    panels: list[Figure] = []
    for rate in sorted({member.run.rate or 0.0 for _, member in found}):
        for column, what in (("train_accuracy", "training labels as given"), ("test_accuracy", "test")):
            for lam in lams:
                chosen = [
                    (beta, member) for (own, beta), member in found if own == lam and (member.run.rate or 0.0) == rate
                ]
                lines = [
                    _named(series, f"β = {beta:g}")
                    for beta, member in sorted(chosen, key=lambda pair: pair[0])
                    if (series := line(member, None, column, "", 0, POINTS)) is not None
                ]
                title = f"{what}, r = {100 * rate:g} %, λ = {lam:g} (mode {lam / (lam + 1):.2g})"
                key = f"grid-{column}-{rate:g}-{lam:g}"
                panels.append(Lines(key, title, title, "iteration", "accuracy", tuple(lines), percent=True, top=1.0))
    return Panels(panels, len(lams))


def dm_parameters(member: Group) -> tuple[float, float] | None:
    """(lam, beta) of a group that is taught by a plain DM with numbers as parameters."""
    expression = None if member.run.weighting is None else parse(member.run.weighting)
    if not isinstance(expression, Expression) or expression.name != "DM":
        return None
    values = dict(expression.bind(("lam", "beta")).kwargs)
    lam, beta = values.get("lam"), values.get("beta")
    return (float(lam), float(beta)) if isinstance(lam, int | float) and isinstance(beta, int | float) else None


def _titled(figure: Lines, title: str) -> Lines:
    return replace(figure, title=title)


def _named(series: Series, name: str) -> Series:
    return replace(series, name=name)
