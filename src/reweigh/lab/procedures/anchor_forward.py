"""Train with forward or backward correction, with T estimated at anchor points (Patrini 2017)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reweigh.checks import number, one_of
from reweigh.lab.procedures.journal import Journal, RunOne, final_and_best, require_cce
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Expression, Run
from reweigh.losses.correction import inverse


def anchor_matrix(
    probabilities: npt.ArrayLike, percentile: float | None = 97.0, identity: float = 0.0
) -> npt.NDArray[np.float64]:
    """Return T[i, j] = p(given = j | x_i), where x_i is the anchor point of class i.

    Args:
        probabilities: (N, C) of a net trained on the given labels, in evaluation mode.
        percentile: x_i is the example just below this percentile of column i, to exclude outliers; None takes the
            largest, as published for CIFAR-100.
        identity: α of T ← α I + (1 - α) T; 0 was published.

    >>> anchor_matrix([[0.8, 0.2], [0.7, 0.3], [0.1, 0.9]], percentile=None).tolist()
    [[0.8, 0.2], [0.1, 0.9]]
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] == 0 or p.shape[1] < 2 or not np.isfinite(p).all() or (p < 0).any():
        raise ValueError(f"probabilities must be (N, C) with C >= 2, finite and >= 0; got shape {p.shape}")
    number(0, 1)("identity", identity)
    rank = len(p) - 1
    if percentile is not None:
        number(0, 100, above=True)("percentile", percentile)
        # the rank of the largest value below the percentile, also where many values are equal
        rank = max(0, math.ceil(percentile / 100 * (len(p) - 1) - 1e-9) - 1)
    anchors = np.argsort(p, axis=0, kind="stable")[rank]
    rows = p[anchors] / p[anchors].sum(axis=1, keepdims=True)
    T: npt.NDArray[np.float64] = identity * np.eye(p.shape[1]) + (1 - identity) * rows
    return T


def anchor_forward(
    run: Run,
    root: Path,
    *,
    correction: str = "Forward",
    percentile: float | None = 97.0,
    identity: float = 0.0,
    run_one: RunOne = execute,
) -> Path:
    """Train by cross entropy, estimate T from the predictions, and train a new net with the corrected loss.

    T is estimated on all training examples, by the model with the best accuracy on a noisy validation part: the run's
    own if it has one, else a tenth that only the first run holds out. (The publication took the model with the lowest
    validation loss.)

    Args:
        run: the settings of both runs, plain CCE.
        root: directory containing runs.
        correction: "Forward" or "Backward".
        percentile, identity: of `anchor_matrix`.
        run_one: executes a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of the `first` and the `corrected` run, T,
        and `error`, the mean over rows of Σ_j |T - true T| (None where the truth is not known).
    """
    require_cce(run, "anchor_forward")
    if run.fold is not None:
        raise ValueError(f"fold is {run.fold}; anchor_forward holds out its own validation part, so leave fold unset")
    one_of("Forward", "Backward")("correction", correction)
    anchor_matrix([[0.5, 0.5]], percentile, identity)  # raises before anything is trained
    settings = {"correction": correction, "percentile": percentile, "identity": identity}
    journal = Journal("anchor-forward", run, root, settings, run_one)
    if journal.is_done:
        return journal.folder
    first_run = replace(run, validation=run.validation or 0.1, validation_labels="noisy")
    first = journal.run("first", first_run, makes="T.npy")
    file, digest = journal.array(
        "T.npy",
        lambda: anchor_matrix(training_probabilities(first_run, first, "best", held_out=True), percentile, identity),
    )
    if correction == "Backward":
        _check_invertible(file)
    matrix = Expression("file", (file,), (("hash", digest),))
    loss = Expression(correction, (), (("T", matrix),))
    second = journal.run("corrected", replace(run, weighting=None, loss=str(loss)))
    T = np.load(file)
    error = matrix_error(run, T)
    scores = {"first": final_and_best(first), "corrected": final_and_best(second)}
    return journal.finish({**scores, "T": T.tolist(), "error": error})


def _check_invertible(file: str) -> None:
    import torch

    inverse("the estimated matrix, Backward", torch.from_numpy(np.load(file)))


def matrix_error(run: Run, T: npt.NDArray[np.float64]) -> float | None:
    """Return the mean over rows of Σ_j |T - true T|; None where the truth is not known.

    The true row of a class without examples is that of the identity.
    """
    corruption = gather(run).corruption
    if corruption is None:
        return None
    return float(np.abs(T - corruption.transition).sum(axis=1).mean())
