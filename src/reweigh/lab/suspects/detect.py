"""What runs tell of their training labels: the record and the model of one, K of them out of fold, or two for AUM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.procedures.predictions import training_probabilities
from reweigh.lab.record import History, Margins, read_header, read_margins, read_p, read_result, read_rows
from reweigh.lab.record.rows import check_recorded
from reweigh.lab.run import execute
from reweigh.lab.run.material import Material, check_same_data, fold_split, gather, threshold_rows
from reweigh.lab.spec import Run
from reweigh.lab.suspects.sources import sources_of
from reweigh.labels.find import Method, choose, find_suspects
from reweigh.labels.scores import area_under_margin
from reweigh.labels.suspects import Suspects

PERCENTILE = 99.0  # of the threshold samples' areas under the margin (Pleiss 2020)

CarryOut: TypeAlias = Callable[[Run, Path], Path]
"""(run, root) -> the folder of the finished run; `reweigh.lab.run.execute` is one."""

Probabilities: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Found:
    """Suspects, and the true labels of the same examples, in the same order, where noise was added to them."""

    suspects: Suspects
    clean: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class Evidence:
    """The arguments of `find_suspects`, and in words where they come from."""

    pred_probs: Probabilities
    origin: str
    history: NDArray[np.floating] | None = None
    margins: NDArray[np.floating] | None = None
    rivals: NDArray[np.integer] | None = None
    threshold: float | None = None

    def how(self, method: Method) -> str:
        """The method in words, for the table."""
        evaluations = 0 if self.history is None else self.history.shape[1]
        if self.margins is not None:
            evaluations = self.margins.shape[1]
        over = f"over {evaluations} evaluations of {self.origin}"
        plain = {
            "final-p": f"1 - p, {self.origin}",
            "mean-p": f"1 - mean p {over}",
            "duel": f"1 - mean share against the strongest other class {over}",
            "aum": f"area under the margin {over}",
        }
        if method == "mixture":
            base = choose("auto", self.history is not None, self.margins is not None, self.rivals is not None)
            return f"posterior of a mixture of two: {plain[base]}"
        return plain[method]


def suspects_of(
    folder: Path,
    *,
    method: Method = "auto",
    folds: int | None = None,
    threshold_samples: bool = False,
    seed: int = 0,
    bootstrap: int = 100,
    where: Mapping[str, Any] | None = None,
    carry_out: CarryOut = execute,
) -> Found:
    """The suspects among the training examples of a finished run.

    Args:
        folder: of the run.
        method: as in `find_suspects`; what it needs must have been recorded (record_p, record_margins).
        folds: train this many times on all but a fold, and judge each fold by the model that has not seen it.
        threshold_samples: for aum, train twice more with threshold samples, which tell where to draw the line.
        seed, bootstrap: of the noise estimate's intervals.
        where: fields of `Run` that say where or how fast (data_root, device, workers), in place of the run's own.
        carry_out: executes a run. Such runs have the run's settings, lie beside it, and are carried out once.
    """
    folder = Path(folder)
    if read_result(folder) is None:
        raise DataError(f"{folder}: the run is not finished; to go on: reweigh resume {folder}")
    run = replace(read_header(folder).run, **(where or {}))
    if run.threshold_set is not None:
        raise DataError(f"{folder}: a run with threshold samples, whose labels are not all its own; take one without")
    if folds is not None and threshold_samples:
        raise ValueError("folds and threshold samples exclude each other")
    if threshold_samples and method not in ("auto", "aum"):
        raise ValueError(f"method is {method!r}, which has no use for threshold samples; aum has")
    if folds is not None and method not in ("auto", "final-p", "mixture"):
        raise ValueError(f"method is {method!r}; out of fold there is final-p or mixture, since nothing is recorded")
    material = gather(run)
    check_same_data(folder, material)
    if folds is not None:
        evidence = out_of_fold(run, folder.parent, folds, material, carry_out=carry_out)
    elif threshold_samples:
        method = "aum"
        evidence = by_threshold_samples(run, folder.parent, material, carry_out=carry_out)
    else:
        evidence = of_run(run, folder, material)
    has = [evidence.history is not None, evidence.margins is not None, evidence.rivals is not None]
    try:
        method = choose(method, *has)
    except ValueError as error:
        raise ValueError(f"{error}, which {evidence.origin} has not: record_p and record_margins keep them") from None
    suspects = find_suspects(
        material.train.labels,
        evidence.pred_probs,
        history=evidence.history,
        margins=evidence.margins,
        rivals=evidence.rivals,
        threshold=evidence.threshold,
        method=method,
        class_names=material.dataset.class_names,
        sources=sources_of(run, material),
        how=evidence.how(method),
        seed=seed,
        bootstrap=bootstrap,
    )
    return Found(suspects, material.clean)


def of_run(run: Run, folder: Path, material: Material) -> Evidence:
    """The final model's probabilities, and what was recorded on the way."""
    probabilities = training_probabilities(run, folder, material=material)  # refuses a run that diverged
    history, record = _recorded(run, folder)
    kept = len(record.steps) > 0
    return Evidence(
        probabilities,
        f"run {run.hash()}",
        history.p if len(history.steps) else None,
        record.margins if kept else None,
        record.rivals if kept else None,
    )


