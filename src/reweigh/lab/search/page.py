"""The HTML page of a search, in the design of the reports; one file that loads nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from reweigh.lab.figures.figure import Lines, short, to_mapping
from reweigh.lab.report.page import assemble
from reweigh.lab.search.outcome import Outcome, TrialResult
from reweigh.lab.search.space import Range, Scalar

SCRIPTS = ("elements.js", "figure.js", "search.js")
MIN_GAP = 0.13  # of an axis, between two labels


class Axis(NamedTuple):
    """An axis of a chart: its name, the position in [0, 1] of a value, and the labelled values."""

    name: str
    place: Callable[[Scalar], float]
    ticks: tuple[Scalar, ...]


def axes(outcome: Outcome) -> list[Axis]:
    """Return an axis for every choice in which trials differ."""
    rows = [outcome.choices(trial) for trial in outcome.trials if trial.point is not None]
    names = list(dict.fromkeys(name for row in rows for name in row))
    logs = {
        key
        for branch in outcome.plan.space.branches
        for key, choice in branch.choices.items()
        if isinstance(choice, Range) and choice.log
    }
    found = []
    for name in names:
        values = list(dict.fromkeys(row[name] for row in rows if name in row))
        if len(values) > 1:
            found.append(_axis(name, values, name in logs))
    return found


def _axis(name: str, values: Sequence[Scalar], log: bool) -> Axis:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        order = list(map(str, values))
        return Axis(name, lambda value: order.index(str(value)) / (len(order) - 1), tuple(values))
    scale: Callable[[Any], float] = math.log if log and min(numbers) > 0 else float
    low, high = scale(min(numbers)), scale(max(numbers))

    def place(value: Any) -> float:
        return (scale(value) - low) / (high - low)

    few = sorted(numbers)
    ticks = few if len(few) <= 6 else [few[0], few[len(few) // 2], few[-1]]
    return Axis(name, place, tuple(_apart(ticks, place)))


def _apart(ticks: Sequence[float], place: Callable[[Any], float]) -> list[float]:
    """Return the first and last of ascending ticks, and those between whose labels do not overlap."""
    kept = [ticks[0]]
    for tick in ticks[1:-1]:
        if min(place(tick) - place(kept[-1]), 1 - place(tick)) >= MIN_GAP:
            kept.append(tick)
    return [*kept, ticks[-1]]


def page(outcome: Outcome, density: Lines | None = None) -> str:
    """Return the HTML page of an outcome.

    Args:
        outcome: the result of `search`.
        density: the emphasis density of the best setting's weighting.
    """
    low, high = _limits(outcome)
    found = axes(outcome)
    content = {
        "judged": outcome.plan.judged,
        "best": None if outcome.best is None else _best(outcome, outcome.best),
        "axes": [
            {"name": axis.name, "ticks": [[axis.place(tick), _text(tick)] for tick in axis.ticks]} for axis in found
        ],
        "map": _map_axes(found),
        "trials": [_trial(outcome, trial, found) for trial in outcome.trials],
        "low": low,
        "high": high,
        "density": None if density is None else to_mapping(density),
    }
    return assemble(f"Search: {outcome.plan.space.text}", {"search": short(content)}, SCRIPTS)


def _map_axes(found: Sequence[Axis]) -> list[int]:
    """Return the two axes of the map: lam and beta, or the first two numbers in which trials differ; else none."""
    numeric = [i for i, axis in enumerate(found) if all(isinstance(tick, int | float) for tick in axis.ticks)]
    first = [i for name in ("lam", "beta") for i in numeric if found[i].name == name]
    chosen = [*first, *(i for i in numeric if i not in first)][:2]
    return chosen if len(chosen) == 2 else []


def _trial(outcome: Outcome, trial: TrialResult, found: Sequence[Axis]) -> dict[str, Any]:
    choices = outcome.choices(trial)
    return {
        "trial": trial.slot,
        "state": trial.state,
        "score": trial.score,
        "step": trial.step,
        "run": trial.run,
        "choices": choices,
        "places": [axis.place(choices[axis.name]) if axis.name in choices else None for axis in found],
        "best": trial == outcome.best,
    }


def _limits(outcome: Outcome) -> tuple[float, float]:
    """Return the range of the colour scale.

    Scores far below the median share the lowest colour, which the legend marks with ≤, so that a few collapsed trials
    do not hide the differences between the others.
    """
    scores = sorted(trial.score for trial in outcome.trials if trial.score is not None and trial.point is not None)
    scores = scores or [0.0]
    return max(scores[0], 2 * scores[len(scores) // 2] - scores[-1]), scores[-1]


def _text(value: Scalar) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _best(outcome: Outcome, best: TrialResult) -> list[str]:
    """Return the best setting, and what was found about it."""
    setting = ", ".join(f"{key} = {value}" for key, value in outcome.setting(best).items())
    text = f"{100 * (best.score or 0):.2f} % on the validation set (trial {best.slot})."
    seeds = "1 seed" if len(outcome.finals) == 1 else f"{len(outcome.finals)} seeds"
    if outcome.accuracy is not None:
        mean, deviation = outcome.accuracy
        spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
        text += (
            f" Trained on all training data, {seeds}: {100 * mean:.2f}{spread} % ({outcome.holdout}, final checkpoint)."
        )
    elif outcome.finals:
        text += f" Trained on all training data, {seeds}; the data have no test set."
    return [setting, text]
