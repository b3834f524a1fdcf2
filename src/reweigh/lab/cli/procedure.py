"""`reweigh procedure`: methods that train several nets in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.exits import Stop
from reweigh.lab.cli.options import Json, RunsRoot, with_fields
from reweigh.lab.cli.runner import trainer
from reweigh.lab.cli.terminal import console, echo, print_json, progress, table
from reweigh.lab.cli.train import make_run
from reweigh.lab.spec import Run, describe

if TYPE_CHECKING:
    from reweigh.lab.procedures.journal import RunOne

app = typer.Typer(
    help="Methods of several runs: correct labels, learn labels, estimate the noise, tune dropout, curriculum.",
    epilog="The same command resumes an interrupted procedure and does not repeat a finished run.",
    no_args_is_help=True,
)


@app.command("label-correction")
@with_fields(describe())
def label_correction(fields: dict[str, Any], runs: RunsRoot = Path("runs"), as_json: Json = False) -> None:
    """Train a net, replace all labels by its predictions, and train a new net on them with the same settings."""
    from reweigh.lab.procedures import label_correction as procedure

    _execute(fields, as_json, lambda run, run_one: procedure(run, runs, run_one=run_one))


@app.command("joint-optimisation")
@with_fields(describe())
def joint_optimisation(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    phase1_iterations: Annotated[
        int | None, typer.Option(min=1, help="Iterations of phase 1; default: as in phase 2.")
    ] = None,
    phase1_lr: Annotated[float | None, typer.Option(help="Learning rate of phase 1: constant and high.")] = None,
    alpha: Annotated[float, typer.Option(help="Weight of the loss term that spreads predictions over classes.")] = 1.2,
    beta: Annotated[float, typer.Option(help="Weight of the loss term that makes predictions confident.")] = 0.8,
    begin: Annotated[int, typer.Option(help="First epoch, counted from 1, in which labels change.")] = 70,
    slots: Annotated[int, typer.Option(help="Number of epochs whose predictions are averaged.")] = 10,
    prior: Annotated[
        str, typer.Option(help="Expected class frequencies: uniform, or those of the given labels.")
    ] = "uniform",
    as_json: Json = False,
) -> None:
    """Learn net and labels jointly, then train a new net on the labels. Training options apply to the second phase."""
    from reweigh.lab.procedures import joint_optimisation as procedure

    _execute(
        _default_to_cce(fields),
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
    correction: Annotated[str, typer.Option(help="Loss correction: Forward or Backward.")] = "Forward",
    percentile: Annotated[
        float, typer.Option(help="Percentile of p just above the anchor points; 100: the maximum.")
    ] = 97.0,
    identity: Annotated[float, typer.Option(help="Share of the identity matrix mixed into T.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Train with cross entropy, estimate the transition matrix T at its anchor points, and train a new net with T."""
    from reweigh.lab.procedures import anchor_forward as procedure

    top = None if percentile == 100 else percentile
    _execute(
        _default_to_cce(fields),
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
        list[float] | None, typer.Option("--try", metavar="DROPOUT", help="A dropout rate to try; default: 0.2 to 0.9.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train once per dropout rate and keep the best on the validation set (set --validation)."""
    from reweigh.lab.procedures import forgetting as procedure
    from reweigh.lab.procedures.forgetting import RATES

    _execute(
        _default_to_cce(fields),
        as_json,
        lambda run, run_one: procedure(run, runs, rates=rate_to_try or RATES, run_one=run_one),
    )


@app.command("curriculum")
@with_fields(describe())
def curriculum(
    fields: dict[str, Any],
    runs: RunsRoot = Path("runs"),
    start: Annotated[float, typer.Option(help="Fraction of every class used at the start.")] = 0.3,
    until: Annotated[float, typer.Option(help="Fraction of training over which it grows.")] = 0.5,
    end: Annotated[
        float, typer.Option(help="Fraction used at the end; below 1 the hardest examples are never used.")
    ] = 1.0,
    pacing: Annotated[str, typer.Option(help="How the fraction grows: linear, exponential or step.")] = "linear",
    as_json: Json = False,
) -> None:
    """Train a net to measure difficulty, then a new net that starts with the easy examples of every class."""
    from reweigh.lab.procedures import curriculum as procedure

    _execute(
        _default_to_cce(fields),
        as_json,
        lambda run, run_one: procedure(run, runs, start=start, until=until, end=end, pacing=pacing, run_one=run_one),
    )


def _default_to_cce(fields: dict[str, Any]) -> dict[str, Any]:
    """Use cross entropy unless a loss or method is set: the procedure adds its own correction."""
    return fields if {"weighting", "loss", "method"} & fields.keys() else fields | {"weighting": "CCE"}


def _execute(fields: dict[str, Any], as_json: bool, procedure: Callable[[Run, RunOne], Path]) -> None:
    """Execute a procedure with progress, and print its result."""
    from reweigh.lab.procedures import read_journal

    run = make_run(fields)
    with Stop() as stop, progress("it") as show:
        folder = procedure(run, trainer(stop, show))
    account = read_journal(folder)
    if as_json:
        print_json({"folder": str(folder), "runs": dict(account.runs), "result": account.result})
        return
    echo(folder)
    console().print(table(("", ""), _flat(account.result or {}), left=2))


def _flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Return a nested result as lines, without lists such as a matrix, which --json prints.

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
