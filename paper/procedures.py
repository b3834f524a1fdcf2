"""Procedures of several runs, in cells: how each is run, which of its runs counts, and what else it measures.

Two are defined here: `warm_start` and `caffe_start` begin a run from other weights. The others are the lab's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch

from paper.experiment import Procedure
from paper.findings import Finding, read_finding
from paper.plan import finding_name
from reweigh.checks import nearest
from reweigh.errors import DataError
from reweigh.lab.nets.initialise import caffe_xavier
from reweigh.lab.procedures import (
    ProcedureRecord,
    anchor_forward,
    forgetting,
    joint_optimisation,
    label_correction,
    read_journal,
)
from reweigh.lab.procedures.journal import FILE, Journal, RunOne, final_and_best
from reweigh.lab.record.files import make_folder, replace_file
from reweigh.lab.run import execute
from reweigh.lab.run.material import gather
from reweigh.lab.run.parts import net_of
from reweigh.lab.spec import Run
from reweigh.lab.spec.expression import canonical
from reweigh.streams import generator


def warm_start(run: Run, root: Path, *, iterations: int, run_one: RunOne = execute) -> Path:
    """Train with cross entropy for a few iterations at the run's initial learning rate, then the run from there.

    Args:
        run: starts from the weights of the first training.
        root: directory of run folders.
        iterations: of the first training.
        run_one: trains a run; (run, root) -> folder.

    Returns:
        the procedure's folder. Its result has final and best test accuracy of the run.
    """
    journal = Journal("warm-start", run, root, {"iterations": iterations}, run_one)
    if journal.is_done:
        return journal.folder
    plain = {"weighting": "CCE", "loss": None, "method": None, "normalise": "auto", "taper": "auto"}
    first = replace(run, **plain, iterations=iterations, evaluate_every=iterations, schedule="constant")  # type: ignore[arg-type]  # mypy mixes up the types of the values
    weights = journal.run("first", first) / "model" / "model.safetensors"
    return _run_from(weights, journal, run)


def caffe_start(run: Run, root: Path, *, run_one: RunOne = execute) -> Path:
    """Train the run from Caffe's xavier filler: U(+-sqrt(3 / fan_in)) and zero biases, in every layer."""
    journal = Journal("caffe-start", run, root, {}, run_one)
    if journal.is_done:
        return journal.folder
    weights = journal.folder / "weights.safetensors"
    if not weights.exists():
        net = net_of(run, gather(run), torch.device("cpu"))
        draws = generator(run.seed, "caffe start")
        for module in net.modules():
            caffe_xavier(module, draws)
        content = safetensors.torch.save(net.state_dict())
        make_folder(journal.folder)
        replace_file(weights, lambda file: file.write(content))
    return _run_from(weights, journal, run)


def _run_from(weights: Path, journal: Journal, run: Run) -> Path:
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    started = journal.run("started", replace(run, init_file=weights.as_posix(), init_hash=digest))
    return journal.finish(dict(final_and_best(started)))


class ProcedureInfo(NamedTuple):
    """A procedure's function, its name in journals, the role of the run that counts, and further metrics."""

    function: Callable[..., Path]
    journal: str
    role: Callable[[Mapping[str, Any]], str]
    metrics: Callable[[Mapping[str, Any]], dict[str, float | None]] = lambda result: {}


PROCEDURES: Mapping[str, ProcedureInfo] = {
    "label_correction": ProcedureInfo(
        label_correction,
        "label-correction",
        lambda result: "first",
        lambda result: {"retrained": result["retrained"]["final"]},
    ),
    "forgetting": ProcedureInfo(forgetting, "forgetting", lambda result: f"dropout {result['dropout']:g}"),
    "anchor_forward": ProcedureInfo(anchor_forward, "anchor-forward", lambda result: "corrected"),
    "joint_optimisation": ProcedureInfo(joint_optimisation, "joint-optimisation", lambda result: "phase 2"),
    "warm_start": ProcedureInfo(warm_start, "warm-start", lambda result: "started"),
    "caffe_start": ProcedureInfo(caffe_start, "caffe-start", lambda result: "started"),
}


def procedure_info(procedure: Procedure) -> ProcedureInfo:
    """Return the entry of `PROCEDURES`, or raise ValueError."""
    if procedure.name not in PROCEDURES:
        raise ValueError(f"no procedure {procedure.name!r}; {nearest(procedure.name, list(PROCEDURES))}")
    return PROCEDURES[procedure.name]


def run_procedure(procedure: Procedure, run: Run, root: Path, run_one: RunOne) -> Path:
    """Run a procedure, or resume it, and return its folder."""
    return procedure_info(procedure).function(run, root, run_one=run_one, **dict(procedure.settings))


def read_procedure_finding(procedure: Procedure, run: Run, root: Path) -> Finding | None:
    """Return the finding of a finished procedure: of the run that counts, with the procedure's own metrics."""
    info = procedure_info(procedure)
    for path in sorted(Path(root).glob(f"{info.journal}-*/{FILE}")):
        try:
            account = read_journal(path.parent)
        except DataError:
            continue
        if account.result is None or not _is_same(account, procedure, run):
            continue
        role = info.role(account.result)
        folder = next((name for each, name in account.runs if each == role), None)
        finding = None if folder is None else read_finding(Path(root) / folder)
        if finding is not None:
            metrics = {**finding.metrics, **info.metrics(account.result)}
            return replace(finding, name=finding_name(run, procedure), metrics=metrics)
    return None


def _is_same(account: ProcedureRecord, procedure: Procedure, run: Run) -> bool:
    """Compare the account's run and settings with the procedure's, whose unset settings have their defaults."""
    defaults = {name: each.default for name, each in signature(procedure_info(procedure).function).parameters.items()}
    expected = {name: value for name, value in defaults.items() if value is not None} | dict(procedure.settings)
    stored = {key: canonical(value) for key, value in account.settings.items()}
    # a default of None is decided by the procedure itself, so it is not compared
    return account.run.hash() == run.hash() and all(
        canonical(expected[key]) == value for key, value in stored.items() if key in expected
    )
