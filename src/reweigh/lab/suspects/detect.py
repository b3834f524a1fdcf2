"""Find the suspects of a run: from its record and model, out of fold with K more runs, or by AUM with two more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.procedures.journal import RunOne
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.record import History, Margins, read_header, read_margins, read_p, read_result, read_rows
from reweigh.lab.record.posteriors import Posteriors, read_posteriors
from reweigh.lab.record.rows import check_recorded
from reweigh.lab.run import execute
from reweigh.lab.run.material import Material, check_same_data, fold_split, gather, threshold_rows
from reweigh.lab.spec import Run
from reweigh.lab.suspects.duplicates import contradictions, list_first
from reweigh.lab.suspects.examples import original, sources_of
from reweigh.labels.scores import area_under_margin
from reweigh.labels.suspects import METHODS, Method, Suspects, choose_method, find_suspects

SCORES = (METHODS[0], "posterior", *METHODS[1:])  # of `suspects_of`
PERCENTILE = 99.0  # of the threshold samples' areas under the margin (Pleiss 2020)


@dataclass(frozen=True, eq=False)
class RunSuspects:
    """The suspects of a run.

    Attributes:
        suspects: the suspects.
        clean: the true labels of the same examples where the run added noise to them.
        duplicates: the rows of identical pictures or texts that have different labels, which are listed first.
    """

    suspects: Suspects
    clean: NDArray[np.int64] | None
    duplicates: tuple[NDArray[np.int64], ...] = ()


@dataclass(frozen=True, eq=False)
class Evidence:
    """The arguments of `find_suspects`; `origin` describes the runs that they come from."""

    pred_probs: NDArray[np.float64]
    origin: str
    history: NDArray[np.floating] | None = None
    margins: NDArray[np.floating] | None = None
    rivals: NDArray[np.integer] | None = None
    threshold: float | None = None
    posteriors: Posteriors | None = None

    def choose_method(self, method: str) -> str:
        """Resolve "auto", and check that the arrays which any other method needs are available."""
        if method in ("auto", "posterior") and self.posteriors is not None:
            return "posterior"
        if method == "posterior":
            raise ValueError("method 'posterior' needs posteriors of the method Auto")
        return choose_method(
            method,
            history=self.history is not None,
            logit_gaps=self.margins is not None,
            rivals=self.rivals is not None,
        )

    def describe(self, method: str) -> str:
        """Describe how the scores are computed, for the table."""
        if method == "posterior":
            return f"1 - posterior of the given label in {self.origin}"
        if method == "mixture":
            of = replace(self, posteriors=None)
            return f"posterior of a mixture of two: {of.describe(of.choose_method('auto'))}"
        if method == "final-p":
            return f"1 - p, {self.origin}"
        score = {
            "mean-p": "1 - mean p",
            "duel": "1 - mean pairwise p against the strongest other class",
            "aum": "area under the margin",
        }[method]
        recorded = self.history if self.margins is None else self.margins
        return f"{score} over {0 if recorded is None else recorded.shape[1]} evaluations of {self.origin}"


def suspects_of(
    folder: Path,
    *,
    method: str = "auto",
    folds: int | None = None,
    threshold_samples: bool = False,
    seed: int = 0,
    bootstrap: int = 100,
    where: Mapping[str, Any] | None = None,
    run_one: RunOne = execute,
) -> RunSuspects:
    """Find the suspects among the training examples of a finished run.

    Args:
        folder: of the run.
        method: as in `find_suspects`, or "posterior", the default of a run by `Auto`; the run must have recorded what
            it needs (record_p, record_margins).
        folds: train this many runs, each without one fold, and score each fold by the model that was not trained on it.
        threshold_samples: for aum, train two runs with threshold samples, which determine the threshold.
        seed, bootstrap: as in `find_suspects`.
        where: fields of `Run` for this machine (data_root, device, workers) that replace the run's own.
        run_one: executes one of these runs, which have the run's settings and the same root; finished ones are reused.
    """
    folder = Path(folder)
    if read_result(folder) is None:
        raise DataError(f"{folder}: the run is not finished; resume it with: reweigh resume {folder}")
    run = replace(read_header(folder).run, **(where or {}))
    if run.threshold_set is not None:
        raise DataError(f"{folder}: trained with threshold samples, whose labels are artificial; give a run without")
    if folds is not None and threshold_samples:
        raise ValueError("folds and threshold samples exclude each other")
    if threshold_samples and method not in ("auto", "aum"):
        raise ValueError(f"method is {method!r}; threshold samples require aum")
    if folds is not None and method not in ("auto", "final-p", "mixture"):
        raise ValueError(f"method is {method!r}; folds require final-p or mixture, since they record nothing")
    material = gather(run)
    check_same_data(folder, material)
    if folds is not None:
        evidence = out_of_fold(run, folder.parent, folds, material, run_one=run_one)
    elif threshold_samples:
        method = "aum"
        evidence = by_threshold_samples(run, folder.parent, material, run_one=run_one)
    else:
        evidence = of_run(run, folder, material)
    try:
        method = evidence.choose_method(method)
    except ValueError as error:
        raise ValueError(
            f"{error}, which {evidence.origin} did not record; train with record_p and record_margins"
        ) from None
    probabilities, history, score = evidence.pred_probs, evidence.history, method
    if method == "posterior" and evidence.posteriors is not None:
        probabilities, score = evidence.posteriors.opinion, "mean-p"
        history = evidence.posteriors.of(material.train.labels)[:, None]
    suspects = find_suspects(
        material.train.labels,
        probabilities,
        history=history,
        logit_gaps=None if method == "posterior" else evidence.margins,
        rivals=None if method == "posterior" else evidence.rivals,
        threshold=evidence.threshold,
        method=cast("Method", score),
        class_names=material.dataset.class_names,
        sources=sources_of(run, material),
        description=evidence.describe(method),
        seed=seed,
        bootstrap=bootstrap,
    )
    part = original(run).part
    groups = [] if part.kind == "features" else contradictions(replace(part, labels=material.train.labels))
    return RunSuspects(list_first(suspects, groups), material.clean, tuple(groups))


def of_run(run: Run, folder: Path, material: Material) -> Evidence:
    """Return the final model's probabilities, and the history and margins that the run recorded."""
    probabilities = training_probabilities(run, folder, material=material)  # raises if the run diverged
    history, record = _read_recorded(run, folder)
    has_margins = len(record.steps) > 0
    return Evidence(
        probabilities,
        f"run {run.hash()}",
        history.p if len(history.steps) else None,
        record.margins if has_margins else None,
        record.rivals if has_margins else None,
        posteriors=read_posteriors(folder, len(material.train), material.dataset.num_classes),
    )


