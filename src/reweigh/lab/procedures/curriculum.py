"""Curriculum learning (Bengio 2009) with a difficulty from a first run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.methods.curriculum import fraction_at
from reweigh.lab.procedures.journal import CarryOut, Journal, accuracies, require_cce
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
    carry_out: CarryOut = execute,
) -> Path:
    """Train once; call an example difficult by its cross entropy at the end; train a new net on the easy ones first.

    Args:
        run: both trainings, plain CCE; the second differs in the order of its examples.
        root: where run folders lie.
        start, until, end, pacing: of the fraction of every class that is in, as in the method `Curriculum`.
        carry_out: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of the `first` and the `paced` run.
    """
    require_cce(run, "curriculum")
    fraction_at(start, until, end, pacing)  # refuses what the second run would refuse, before the first is trained
    if run.sampler != "shuffled":
        raise ValueError(f"a curriculum has an order of its own: sampler must be 'shuffled', not {run.sampler!r}")
    settings: dict[str, Value] = {"start": start, "until": until, "end": end, "pacing": pacing}
    journal = Journal("curriculum", run, root, settings, carry_out)
    if journal.is_done:
        return journal.folder
    first = journal.run("first", run, makes="difficulty.npy")
    file, digest = journal.array("difficulty.npy", lambda: difficulty(run, first))
    method = Expression("Curriculum", (), (("file", file), ("hash", digest), *settings.items()))
    paced = journal.run("paced", replace(run, weighting=None, method=str(method)))
    return journal.finish({"first": accuracies(first), "paced": accuracies(paced)})


def difficulty(run: Run, folder: Path) -> NDArray[np.float64]:
    """(N,) cross entropy of the given labels under the run's final model."""
    p = training_probabilities(run, folder)
    own = p[np.arange(len(p)), gather(run).train.labels]
    found: NDArray[np.float64] = -np.log(np.maximum(own, np.finfo(np.float64).tiny))
    return found
