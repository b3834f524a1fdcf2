"""Runs carried out under the user's eyes: progress, a clean stop, and the table at the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.lab.cli.failures import INTERRUPTED, STOPPED, EndedError
from reweigh.lab.cli.progress import Tell, progress
from reweigh.lab.cli.stop import Stop
from reweigh.lab.cli.terminal import console, number, print_json, table
from reweigh.lab.spec import Run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.run import Speed, Update

SHOWN = ("loss", "test_accuracy", "train_accuracy", "train_accuracy_clean")


def carry_out(
    run: Run,
    root: Path,
    stop: Stop,
    watch: Callable[[Update], None],
    speed: Speed | None = None,
    *,
    is_all: bool = False,
) -> Path:
    """Execute a run and return its folder; a stop becomes the exit code of its signal.

    Unless the run `is_all` that the command does, resuming it would leave the rest undone.
    """
    from reweigh.lab.run import Interrupted, execute

    try:
        return execute(run, root, watch=watch, should_stop=stop, speed=speed)
    except Interrupted as error:
        code = STOPPED if stop.signal == signal.SIGTERM else INTERRUPTED
        told = f"; to go on: reweigh resume {error.folder}"
        if not is_all:
            told = f" of {error.folder}; the same command goes on from there"
        raise EndedError(code, f"stopped after iteration {error.step}{told}") from error


def carry_out_alone(run: Run, root: Path, speed: Speed | None = None) -> Path:
    """Execute one run with its own progress; of several processes that share it, only the first one speaks."""
    with Stop() as stop, progress("it") as tell:
        watch = every_row(tell) if is_first() else lambda update: None
        return carry_out(run, root, stop, watch, speed, is_all=True)


def is_first() -> bool:
    """Whether this process is the only one, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def every_row(tell: Tell) -> Callable[[Update], None]:
    """A watcher that keeps a line for every row and note."""

    def watch(update: Update) -> None:
        line = update.note if update.row is None else summary(update.row, update.holdout)
        tell(update.step, update.total, line=line)

    return watch


def summary(row: Mapping[str, Any], holdout: str = "test") -> str:
    """A row in a few words; `holdout` is what its test columns were measured on.

    >>> summary({"step": 100, "loss": 0.51234, "test_accuracy": 0.9})
    'loss 0.5123, test accuracy 0.9'
    >>> summary({"step": 100, "loss": None, "test_accuracy": 0.1}, "noisy hold-out")
    'loss not finite, noisy hold-out accuracy 0.1'
    """
    columns = {name: called(name, holdout) for name in SHOWN}
    told = {name: number(row[name]) for name in SHOWN if row.get(name) is not None}
    if "loss" in row and row["loss"] is None:
        told = {"loss": "not finite"} | told
    return ", ".join(f"{columns[name]} {value}" for name, value in told.items())


def called(column: str, holdout: str) -> str:
    """A column of the rows in words; a hold-out with wrong labels is called so.

    >>> called("test_accuracy", "noisy hold-out"), called("p_mean", "noisy hold-out")
    ('noisy hold-out accuracy', 'p mean')
    """
    return column.replace("test_", f"{holdout}_").replace("_", " ")


def report(folder: Path, as_json: bool) -> None:
    """Where a finished run lies, and what it gave."""
    from reweigh.lab.record import read_result

    if not is_first():
        return
    result = read_result(folder) or {}
    if as_json:
        print_json({"folder": str(folder), "result": result})
        return
    print(folder)
    print_result(result)


def print_result(result: Mapping[str, Any]) -> None:
    """The table of a result, and a sentence where there is something to know before it is used."""
    from reweigh.lab.record import caveat

    console().print(result_table(result))
    if result.get("diverged") is not None:
        print(f"training diverged: not finite at iteration {result['diverged']}; try a smaller --lr")
    elif told := caveat(result):
        whose = "its" if len(result["collapsed_classes"]) == 1 else "their"
        remedies = "another --lr, a smaller or a rising beta, --normalise class"
        print(f"{told} (mean p of {whose} labels below half of chance); try {remedies}")


def result_table(result: Mapping[str, Any]) -> RenderableType:
    """Final and best beside each other, one line per metric; a hold-out with wrong labels is called so."""
    final, best = result.get("final") or {}, result.get("best") or {}
    holdout = str(result.get("holdout", "test"))
    names = [name for name, value in final.items() if isinstance(value, int | float)]
    rows = [(called(name, holdout), final[name], best.get(name)) for name in names]
    return table(("", "final", "best"), rows)
