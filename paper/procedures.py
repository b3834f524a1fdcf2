"""Cells that take several runs: how they are carried out, and which of their runs and results count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from paper.finding import Finding, find
from paper.plan import name_of
from paper.starts import caffe_start, warm_start
from paper.values import Procedure
from reweigh.checks import nearest
from reweigh.errors import DataError
from reweigh.lab.procedures import (
    ProcedureRecord,
    anchor_forward,
    forgetting,
    joint_optimisation,
    label_correction,
    read_journal,
)
from reweigh.lab.procedures.journal import FILE, RunOne
from reweigh.lab.spec import Run
from reweigh.lab.spec.expression import canonical


class _Kind(NamedTuple):
    """A procedure: its function, the name in its journal, the role of the run that counts, and what else is told."""

    function: Callable[..., Path]
    journal: str
    role: Callable[[Mapping[str, Any]], str]
    more: Callable[[Mapping[str, Any]], dict[str, float | None]] = lambda result: {}


_KINDS: Mapping[str, _Kind] = {
    "label_correction": _Kind(
        label_correction,
        "label-correction",
        lambda result: "first",
        lambda result: {"retrained": result["retrained"]["final"]},
    ),
    "forgetting": _Kind(forgetting, "forgetting", lambda result: f"dropout {result['dropout']:g}"),
    "anchor_forward": _Kind(anchor_forward, "anchor-forward", lambda result: "corrected"),
    "joint_optimisation": _Kind(joint_optimisation, "joint-optimisation", lambda result: "phase 2"),
    "warm_start": _Kind(warm_start, "warm-start", lambda result: "started"),
    "caffe_start": _Kind(caffe_start, "caffe-start", lambda result: "started"),
}


def kind_of(procedure: Procedure) -> _Kind:
    """What a procedure's name means."""
    if procedure.name not in _KINDS:
        raise ValueError(f"no procedure is called {procedure.name!r}; {nearest(procedure.name, list(_KINDS))}")
    return _KINDS[procedure.name]


def carry_out_procedure(procedure: Procedure, run: Run, root: Path, run_one: RunOne) -> Path:
    """Carry a procedure out on a run, or on with it; returns its folder."""
    return kind_of(procedure).function(run, root, run_one=run_one, **dict(procedure.settings))


def find_procedure(procedure: Procedure, run: Run, root: Path) -> Finding | None:
    """The finding of a procedure that is done: of the run that counts, with the procedure's own numbers."""
    kind = kind_of(procedure)
    for path in sorted(Path(root).glob(f"{kind.journal}-*/{FILE}")):
        try:
            account = read_journal(path.parent)
        except DataError:
            continue
        if account.result is None or not _is_same(account, procedure, run):
            continue
        role = kind.role(account.result)
        folder = next((name for told, name in account.runs if told == role), None)
        finding = None if folder is None else find(Path(root) / folder)
        if finding is not None:
            metrics = {**finding.metrics, **kind.more(account.result)}
            return replace(finding, name=name_of(run, procedure), metrics=metrics)
    return None


def _is_same(account: ProcedureRecord, procedure: Procedure, run: Run) -> bool:
    """Whether the account is of this procedure: its settings as given, and else by default."""
    usual = {name: each.default for name, each in signature(kind_of(procedure).function).parameters.items()}
    given = {name: default for name, default in usual.items() if default is not None} | dict(procedure.settings)
    there = {key: canonical(value) for key, value in account.settings.items()}
    known = {key: canonical(given[key]) for key in there if key in given}  # a default of None is found out on the way
    return account.run.hash() == run.hash() and known.items() <= there.items()
