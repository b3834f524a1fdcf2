"""The paper's figures: 1b (emphasis densities), 2 (learning dynamics), grid (emphasis mode x variance)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from paper.findings import Results
from paper.protocols import dm_parameters
from reweigh.lab.figures.curves import curve_of
from reweigh.lab.figures.figure import Figure, Lines, Series
from reweigh.lab.report.collect import Group, group, spread
from reweigh.lab.report.figures import dynamics, line
from reweigh.lab.spec import parse
from reweigh.lab.weightings import weighting_from
from reweigh.weightings import Weighting

NAMES = ("1b", "2", "grid")
SHOWN = ("CCE", "MAE", "MSE", "GCE(0.7)", "DM(0.5, 8)", "DM(1, 16)", "DM(2, 24)")
POINTS = 200


class Panels(NamedTuple):
    """A figure of several panels, with the number of panels in a row."""

    figures: list[Figure]
    columns: int


def paper_figure(name: str, groups: Sequence[Group] = (), rate: float | None = None) -> Panels:
    """Return a figure of the paper; all but 1b need groups of runs.

    1b      emphasis densities of CCE, MAE, MSE, GCE and DM. The paper does not print their parameters: GCE has q = 0.7,
            DM three settings of the paper's ablation.
    2       (a) mean p of clean and noisy labels and (b) test accuracy, at the noise rate `rate` (default: the most
            frequent one); (c) at each rate, the emphasis mode of the DM run with the best final accuracy.
    grid    for runs of DM(lam, beta), a column of panels for each mode and a line for each beta: accuracy on the
            training labels as given, below it on the test set, for each noise rate.

    >>> [series.name for series in paper_figure("1b").figures[0].series][:4]
    ['CCE', 'MAE', 'MSE', 'GCE(0.7)']
    """
    if name not in NAMES:
        raise ValueError(f"figure is {name!r}; the paper's figures here are {', '.join(NAMES)}")
    if name == "1b":
        return Panels([density_figure([(text, weighting_from(parse(text))) for text in SHOWN])], 1)
    if not groups:
        raise ValueError(f"figure {name} needs runs, and there are none")
    return _dynamics(groups, rate) if name == "2" else _grid(groups)


def results_figure(results: Results) -> Panels | None:
    """Return the figure of an experiment from its results; None if it has none or not enough is measured."""
    name = results.experiment.figure
    if name is None:
        return None
    if name == "1b":
        return paper_figure(name)
    findings = {entry.finding.name: entry.finding for entry in results.entries}.values()
    nets = dict.fromkeys(finding.run.net for finding in findings)
    figures, columns = list[Figure](), 1
    for net in nets:  # no panel mixes nets
        groups = group([finding.run_summary() for finding in findings if finding.run.net == net])
        try:
            panels = paper_figure(name, groups, results.experiment.figure_rate)
        except ValueError:  # this net has not the runs that the figure needs
            continue
        columns = panels.columns
        figures += [replace(each, title=f"{net}: {each.title}") if len(nets) > 1 else each for each in panels.figures]
    return Panels(figures, columns) if figures else None


def density_figure(weightings: Sequence[tuple[str, Weighting]], title: str = "Emphasis densities") -> Lines:
    """Return w / ∫ w dp of named weightings over p."""
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
    # grouped again, so that labels need not repeat the rate
    at_rate = group([run for member in groups if member.run.rate == rate for run in member.runs])
    figures = {figure.key: figure for figure in dynamics(at_rate, POINTS)}
    panels: list[Figure] = [
        replace(figures[key], title=f"({letter}) {figures[key].title}, r = {100 * rate:g} %")
        for letter, key in (("a", "p"), ("b", "accuracy"))
        if key in figures
    ]
    best = _best_modes(groups)
    if best is not None:
        panels.append(best)
    if not panels:
        raise ValueError(f"figure 2 has nothing to show of these runs at a noise rate of {rate:g}")
    return Panels(panels, len(panels))


def _best_modes(groups: Sequence[Group]) -> Lines | None:
    by_rate: dict[float, list[tuple[float, float]]] = {}
    for member in groups:
        parameters, scores = dm_parameters(member.run.weighting), member.score("final")
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
    members = [
        (parameters, member) for member in groups if (parameters := dm_parameters(member.run.weighting)) is not None
    ]
    if not members:
        raise ValueError("figure grid needs runs of DM(lam, beta) without schedules, and none of these is one")
    lams = sorted({lam for (lam, _), _ in members})
    panels: list[Figure] = []
    for rate in sorted({member.run.rate or 0.0 for _, member in members}):
        for column, name in (("train_accuracy", "training labels as given"), ("test_accuracy", "test")):
            for lam in lams:
                chosen = [
                    (beta, member) for (own, beta), member in members if own == lam and (member.run.rate or 0.0) == rate
                ]
                lines = [
                    replace(series, name=f"β = {beta:g}")
                    for beta, member in sorted(chosen, key=lambda pair: pair[0])
                    if (series := line(member, None, column, "", 0, POINTS)) is not None
                ]
                title = f"{name}, r = {100 * rate:g} %, λ = {lam:g} (mode {lam / (lam + 1):.2g})"
                key = f"grid-{column}-{rate:g}-{lam:g}"
                panels.append(Lines(key, title, title, "iteration", "accuracy", tuple(lines), percent=True, top=1.0))
    return Panels(panels, len(lams))
