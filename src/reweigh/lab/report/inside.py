"""One group of runs from inside: where its weight goes, where its p lie, and what noise it was given."""

from __future__ import annotations

from collections.abc import Sequence

from reweigh.lab.data.dataset import TEST
from reweigh.lab.report.collect import Group
from reweigh.lab.report.dynamics import NOISY
from reweigh.lab.report.figure import Bars, Figure, Heat, Lines, Series, Stack, thin

BINS = 10


def inside(group: Group, points: int = 32, classes: int = 100) -> list[Figure]:
    """Every figure that this group has numbers for.

    Args:
        group: runs that differ only in their seeds; histograms are means over them.
        points: evaluations to show at most.
        classes: figures by class are left out above so many.
    """
    found = (
        weight_share(group, points),
        p_histogram(group, "p_histogram", "p of all training examples", points),
        p_histogram(group, "p_histogram_clean", "p of right labels", points),
        p_histogram(group, "p_histogram_noisy", "p of wrong labels", points),
        p_by_class(group, min(points, 24), classes),
        noise_counts(group, classes),
        reliability(group),
        class_accuracy(group, classes),
    )
    return [figure for figure in found if figure is not None]


def weight_share(group: Group, points: int) -> Stack | None:
    """The share of all weight by p-bin over time."""
    steps, histograms = group.histogram("weight_histogram")
    if not steps:
        return None
    kept = thin(len(steps), points)
    merged = [merge(histograms[i]) for i in kept]
    return Stack(
        "weight-share",
        "Where the weight goes",
        "The share of all weight that falls on training examples with p in each tenth of [0, 1], over time: dark is "
        "p near 0, hard or wrong; light is p near 1, already fitted.",
        "iteration",
        "share of all weight",
        tuple(float(steps[i]) for i in kept),
        bin_names(),
        tuple(zip(*merged, strict=True)),
    )


def p_histogram(group: Group, column: str, title: str, points: int) -> Heat | None:
    """Where p of the given label lies, over time."""
    steps, histograms = group.histogram(column)
    if not steps:
        return None
    kept = thin(len(steps), points)
    merged = list(zip(*(merge(histograms[i]) for i in kept), strict=True))
    return Heat(
        column.replace("_", "-"),
        f"{title} over time",
        "The share of examples whose p lies in each tenth of [0, 1]. Where wrong labels are many and not memorised, "
        "two bands part: one at the top, one at the bottom.",
        "iteration",
        "p",
        tuple(reversed(bin_names())),
        tuple(f"{steps[i]:,}" for i in kept),
        tuple(reversed(merged)),
        percent=True,
    )


def p_by_class(group: Group, points: int, classes: int) -> Heat | None:
    """Mean p of the given label, class by class, over time."""
    steps, means = group.histogram("p_by_class")
    if not steps or len(means[0]) > classes:
        return None
    kept = thin(len(steps), points)
    return Heat(
        "p-by-class",
        "Mean p by class",
        "The mean p of the examples that were given each label. A class that stays behind is hard, rare, or often "
        "given by mistake.",
        "iteration",
        "given label",
        class_names(group, len(means[0])),
        tuple(f"{steps[i]:,}" for i in kept),
        tuple(zip(*(means[i] for i in kept), strict=True)),
    )


def noise_counts(group: Group, classes: int) -> Heat | None:
    """The count matrix of the noise: true class by given label."""
    noise = group.details.get("noise") or {}
    counts = noise.get("counts")
    if not counts or len(counts) > classes:
        return None
    names = class_names(group, len(counts))
    rate = "" if not noise.get("rate") else f" (asked for: {100 * noise['rate']:.4g} %)"
    return Heat(
        "noise",
        "Noise: true class and given label",
        f"How many training examples of each class (row) were given each label (column), at seed {group.run.seed}. "
        f"Off the diagonal lie the wrong ones, {100 * noise['measured']:.4g} % of all{rate}.",
        "given label",
        "true class",
        names,
        names,
        tuple(tuple(float(count) for count in row) for row in counts),
    )


def reliability(group: Group) -> Lines | None:
    """How often predictions of each confidence are right, at the end."""
    tables = [(told.result or {}).get("reliability") for told in group.runs]
    series = [
        Series(
            f"seed {told.header.run.seed}",
            tuple(point[0] for point in points),
            tuple(point[1] for point in points),
            None,
            0,
            min(i, 2),
        )
        for i, (told, table) in enumerate(zip(group.runs, tables, strict=True))
        if table
        and (points := [(row["confidence"], row["accuracy"]) for row in table if row["confidence"] is not None])
    ]
    if not series:
        return None
    of = "test predictions" if group.holdout == TEST else f"predictions on the {group.holdout}"
    exact = Series("perfectly calibrated", (0.0, 1.0), (0.0, 1.0), None, None, 2)
    return Lines(
        "reliability",
        "Reliability at the end",
        f"How often the {of} of each confidence are right. Below the straight line the net is too sure.{_noisy(group)}",
        "confidence",
        "accuracy",
        (*series, exact),
        top=1.0,
    )


def class_accuracy(group: Group, classes: int) -> Bars | None:
    """Final accuracy on the test part, class by class."""
    found = [(told.result or {}).get("per_class_accuracy") for told in group.runs]
    tables: list[list[float | None]] = [table for table in found if table]
    if not tables or len(tables[0]) > min(classes, 50):
        return None
    means = []
    for column in zip(*tables, strict=True):
        there = [value for value in column if value is not None]
        means.append(sum(there) / len(there) if there else None)
    return Bars(
        "class-accuracy",
        f"{group.holdout.capitalize()} accuracy by class",
        f"At the end, mean over seeds.{_noisy(group)}",
        "class",
        "accuracy",
        class_names(group, len(means)),
        (("final", tuple(means)),),
    )


def _noisy(group: Group) -> str:
    return "" if group.holdout == TEST else f" {NOISY}"


def merge(histogram: Sequence[float | None]) -> list[float]:
    """A histogram with its bins joined to ten.

    >>> merge([0.05] * 20) == [0.1] * 10
    True
    """
    width = max(1, len(histogram) // BINS)
    return [sum(share or 0.0 for share in histogram[i : i + width]) for i in range(0, len(histogram), width)]


def bin_names() -> tuple[str, ...]:
    """The tenths of [0, 1]."""
    return tuple(f"{i / BINS:.1f}–{(i + 1) / BINS:.1f}" for i in range(BINS))


def class_names(group: Group, count: int) -> tuple[str, ...]:
    """The names of the classes, or their numbers."""
    names = group.details.get("class_names") or []
    return tuple(map(str, names)) if len(names) == count else tuple(map(str, range(count)))
