"""Forward or backward correction with T estimated at anchor points (Patrini 2017)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reweigh.checks import number, one_of
from reweigh.lab.procedures.journal import CarryOut, Journal, accuracies, require_cce
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Expression, Run
from reweigh.losses.correction import inverse


def anchor_matrix(
    probabilities: npt.ArrayLike, percentile: float | None = 97.0, identity: float = 0.0
) -> npt.NDArray[np.float64]:
    """T[i, j] = p(given = j | x_i), x_i the example that looks most like class i.

    Args:
        probabilities: (N, C) of a net trained on the given labels, in evaluation mode.
        percentile: x_i is the example right below this percentile of column i, which keeps outliers out; None takes
            the largest, as was published for CIFAR-100.
        identity: α of T ← α I + (1 - α) T; 0 was published.

    >>> anchor_matrix([[0.8, 0.2], [0.7, 0.3], [0.1, 0.9]], percentile=None).tolist()
    [[0.8, 0.2], [0.1, 0.9]]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] == 0 or p.shape[1] < 2 or not np.isfinite(p).all() or (p < 0).any():
        raise ValueError(f"probabilities must be (N, C) with C >= 2, finite and >= 0; their shape is {p.shape}")
    number(0, 1)("identity", identity)
    rank = len(p) - 1
    if percentile is not None:
        number(0, 100, above=True)("percentile", percentile)
        # the largest value below the percentile; as a rank it also holds where many values are equal
        rank = max(0, math.ceil(percentile / 100 * (len(p) - 1) - 1e-9) - 1)
    anchors = np.argsort(p, axis=0, kind="stable")[rank]
    rows = p[anchors] / p[anchors].sum(axis=1, keepdims=True)
    found: npt.NDArray[np.float64] = identity * np.eye(p.shape[1]) + (1 - identity) * rows
    return found


def anchor_forward(
    run: Run,
    root: Path,
    *,
    correction: str = "Forward",
    percentile: float | None = 97.0,
    identity: float = 0.0,
    carry_out: CarryOut = execute,
) -> Path:
    """Train by cross entropy, read T off its predictions, and train a new net with the corrected loss.

    T is read from the model with the best accuracy on a noisy validation part, over all training examples: the run's
    own validation part where it has one, else a tenth, in the first run alone. (The publication kept the model with
    the least validation loss.)

    Args:
        run: both trainings, plain CCE.
        root: where run folders lie.
        correction: "Forward" or "Backward".
        percentile, identity: of `anchor_matrix`.
        carry_out: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of the `first` and the `corrected` run, T,
        and, where the noise is known, `error`: the mean over rows of Σ_j |T - true T|.
    """
    require_cce(run, "anchor_forward")
    if run.fold is not None:
        raise ValueError(f"fold is {run.fold}: anchor_forward holds out a validation part of its own; leave it out")
    one_of("Forward", "Backward")("correction", correction)
    anchor_matrix([[0.5, 0.5]], percentile, identity)  # refuses before anything is trained
    settings = {"correction": correction, "percentile": percentile, "identity": identity}
    journal = Journal("anchor-forward", run, root, settings, carry_out)
    if journal.is_done:
        return journal.folder
    scout = replace(run, validation=run.validation or 0.1, validation_labels="noisy")
    first = journal.run("first", scout, makes="T.npy")
    file, digest = journal.array(
        "T.npy",
        lambda: anchor_matrix(training_probabilities(scout, first, "best", held_out=True), percentile, identity),
    )
    if correction == "Backward":
        _check_invertible(file)
    matrix = Expression("file", (file,), (("hash", digest),))
    loss = Expression(correction, (), (("T", matrix),))
    second = journal.run("corrected", replace(run, weighting=None, loss=str(loss)))
    T = np.load(file)
    error = matrix_error(run, T)
    result = {"first": accuracies(first), "corrected": accuracies(second), "T": T.tolist(), "error": error}
    return journal.finish(result)


def _check_invertible(file: str) -> None:
    import torch

    inverse("the estimated matrix, Backward", torch.from_numpy(np.load(file)))


def matrix_error(run: Run, T: npt.NDArray[np.float64]) -> float | None:
    """The mean over rows of Σ_j |T - true T|, a class without examples staying itself; None where there is no truth."""
    corruption = gather(run).corruption
    if corruption is None:
        return None
    return float(np.abs(T - corruption.transition).sum(axis=1).mean())
