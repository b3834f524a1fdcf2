"""Forgetting (Arpit 2017, as run by MentorNet's authors): search for the dropout rate that slows memorisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reweigh.checks import number
from reweigh.lab.procedures.journal import Journal, RunOne, final_and_best
from reweigh.lab.record import read_result
from reweigh.lab.run import execute
from reweigh.lab.run.material import truth_known
from reweigh.lab.spec import Run

RATES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def forgetting(run: Run, root: Path, *, rates: Sequence[float] = RATES, run_one: RunOne = execute) -> Path:
    """Train once per dropout rate, and choose the rate with the best final accuracy on the validation part.

    Args:
        run: the settings of all runs; CCE was published. It needs a validation part, with clean or noisy labels, and
            a net that supports dropout before the classifier.
        root: directory containing runs.
        rates: dropout rates (fractions dropped, not kept); 0 is the run itself.
        run_one: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has the chosen `dropout`, its run's final and best test accuracy, the
        `validation` accuracy of each rate (None if training diverged), and the kind of validation labels.
    """
    if run.validation == 0:
        raise ValueError("forgetting chooses the dropout rate on a validation part; set one, such as validation=0.1")
    if run.dropout != 0:
        raise ValueError(f"dropout is {run.dropout}, but forgetting searches for it; leave it unset")
    rates_to_try: list[float] = [number(0, 1, below=True)("a dropout rate of forgetting", rate) for rate in rates]
    if not rates_to_try or len(set(rates_to_try)) < len(rates_to_try):
        raise ValueError(f"rates are {list(rates)}; expected one or more different dropout rates")
    journal = Journal("forgetting", run, root, {"rates": tuple(rates_to_try)}, run_one)
    if journal.is_done:
        return journal.folder
    folders = {rate: journal.run(f"dropout {rate:g}", replace(run, dropout=rate)) for rate in rates_to_try}
    scores = {rate: _validation_accuracy(folder) for rate, folder in folders.items()}
    chosen = best(scores)
    result = {
        "dropout": chosen,
        **final_and_best(folders[chosen]),
        "validation": {f"{rate:g}": score for rate, score in scores.items()},
        "validation_labels": run.validation_labels if truth_known(run.noise) else "unverified",
    }
    return journal.finish(result)


def best(scores: Mapping[float, float | None]) -> float:
    """Return the smallest rate with the largest score; rates without a score, whose training diverged, are skipped.

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
