"""A run and the same on corrected labels, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reweigh.lab.procedures.journal import CarryOut, Journal, accuracies
from reweigh.lab.record import read_header, read_result
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
from reweigh.lab.suspects.correction import Correction


def retrain(run: Run, root: Path, correction: Correction, *, carry_out: CarryOut = execute) -> Path:
    """Train as before on the given and on the corrected labels; a run that is there already is not repeated.

    The second run has the first one's every setting, also its seed, so that all that differs is the labels and what
    was dropped.

    Args:
        run: as it was on the given labels.
        root: where run folders lie.
        correction: of its training part.
        carry_out: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has, for `before` and `after`, final and best accuracy, on which hold-out,
        how many examples were trained on, and the share of wrong labels among them (None where the truth is not
        known).
    """
    settings = {"labels": correction.labels, "kept": correction.kept}
    journal = Journal("correction", run, root, settings, carry_out)
    if journal.is_done:
        return journal.folder
    before = journal.run("before", run)
    after = journal.run("after", correction.corrected(run))
    return journal.finish({"before": _summary(before), "after": _summary(after)})


def _summary(folder: Path) -> dict[str, Any]:
    header = read_header(folder)
    noise = header.details.get("noise")
    return {
        **accuracies(folder),
        "holdout": (read_result(folder) or {}).get("holdout"),
        "examples": header.examples,
        "wrong_labels": None if noise is None else noise["measured"],
    }
