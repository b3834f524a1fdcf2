"""`reweigh procedure`: what takes several runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.engine import carry_out
from reweigh.lab.cli.options import Json, RunsRoot, with_fields
from reweigh.lab.cli.progress import progress
from reweigh.lab.cli.stop import Stop
from reweigh.lab.cli.terminal import console, print_json, say, table
from reweigh.lab.cli.train import make_run
from reweigh.lab.spec import Run, describe

if TYPE_CHECKING:
    from reweigh.lab.procedures.journal import RunOne
    from reweigh.lab.run import Update

app = typer.Typer(
    help="Several runs in one: correct labels, learn labels, estimate the noise, search dropout, order by difficulty.",
    epilog="The same command goes on with a procedure that was cut short, and never repeats a run that is done.",
    no_args_is_help=True,
)


@app.command("label-correction")
@with_fields(describe())
def label_correction(fields: dict[str, Any], runs: RunsRoot = Path("runs"), as_json: Json = False) -> None:
    """Train, replace all labels by the model's predictions, and train a new model with nothing else changed."""
    from reweigh.lab.procedures import label_correction as procedure

    _report(fields, as_json, lambda run, run_one: procedure(run, runs, run_one=run_one))


@app.command("joint-optimisation")
@with_fields(describe())
def joint_optimisation(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    phase1_iterations: Annotated[int | None, typer.Option(min=1, help="Of phase 1; by default as in phase 2.")] = None,
    phase1_lr: Annotated[float | None, typer.Option(help="Of phase 1, constant and high.")] = None,
    alpha: Annotated[float, typer.Option(help="Factor of the term that spreads predictions over classes.")] = 1.2,
    beta: Annotated[float, typer.Option(help="Factor of the term that makes predictions confident.")] = 0.8,
    begin: Annotated[int, typer.Option(help="The epoch, from 1, from which labels change.")] = 70,
    slots: Annotated[int, typer.Option(help="Epochs whose predictions are averaged.")] = 10,
    prior: Annotated[
        str, typer.Option(help="Classes are expected to be: uniform, or as the given labels.")
    ] = "uniform",
    as_json: Json = False,
) -> None:
    """Learn net and labels in turn, then a new net from the labels; the options of a run describe the second phase."""
    from reweigh.lab.procedures import joint_optimisation as procedure

    _report(
        _by_cce(fields),
        as_json,
        lambda run, run_one: procedure(
            run,
            runs,
            iterations=phase1_iterations,
            lr=phase1_lr,
            alpha=alpha,
            beta=beta,
            begin=begin,
            slots=slots,
            prior=prior,
            run_one=run_one,
        ),
    )


@app.command("anchor-forward")
@with_fields(describe())
def anchor_forward(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    correction: Annotated[str, typer.Option(help="Forward or Backward.")] = "Forward",
    percentile: Annotated[float, typer.Option(help="Anchors lie right below it; 100 takes the largest.")] = 97.0,
    identity: Annotated[float, typer.Option(help="Share of the identity that is mixed into T.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Train by cross entropy, read the transition matrix T off its anchor points, and train anew with T."""
    from reweigh.lab.procedures import anchor_forward as procedure

    top = None if percentile == 100 else percentile
    _report(
        _by_cce(fields),
        as_json,
        lambda run, run_one: procedure(
            run, runs, correction=correction, percentile=top, identity=identity, run_one=run_one
        ),
    )


@app.command("forgetting")
@with_fields(describe())
def forgetting(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    rate_to_try: Annotated[
        list[float] | None, typer.Option("--try", metavar="DROPOUT", help="A dropout rate; by default 0.2 to 0.9.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train once for every dropout rate, and keep the best on the validation part (give --validation)."""
    from reweigh.lab.procedures import forgetting as procedure
    from reweigh.lab.procedures.forgetting import RATES

    _report(
        _by_cce(fields),
        as_json,
        lambda run, run_one: procedure(run, runs, rates=rate_to_try or RATES, run_one=run_one),
    )


@app.command("curriculum")
@with_fields(describe())
def curriculum(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    start: Annotated[float, typer.Option(help="Fraction of every class that is in at the beginning.")] = 0.3,
    until: Annotated[float, typer.Option(help="Part of training over which it grows.")] = 0.5,
    end: Annotated[float, typer.Option(help="Fraction that it grows to; the hardest of the rest never come in.")] = 1.0,
    pacing: Annotated[str, typer.Option(help="linear, exponential or step.")] = "linear",
    as_json: Json = False,
) -> None:
    """Train once to see what is difficult, then a new net on the easy examples of every class first."""
    from reweigh.lab.procedures import curriculum as procedure

    _report(
        _by_cce(fields),
        as_json,
        lambda run, run_one: procedure(run, runs, start=start, until=until, end=end, pacing=pacing, run_one=run_one),
    )


def _by_cce(fields: dict[str, Any]) -> dict[str, Any]:
    """Plain cross entropy where nothing is said, since the procedure brings its own correction."""
    return fields if {"weighting", "loss", "method"} & fields.keys() else fields | {"weighting": "CCE"}


def _report(fields: dict[str, Any], as_json: bool, procedure: Callable[[Run, RunOne], Path]) -> None:
    """Carry a procedure out under the user's eyes, and tell what came of it."""
    from reweigh.lab.procedures import read_journal

    run = make_run(fields)
    with Stop() as stop, progress("it") as tell:

        def watch(update: Update) -> None:
            tell(update.step, update.total, line=update.note)

        def train(run: Run, root: Path) -> Path:
            say(run.folder_name())
            return carry_out(run, root, stop, watch)

        folder = procedure(run, train)
    account = read_journal(folder)
    if as_json:
        print_json({"folder": str(folder), "runs": dict(account.runs), "result": account.result})
        return
    print(folder)
    console().print(table(("", ""), _flat(account.result or {}), left=2))


def _flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """A nested result as lines; lists, such as a matrix, are left to --json.

    >>> _flat({"first": {"final": 0.9}, "dropout": 0.2, "T": [[1]]})
    [('first final', 0.9), ('dropout', 0.2)]
    """
    lines: list[tuple[str, object]] = []
    for key, value in result.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            lines += _flat(value, f"{name} ")
        elif not isinstance(value, list):
            lines.append((name, value))
    return lines
