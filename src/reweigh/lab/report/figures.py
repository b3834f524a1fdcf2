"""The figures of a report: groups of runs compared over time, and details of one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reweigh.errors import DataError
from reweigh.lab.data.dataset import NOISY_HOLDOUT, TEST
from reweigh.lab.figures.curves import density_of
from reweigh.lab.figures.figure import Bars, Figure, Heat, Lines, Series, Stack, thin
from reweigh.lab.report.collect import Group
from reweigh.lab.spec import Expression, is_scheduled, own_names, parse
from reweigh.lab.train.schedules import over_steps
from reweigh.lab.weightings import weighting_from
from reweigh.weightings import Weighting

DENSITY_POINTS = 81
BINS = 10
NOISY = (
    "The noisy hold-out is part of the data, held out with its given labels: where these are wrong, a correct "
    "prediction counts as an error."
)


class _OverTime(NamedTuple):
    """A figure over time: the columns it shows, each with its words in the legend."""

    key: str
    title: str
    y_label: str
    caption: str
    columns: tuple[tuple[str, str], ...]


_FIGURES = (
    _OverTime(
        "accuracy",
        "Test accuracy",
        "accuracy",
        "The share of held-out examples whose label is predicted. Bands are one standard deviation over seeds. The "
        "highest point of a curve is selected on the test set and therefore optimistic; the last point is not.",
        (("test_accuracy", ""), ("validation_accuracy", "validation")),
    ),
    _OverTime(
        "p",
        "Mean p of the given label",
        "p",
        "The mean probability of the given labels. If the true labels are known: solid for clean labels, dashed for "
        "noisy ones. In a robust run the first rises and the second stays low.",
        (("p_clean", "clean labels"), ("p_noisy", "noisy labels")),
    ),
    _OverTime(
        "posterior",
        "Posterior of the given label",
        "posterior",
        "The mean probability that the given label is the true class, as estimated by Auto. If the true labels are "
        "known: solid for clean labels, dashed for noisy ones.",
        (("posterior_clean", "clean labels"), ("posterior_noisy", "noisy labels")),
    ),
    _OverTime(
        "noise",
        "Estimated noise rate",
        "share of labels",
        "The share of wrong labels that Auto estimates while it trains; the name of a run has the true rate.",
        (("noise_rate", ""),),
    ),
    _OverTime(
        "fitting",
        "Fitting of subsets",
        "share fitted",
        "The share of training examples whose given label is predicted, among those with clean labels (solid) and "
        "among those with noisy labels (dashed): the second is memorised noise.",
        (("fit_clean", "clean labels"), ("fit_noisy", "noisy labels")),
    ),
    _OverTime(
        "training",
        "Training accuracy",
        "accuracy",
        "On the given labels (solid) and, if they are known, on the true labels (dashed).",
        (("train_accuracy", "given labels"), ("train_accuracy_clean", "true labels")),
    ),
    _OverTime(
        "weight",
        "Weight on noisy labels",
        "share of the weight",
        "The share of the batch's derivative that comes from examples with noisy labels.",
        (("weight_noisy", ""),),
    ),
    _OverTime(
        "calibration",
        "Calibration error",
        "expected calibration error",
        "The mean difference between the confidence of predictions and their accuracy, on the test set (15 bins).",
        (("test_ece", ""),),
    ),
)


def dynamics(groups: Sequence[Group], points: int = 48) -> list[Lines]:
    """Return every figure over time that some group has values for, with at most `points` evaluations each."""
    figures = []
    everywhere = all(group.holdout == NOISY_HOLDOUT for group in groups)
    for spec in _FIGURES:
        series = []
        for i, group in enumerate(groups):
            columns = spec.columns
            if spec.key in ("p", "posterior") and not group.truth:
                columns = ((f"{spec.key}_mean", ""),)
            for variant, (column, words) in enumerate(columns):
                legend = holdout_label(column, group) or words
                # a dash has one meaning for all groups: if some have a test set, a noisy hold-out is dotted
                dashes = 2 if legend == NOISY_HOLDOUT and not everywhere else variant
                if (found := line(group, i, column, legend, dashes, points)) is not None:
                    series.append(found)
        if series:
            title, caption = spec.title, spec.caption
            if any(each.words == NOISY_HOLDOUT for each in series):
                caption = f"{caption} {NOISY}"
                title = title.replace("Test", NOISY_HOLDOUT.capitalize()) if everywhere else title
            labels = ("iteration", spec.y_label)
            figures.append(
                Lines(spec.key, title, caption, *labels, tuple(series), percent=spec.key not in ("p", "posterior"))
            )
    return figures


def holdout_label(column: str, group: Group) -> str:
    """Return the words of the legend for a column measured on labels that may be noisy; empty for other columns."""
    if column.startswith("test_") and group.holdout != TEST:
        return group.holdout
    given = group.run.fold is not None or group.run.validation_labels == "noisy"
    return "validation, given labels" if column.startswith("validation_") and given else ""


def line(group: Group, number: int | None, column: str, words: str, variant: int, points: int) -> Series | None:
    """Return a column of a group over time, or None if it was not measured."""
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
    """Return the emphasis densities of all groups trained with a weighting; a scheduled one at its start and end."""
    series: list[Series] = []
    for i, group in enumerate(groups):
        if group.run.weighting is None or own_names(group.run.weighting):  # a report executes no own code
            continue
        expression = parse(group.run.weighting)
        at = over_steps(weighting_from, expression, group.run.iterations)
        moments = ((0, "start"), (group.run.iterations - 1, "end")) if is_scheduled(expression) else ((0, ""),)
        for variant, (step, words) in enumerate(moments):
            try:
                weighting = at(step)
            except ValueError as error:
                raise DataError(f"{group.runs[0].folder}: invalid weighting: {error}") from error
            series.append(_density(f"{group.label}: {words}" if words else group.label, weighting, i, variant, words))
    return density_figure(series) if series else None


def _density(name: str, weighting: Weighting, group: int | None, variant: int = 0, words: str = "") -> Series:
    every, density = density_of(weighting)
    kept = thin(len(every), DENSITY_POINTS)
    h = tuple(density[k] if density[k] < 1e6 else None for k in kept)
    return Series(name, tuple(every[k] for k in kept), h, None, group, variant, words)


def density_of_setting(expression: Expression) -> Lines:
    """Return the emphasis density of one weighting."""
    return density_figure([_density(str(expression), weighting_from(expression), 0)])


def density_figure(series: Sequence[Series]) -> Lines:
    """Return the figure of emphasis densities."""
    caption = (
        "The weight of an example over the probability p of its label: w divided by its integral. Losses and methods "
        "that change the direction of the gradient have no such curve."
    )
    labels = ("p, the probability of the label", "emphasis density w / ∫ w dp")
    return Lines("densities", "Emphasis densities", caption, *labels, tuple(series))


def group_figures(group: Group, points: int = 32, classes: int = 100) -> list[Figure]:
    """Return every figure on the details of a group that it has values for.

    Args:
        group: runs that differ only in their seed; histograms are means over them.
        points: maximum number of evaluations to show.
        classes: maximum number of classes in figures by class; with more classes they are left out.
    """
    found = (
        weight_share(group, points),
        p_histogram(group, "p_histogram", "p of all training examples", points),
        p_histogram(group, "p_histogram_clean", "p of clean labels", points),
        p_histogram(group, "p_histogram_noisy", "p of noisy labels", points),
        p_by_class(group, min(points, 24), classes),
        noise_counts(group, classes),
        reliability(group),
        class_bars(group, classes),
        confusion(group, classes),
    )
    return [figure for figure in found if figure is not None]


def weight_share(group: Group, points: int) -> Stack | None:
    """Return the share of the weight by tenths of p over time."""
    steps, histograms = group.histogram("weight_histogram")
    if not steps:
        return None
    kept = thin(len(steps), points)
    merged = [merge(histograms[i]) for i in kept]
    return Stack(
        "weight-share",
        "Where the weight goes",
        "The share of the weight on training examples with p in each tenth of [0, 1]: dark is p near 0, hard or "
        "mislabelled examples; light is p near 1, fitted examples.",
        "iteration",
        "share of the weight",
        tuple(float(steps[i]) for i in kept),
        bin_names(),
        tuple(zip(*merged, strict=True)),
    )


def p_histogram(group: Group, column: str, title: str, points: int) -> Heat | None:
    """Return the histogram of p of the given labels over time."""
    steps, histograms = group.histogram(column)
    if not steps:
        return None
    kept = thin(len(steps), points)
    merged = list(zip(*(merge(histograms[i]) for i in kept), strict=True))
    return Heat(
        column.replace("_", "-"),
        f"{title} over time",
        "The share of examples with p in each tenth of [0, 1]. If many labels are noisy and not memorised, there are "
        "two bands: one at the top, one at the bottom.",
        "iteration",
        "p",
        tuple(reversed(bin_names())),
        tuple(f"{steps[i]:,}" for i in kept),
        tuple(reversed(merged)),
        percent=True,
    )


def p_by_class(group: Group, points: int, classes: int) -> Heat | None:
    """Return the mean p of the given labels by class over time."""
    steps, means = group.histogram("p_by_class")
    if not steps or len(means[0]) > classes:
        return None
    kept = thin(len(steps), points)
    return Heat(
        "p-by-class",
        "Mean p by class",
        "The mean p of the examples with each given label. A class with low p is hard, rare, or often assigned by "
        "mistake.",
        "iteration",
        "given label",
        class_names(group, len(means[0])),
        tuple(f"{steps[i]:,}" for i in kept),
        tuple(zip(*(means[i] for i in kept), strict=True)),
    )


def noise_counts(group: Group, classes: int) -> Heat | None:
    """Return the count matrix of the noise: true class by given label."""
    noise = group.details.get("noise") or {}
    counts = noise.get("counts")
    if not counts or len(counts) > classes:
        return None
    names = class_names(group, len(counts))
    rate = "" if not noise.get("rate") else f" (nominal: {100 * noise['rate']:.4g} %)"
    return Heat(
        "noise",
        "Noise: true class and given label",
        f"The number of training examples by true class (row) and given label (column), at seed {group.run.seed}. "
        f"Noisy labels are off the diagonal: {100 * noise['measured']:.4g} % of all{rate}.",
        "given label",
        "true class",
        names,
        names,
        tuple(tuple(float(count) for count in row) for row in counts),
    )


def reliability(group: Group) -> Lines | None:
    """Return the reliability diagram at the end of training."""
    tables = [(run.result or {}).get("reliability") for run in group.runs]
    series = [
        Series(
            f"seed {run.header.run.seed}",
            tuple(point[0] for point in points),
            tuple(point[1] for point in points),
            None,
            0,
            min(i, 2),
        )
        for i, (run, table) in enumerate(zip(group.runs, tables, strict=True))
        if table
        and (points := [(row["confidence"], row["accuracy"]) for row in table if row["confidence"] is not None])
    ]
    if not series:
        return None
    of = "test predictions" if group.holdout == TEST else f"predictions on the {group.holdout}"
    counts: dict[float, float] = {}
    for row in (row for table in tables for row in table or () if row["confidence"] is not None):
        counts[row["confidence"]] = counts.get(row["confidence"], 0) + row.get("count", 0)
    exact = Series("perfectly calibrated", (0.0, 1.0), (0.0, 1.0), None, None, 2)
    return Lines(
        "reliability",
        "Reliability at the end",
        f"The accuracy of the {of} by confidence. Below the diagonal the net is overconfident. Bars at the bottom: "
        f"how many predictions have that confidence.{_noisy(group)}",
        "confidence",
        "accuracy",
        (*series, exact),
        top=1.0,
        counts=tuple(sorted(counts.items())) if any(counts.values()) else None,
    )


def class_bars(group: Group, classes: int) -> Bars | None:
    """Return the final precision, recall and F1 on the test set by class, as means over seeds."""
    sets = []
    for name, column in (("recall", "accuracy"), ("precision", "precision"), ("F1", "f1")):
        found = [(run.result or {}).get(f"per_class_{column}") for run in group.runs]
        if tables := [table for table in found if table]:
            sets.append((name, tuple(_mean(values) for values in zip(*tables, strict=True))))
    if not sets or len(sets[0][1]) > min(classes, 50):
        return None
    return Bars(
        "class-accuracy",
        "Recall, precision and F1 by class",
        f"On the {group.holdout} set at the end, mean over seeds. Recall is the accuracy on the examples of a class; "
        f"precision is the share of its predictions that are right.{_noisy(group)}",
        "class",
        "score",
        class_names(group, len(sets[0][1])),
        tuple(sets),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def confusion(group: Group, classes: int) -> Heat | None:
    """Return the confusion matrix at the end, summed over seeds."""
    found = [table for run in group.runs if (table := (run.result or {}).get("confusion"))]
    if not found or len(found[0]) > classes:
        return None
    names = class_names(group, len(found[0]))
    over = "" if len(found) == 1 else f", summed over {len(found)} seeds"
    return Heat(
        "confusion",
        "Confusion matrix",
        f"The number of examples of the {group.holdout} set by label (row) and predicted class (column){over}. "
        f"Errors are off the diagonal.{_noisy(group)}",
        "predicted class",
        "label",
        names,
        names,
        tuple(tuple(float(sum(cells)) for cells in zip(*rows, strict=True)) for rows in zip(*found, strict=True)),
    )


def _noisy(group: Group) -> str:
    return "" if group.holdout == TEST else f" {NOISY}"


def merge(histogram: Sequence[float | None]) -> list[float]:
    """Merge the bins of a histogram to ten.

    >>> merge([0.05] * 20) == [0.1] * 10
    True
    """
    width = max(1, len(histogram) // BINS)
    return [sum(share or 0.0 for share in histogram[i : i + width]) for i in range(0, len(histogram), width)]


def bin_names() -> tuple[str, ...]:
    """Return the names of the tenths of [0, 1]."""
    return tuple(f"{i / BINS:.1f}–{(i + 1) / BINS:.1f}" for i in range(BINS))


def class_names(group: Group, count: int) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers if names are missing."""
    names = group.details.get("class_names") or []
    return tuple(map(str, names)) if len(names) == count else tuple(map(str, range(count)))