def out_of_fold(run: Run, root: Path, folds: int, material: Material, *, carry_out: CarryOut = execute) -> Evidence:
    """Probabilities by models that have not seen the example: one run for each fold, with the settings of `run`.

    They are evaluated once, at the end, since nothing on the way is wanted of them.
    """
    if folds < 2:
        raise ValueError(f"folds must be 2 or more, not {folds}")
    if run.validation > 0 or run.fold is not None:
        raise ValueError("the run holds examples out already; take one without validation for folds")
    probabilities = np.full((len(material.train), material.dataset.num_classes), np.nan)
    for number in range(1, folds + 1):
        fold = f"{number}/{folds}"
        part = replace(run, fold=fold, record_p=False, record_margins=False, evaluate_every=run.iterations)
        kept, held = fold_split(material.train.labels, fold, run.seed)
        folder, own = _same_data(part, root, carry_out)
        every = training_probabilities(part, folder, held_out=True, material=own)
        probabilities[held] = every[len(kept) :]
    return Evidence(probabilities, f"out of {folds} folds with the settings of run {run.hash()}")


def by_threshold_samples(run: Run, root: Path, material: Material, *, carry_out: CarryOut = execute) -> Evidence:
    """Margins less the threshold, from two runs with different threshold samples (Pleiss 2020).

    In each, N / (C + 1) examples are labelled as a class of their own, whatever they show; 99 % of them have a smaller
    area under the margin than the threshold. An example is judged by the first run unless it is such a sample there.
    """
    n, num_classes = len(material.train), material.dataset.num_classes
    margins: NDArray[np.float64] | None = None
    probabilities = np.zeros((n, num_classes))
    for number in (0, 1):
        part = replace(run, threshold_set=number, record_p=False, record_margins=True)
        folder, own = _same_data(part, root, carry_out)
        samples = threshold_rows(n, num_classes, number, run.seed)
        of_classes = training_probabilities(part, folder, material=own)[:, :num_classes] + np.finfo(np.float64).tiny
        of_classes /= of_classes.sum(axis=1, keepdims=True)
        recorded = _recorded(part, folder)[1].margins.astype(np.float64)
        threshold = np.percentile(area_under_margin(recorded[samples]), PERCENTILE)
        if margins is None:
            margins, judged = recorded - threshold, np.arange(n)
        else:
            judged = threshold_rows(n, num_classes, 0, run.seed)
            margins[judged] = recorded[judged] - threshold
        probabilities[judged] = of_classes[judged]
    origin = f"two runs with threshold samples and the settings of run {run.hash()}"
    return Evidence(probabilities, origin, margins=margins, threshold=0.0)


def _recorded(run: Run, folder: Path) -> tuple[History, Margins]:
    """p and margins at every evaluation of a run that did not diverge, whole and finite as far as it writes them."""
    history, record = read_p(folder), read_margins(folder)
    check_recorded(folder, run, history.steps, record.steps, (row["step"] for row in read_rows(folder)))
    for name, values in (("p.f16", history.p), ("margins.bin", record.margins)):
        if not np.isfinite(values).all():
            raise DataError(f"{folder / name}: holds what is no number: the file is damaged; train the run again")
    return history, record


def _same_data(run: Run, root: Path, carry_out: CarryOut) -> tuple[Path, Material]:
    """The folder of a run, carried out now or before, and what it trains on, which must be what it was trained on."""
    folder, material = carry_out(run, root), gather(run)
    check_same_data(folder, material)
    return folder, material