def out_of_fold(run: Run, root: Path, folds: int, material: Material, *, run_one: RunOne = execute) -> Evidence:
    """Train one run per fold with the settings of `run`, and return the held-out probabilities of all examples.

    These runs are evaluated only at the end, since nothing they would record is used.
    """
    if folds < 2:
        raise ValueError(f"folds must be 2 or more, not {folds}")
    if run.validation > 0 or run.fold is not None:
        raise ValueError("folds require a run without a validation part; this run already holds examples out")
    probabilities = np.full((len(material.train), material.dataset.num_classes), np.nan)
    for number in range(1, folds + 1):
        fold = f"{number}/{folds}"
        part = replace(run, fold=fold, record_p=False, record_margins=False, evaluate_every=run.iterations)
        kept, held = fold_split(material.train.labels, fold, run.seed)
        folder, own = _run_and_gather(part, root, run_one)
        every = training_probabilities(part, folder, held_out=True, material=own)
        probabilities[held] = every[len(kept) :]
    return Evidence(probabilities, f"out of {folds} folds with the settings of run {run.hash()}")


def by_threshold_samples(run: Run, root: Path, material: Material, *, run_one: RunOne = execute) -> Evidence:
    """Train two runs with different threshold samples, and return margins minus the threshold (Pleiss 2020).

    In each run N / (C + 1) examples get the label of an extra class, which is wrong for all of them. The threshold is
    the 99th percentile of their areas under the margin. The samples of the first run are scored by the second, all
    other examples by the first.
    """
    n, num_classes = len(material.train), material.dataset.num_classes
    margins: NDArray[np.float64] | None = None
    probabilities = np.zeros((n, num_classes))
    for number in (0, 1):
        part = replace(run, threshold_set=number, record_p=False, record_margins=True)
        folder, own = _run_and_gather(part, root, run_one)
        samples = threshold_rows(n, num_classes, number, run.seed)
        of_classes = training_probabilities(part, folder, material=own)[:, :num_classes] + np.finfo(np.float64).tiny
        of_classes /= of_classes.sum(axis=1, keepdims=True)
        recorded = _read_recorded(part, folder)[1].margins.astype(np.float64)
        threshold = np.percentile(area_under_margin(recorded[samples]), PERCENTILE)
        if margins is None:
            margins, scored = recorded - threshold, np.arange(n)
        else:
            scored = threshold_rows(n, num_classes, 0, run.seed)
            margins[scored] = recorded[scored] - threshold
        probabilities[scored] = of_classes[scored]
    origin = f"two runs with threshold samples and the settings of run {run.hash()}"
    return Evidence(probabilities, origin, margins=margins, threshold=0.0)


def _read_recorded(run: Run, folder: Path) -> tuple[History, Margins]:
    """Return the recorded p and margins; DataError if they are incomplete or not finite."""
    history, record = read_p(folder), read_margins(folder)
    check_recorded(folder, run, history.steps, record.steps, (row["step"] for row in read_rows(folder)))
    for name, values in (("p.f16", history.p), ("margins.bin", record.margins)):
        if not np.isfinite(values).all():
            raise DataError(f"{folder / name}: contains values that are not finite; the file is damaged, train again")
    return history, record


def _run_and_gather(run: Run, root: Path, run_one: RunOne) -> tuple[Path, Material]:
    """Execute a run, unless it is finished, and return its folder and data; DataError if the data have changed."""
    folder, material = run_one(run, root), gather(run)
    check_same_data(folder, material)
    return folder, material
