"""What choices were made by: the score of every trial, as tables."""

from __future__ import annotations

from typing import NamedTuple

from paper.finding import Store
from paper.plan import SCORE, decide
from paper.render import Grid
from paper.values import Choice, Experiment


class Judged(NamedTuple):
    """One choice: the accuracy on the held-out part at the end of the trial of every option, and what it decided.

    Attributes:
        place: the cell it was made for: its row, and its column where the experiment has several.
        what: the name of what was chosen, such as "lr".
        scores: by option; None where a trial is missing or its score is not a number.
        chosen: such as "lr 0.1"; None while a trial is missing or where they had not the same data.
    """

    place: str
    what: str
    scores: dict[str, float | None]
    chosen: str | None


def judged(experiment: Experiment, store: Store) -> list[Judged]:
    """All choices of which a trial is there, in the order of their cells."""
    found = []
    several = len(experiment.columns) > 1
    for cell in experiment.cells:
        if not isinstance(cell.what, Choice):
            continue
        trials = {option.label: store.get(option.trial.folder_name()) for option in cell.what.options}
        if any(trials.values()):
            scores = {label: None if trial is None else trial.metrics.get(SCORE) for label, trial in trials.items()}
            made = decide(cell.what, store)
            place = f"{cell.row}, {cell.column}" if several else cell.row
            found.append(Judged(place, cell.what.what, scores, None if made is None else made[0]))
    return found


def grids(choices: list[Judged]) -> list[Grid]:
    """One table for all choices among the same options, a choice a row.

    >>> grids([Judged("CCE, own lr", "lr", {"0.1": 0.8512, "1": None}, "lr 0.1")])[0].rows
    [('CCE, own lr', '85.1', '-', 'lr 0.1')]
    """
    alike: dict[tuple[str, ...], list[Judged]] = {}
    for choice in choices:
        alike.setdefault((choice.what, *choice.scores), []).append(choice)
    found = []
    for (what, *labels), group in alike.items():
        rows = [
            (
                choice.place,
                *("-" if score is None else f"{100 * score:.1f}" for score in choice.scores.values()),
                choice.chosen or "-",
            )
            for choice in group
        ]
        title = f"Trials of {what}: accuracy on the held-out part at their end"
        found.append(Grid(title, ("", *labels, "chosen"), rows))
    return found
