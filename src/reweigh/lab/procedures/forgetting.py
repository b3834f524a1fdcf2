"""Forgetting (Arpit 2017, as run by MentorNet's authors): dropout slows memorising; its rate is searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reweigh.checks import number
from reweigh.lab.procedures.journal import CarryOut, Journal, accuracies
from reweigh.lab.record import read_result
from reweigh.lab.run import execute
from reweigh.lab.run.material import truth_known
from reweigh.lab.spec import Run

RATES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def forgetting(run: Run, root: Path, *, rates: Sequence[float] = RATES, carry_out: CarryOut = execute) -> Path:
    """Train once for every dropout rate, and keep the one with the best final accuracy on the validation part.

    Args:
        run: what to train; CCE is what was published. It needs a validation part, whose labels it declares clean or
            noisy, and a net whose representation can be dropped before the classifier.
        root: where run folders lie.
        rates: shares of the representation that are dropped (not kept); 0 is the run itself.
        carry_out: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has the `dropout` chosen, its run's final and best test accuracy, the
        `validation` accuracy of every rate (None where its training diverged), and whose labels those were.
    """
    if run.validation == 0:
        raise ValueError("forgetting chooses the dropout on a validation part: give the run one, as in validation=0.1")
    if run.dropout != 0:
        raise ValueError(f"dropout is {run.dropout}, but it is what forgetting searches: leave it out")
    asked: list[float] = [number(0, 1, below=True)("a rate of forgetting", rate) for rate in rates]
    if not asked or len(set(asked)) < len(asked):
        raise ValueError(f"rates are {list(rates)}; expected one or more dropout rates, none of them twice")
    journal = Journal("forgetting", run, root, {"rates": tuple(asked)}, carry_out)
    if journal.is_done:
        return journal.folder
    folders = {rate: journal.run(f"dropout {rate:g}", replace(run, dropout=rate)) for rate in asked}
    scores = {rate: _validation_accuracy(folder) for rate, folder in folders.items()}
    chosen = best(scores)
    result = {
        "dropout": chosen,
        **accuracies(folders[chosen]),
        "validation": {f"{rate:g}": score for rate, score in scores.items()},
        "validation_labels": run.validation_labels if truth_known(run.noise) else "as given, which nobody has checked",
    }
    return journal.finish(result)


def best(scores: Mapping[float, float | None]) -> float:
    """The rate with the largest score; of several, the smallest; never one without, whose training diverged.

    >>> best({0.9: 0.8, 0.5: 0.8, 0.2: 0.7, 0.1: None})
    0.5
    """
    known = {rate: score for rate, score in sorted(scores.items()) if score is not None}
    if not known:
        rates = ", ".join(f"{rate:g}" for rate in sorted(scores))
        raise ValueError(f"training diverged at every dropout rate ({rates}); try a smaller lr")
    return max(known, key=known.__getitem__)


def _validation_accuracy(folder: Path) -> float | None:
    result = read_result(folder)
    if result is None:
        raise ValueError(f"{folder}: not finished")
    return None if result.get("diverged") is not None else float(result["final"]["validation_accuracy"])
