"""Correct all labels by a model's predictions and train again (the paper's appendix)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.lab.procedures.journal import Journal, RunOne, final_and_best
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.record import read_header
from reweigh.lab.run import execute
from reweigh.lab.run.material import FRAMES, gather, truth_known
from reweigh.lab.spec import Expression, Run, parse


def label_correction(run: Run, root: Path, *, run_one: RunOne = execute) -> Path:
    """Replace all labels by the final model's predictions, and train a new model on them.

    The second run has the same settings and seed, so that only the labels differ.

    Args:
        run: the first run, with any weighting, loss or method.
        root: directory containing runs.
        run_one: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has, for `first` and `retrained`, final and best test accuracy and the share
        of wrong training labels (None where the truth is not known), and the share of labels that `changed`.
    """
    check_correctable(run)
    journal = Journal("label-correction", run, root, {}, run_one)
    if journal.is_done:
        return journal.folder
    first = journal.run("first", run, makes="labels.npy")
    file, _ = journal.array("labels.npy", lambda: training_probabilities(run, first).argmax(1))
    second = journal.run("retrained", relabelled(run, file))
    changed = float(np.mean(np.load(file) != gather(run).train.labels))
    return journal.finish({"first": _summary(first), "retrained": _summary(second), "changed": changed})


def check_correctable(run: Run) -> None:
    """Raise ValueError if new labels would also change which examples the run is trained on or what they show."""
    chosen = run.to_mapping()
    for name in ("validation", "fold", "threshold_set"):
        if name in chosen:
            raise ValueError(f"{name} is {chosen[name]}; it splits examples by label, so labels cannot be corrected")
    if run.noise is not None and parse(run.noise).name in FRAMES:
        raise ValueError(f"noise is {run.noise}, which changes the images; corrected labels cannot replace it")


def relabelled(run: Run, file: str) -> Run:
    """Return the run with labels from a file in place of its noise.

    If the run added no noise, its labels are not known to be true, so the file's are not measured against them.
    """
    noise = str(Expression("given", (file,), () if truth_known(run.noise) else (("truth", False),)))
    return replace(run, noise=noise, rate=None, include_true=False, noise_count="per_class", noise_seed=None)


def _summary(folder: Path) -> dict[str, Any]:
    noise = read_header(folder).details.get("noise")
    return final_and_best(folder) | {"wrong_labels": None if noise is None else noise["measured"]}
