"""Runs side by side: what they learn over time, one line per group of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reweigh.errors import DataError
from reweigh.lab.data.dataset import NOISY_HOLDOUT, TEST
from reweigh.lab.figures.curves import density_of
from reweigh.lab.objectives.weightings import weighting_from
from reweigh.lab.report.collect import Group
from reweigh.lab.report.figure import Lines, Series, thin
from reweigh.lab.spec import is_scheduled, parse
from reweigh.lab.train.schedules import over_steps

DENSITY_POINTS = 81
NOISY = (
    "The noisy hold-out is a part of the data that was set aside with its labels as given: where they are wrong, even "
    "a perfect net counts as wrong."
)


class _Told(NamedTuple):
    """A figure over time: the columns it shows, each with the words that the legend adds."""

    key: str
    title: str
    y_label: str
    caption: str
    columns: tuple[tuple[str, str], ...]


_FIGURES = (
    _Told(
        "accuracy",
        "Test accuracy",
        "accuracy",
        "The share of held-out examples that are classified as their label says. Bands are one standard deviation over "
        "seeds. The best point of a curve was chosen by looking at the test part and flatters; the last one does not.",
        (("test_accuracy", ""), ("validation_accuracy", "validation")),
    ),
    _Told(
        "p",
        "Mean p of the given label",
        "p",
        "How probable the net finds the labels it was given. Where the truth is known: solid for labels that are "
        "right, dashed for those that are wrong. A robust run lifts the first and leaves the second down.",
        (("p_clean", "right labels"), ("p_noisy", "wrong labels")),
    ),
    _Told(
        "fitting",
        "Fitting of subsets",
        "share fitted",
        "The share of training examples whose predicted class is the given label, among those whose label is right "
        "(solid) and among those whose label is wrong (dashed): the second is memorised noise.",
        (("fit_clean", "right labels"), ("fit_noisy", "wrong labels")),
    ),
    _Told(
        "training",
        "Training accuracy",
        "accuracy",
        "On the labels as given (solid) and, where they are known, on the true ones (dashed).",
        (("train_accuracy", "given labels"), ("train_accuracy_clean", "true labels")),
    ),
    _Told(
        "weight",
        "Weight on wrong labels",
        "share of all weight",
        "How much of the whole derivative comes from examples whose label is wrong.",
        (("weight_noisy", ""),),
    ),
    _Told(
        "calibration",
        "Calibration error",
        "expected calibration error",
        "The mean distance between the confidence of a prediction and how often it is right, on the test part "
        "(15 bins).",
        (("test_ece", ""),),
    ),
)


def dynamics(groups: Sequence[Group], points: int = 48) -> list[Lines]:
    """Every figure over time for which some group has numbers, at most `points` evaluations of each."""
    figures = []
    everywhere = all(group.holdout == NOISY_HOLDOUT for group in groups)
    for told in _FIGURES:
        series = []
        for i, group in enumerate(groups):
            columns = told.columns
            if told.key == "p" and not group.truth:
                columns = (("p_mean", ""),)
            for variant, (column, words) in enumerate(columns):
                legend = measured_on(column, group) or words
                # a legend explains dashes once for all groups: where some have a test part, the others are dotted
                dashes = 2 if legend == NOISY_HOLDOUT and not everywhere else variant
                if (found := line(group, i, column, legend, dashes, points)) is not None:
                    series.append(found)
        if series:
            title, caption = told.title, told.caption
            if any(each.words == NOISY_HOLDOUT for each in series):
                caption = f"{caption} {NOISY}"
                title = title.replace("Test", NOISY_HOLDOUT.capitalize()) if everywhere else title
            labels = ("iteration", told.y_label)
            figures.append(Lines(told.key, title, caption, *labels, tuple(series), percent=told.key != "p"))
    return figures


def measured_on(column: str, group: Group) -> str:
    """What the legend says of a column that was measured on labels as wrong as the others; of another, nothing."""
    if column.startswith("test_") and group.holdout != TEST:
        return group.holdout
    given = group.run.fold is not None or group.run.validation_labels == "noisy"
    return "validation, labels as given" if column.startswith("validation_") and given else ""


def line(group: Group, number: int | None, column: str, words: str, variant: int, points: int) -> Series | None:
    """One column of a group over time, or None where it was not measured."""
    curve = group.curve(column)
    if not curve.steps:
        return None
    kept = thin(len(curve.steps), points)
    deviations = tuple(curve.deviation[i] for i in kept)
    return Series(
        name=f"{group.label}: {words}" if words else group.label,
        x=tuple(float(curve.steps[i]) for i in kept),
        y=tuple(curve.mean[i] for i in kept),
        spread=deviations if any(value is not None for value in deviations) else None,
        group=number,
        variant=variant,
        words=words,
    )


def densities(groups: Sequence[Group]) -> Lines | None:
    """The emphasis densities of all groups that are taught by a weighting; a scheduled one at its start and its end."""
    series: list[Series] = []
    for i, group in enumerate(groups):
        if group.run.weighting is None:
            continue
        expression = parse(group.run.weighting)
        at = over_steps(weighting_from, expression, group.run.iterations)
        moments = ((0, "start"), (group.run.iterations - 1, "end")) if is_scheduled(expression) else ((0, ""),)
        for variant, (step, words) in enumerate(moments):
            try:
                weighting = at(step)
            except ValueError as error:
                raise DataError(f"{group.runs[0].folder}: its weighting cannot be read: {error}") from error
            every, density = density_of(weighting)
            kept = thin(len(every), DENSITY_POINTS)
            name = f"{group.label}: {words}" if words else group.label
            p, h = tuple(every[k] for k in kept), tuple(density[k] for k in kept)
            series.append(
                Series(name, p, tuple(value if value < 1e6 else None for value in h), None, i, variant, words)
            )
    if not series:
        return None
    caption = (
        "How much an example counts, over the probability p that the net gives its label: w divided by its integral. "
        "Losses and methods that turn the direction of the gradient have no such curve."
    )
    labels = ("p, the probability of the label", "emphasis density w / ∫ w dp")
    return Lines("densities", "Emphasis densities", caption, *labels, tuple(series))
