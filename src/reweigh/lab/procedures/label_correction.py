"""Label correction and retraining (the paper's appendix)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.lab.procedures.journal import CarryOut, Journal, accuracies
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.record import read_header
from reweigh.lab.run import execute
from reweigh.lab.run.material import FRAMES, gather, truth_known
from reweigh.lab.spec import Expression, Run, parse


def label_correction(run: Run, root: Path, *, carry_out: CarryOut = execute) -> Path:
    """Replace all labels by the model's predictions at the end of training; train a new one, nothing else changed.

    The second run has the first one's every setting, also its seed, so that all that differs is the labels.

    Args:
        run: the first run, taught by whatever it says.
        root: where run folders lie.
        carry_out: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has, for `first` and `retrained`, final and best test accuracy and the share
        of wrong labels it was trained on (None where the truth is not known), and the share of labels that `changed`.
    """
    check_correctable(run)
    journal = Journal("label-correction", run, root, {}, carry_out)
    if journal.is_done:
        return journal.folder
    first = journal.run("first", run, makes="labels.npy")
    file, _ = journal.array("labels.npy", lambda: training_probabilities(run, first).argmax(1))
    again = relabelled(run, file)
    second = journal.run("retrained", again)
    changed = float(np.mean(np.load(file) != gather(run).train.labels))
    return journal.finish({"first": _summary(first), "retrained": _summary(second), "changed": changed})


def check_correctable(run: Run) -> None:
    """Refuse a run of which other labels would change more than the labels."""
    chosen = run.to_mapping()
    for name in ("validation", "fold", "threshold_set"):
        if name in chosen:
            raise ValueError(
                f"{name} is {chosen[name]}: correction goes without, as examples are set apart by label, and new "
                "labels would mix the parts"
            )
    if run.noise is not None and parse(run.noise).name in FRAMES:
        raise ValueError(f"noise is {run.noise}, which is in the pictures: given labels would leave it out")


def relabelled(run: Run, file: str) -> Run:
    """The run with labels from a file in place of its noise.

    Where the run added no noise, its labels are not the truth, and those of the file are no noise on them.
    """
    noise = str(Expression("given", (file,), () if truth_known(run.noise) else (("truth", False),)))
    return replace(run, noise=noise, rate=None, include_true=False, noise_count="per_class", noise_seed=None)


def _summary(folder: Path) -> dict[str, Any]:
    noise = read_header(folder).details.get("noise")
    return accuracies(folder) | {"wrong_labels": None if noise is None else noise["measured"]}
