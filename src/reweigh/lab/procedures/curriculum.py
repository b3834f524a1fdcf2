"""Curriculum learning (Bengio 2009), with the difficulty estimated by a first run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.methods.curriculum import fraction_at
from reweigh.lab.procedures.journal import Journal, RunOne, final_and_best, require_cce
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Expression, Run
from reweigh.lab.spec.expression import Value


def curriculum(
    run: Run,
    root: Path,
    *,
    start: float = 0.3,
    until: float = 0.5,
    end: float = 1.0,
    pacing: str = "linear",
    run_one: RunOne = execute,
) -> Path:
    """Train once, take the final cross entropy as difficulty, and train a new net on easy examples first.

    Args:
        run: the settings of both runs, plain CCE; only the order of the examples differs in the second.
        root: directory containing runs.
        start, until, end, pacing: fraction of each class in use over time, as in the method `Curriculum`.
        run_one: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of the `first` and the `paced` run.
    """
    require_cce(run, "curriculum")
    fraction_at(start, until, end, pacing)  # raises before anything is trained
    if run.sampler != "shuffled":
        raise ValueError(f"sampler must be 'shuffled', not {run.sampler!r}; the curriculum orders the examples")
    settings: dict[str, Value] = {"start": start, "until": until, "end": end, "pacing": pacing}
    journal = Journal("curriculum", run, root, settings, run_one)
    if journal.is_done:
        return journal.folder
    first = journal.run("first", run, makes="difficulty.npy")
    file, digest = journal.array("difficulty.npy", lambda: difficulty(run, first))
    method = Expression("Curriculum", (), (("file", file), ("hash", digest), *settings.items()))
    paced = journal.run("paced", replace(run, weighting=None, method=str(method)))
    return journal.finish({"first": final_and_best(first), "paced": final_and_best(paced)})


def difficulty(run: Run, folder: Path) -> NDArray[np.float64]:
    """Return (N,) cross entropies of the given labels under the run's final model."""
    p = training_probabilities(run, folder)
    own = p[np.arange(len(p)), gather(run).train.labels]
    losses: NDArray[np.float64] = -np.log(np.maximum(own, np.finfo(np.float64).tiny))
    return losses
