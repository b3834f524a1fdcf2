"""`reweigh resume`: finish interrupted runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.options import Capture, Compile, Jobs, Json, Kernels, RunsRoot, with_fields
from reweigh.lab.cli.paths import find_run
from reweigh.lab.cli.runner import RunOutcome, failed_run, print_run, print_runs, run_one, run_several
from reweigh.lab.cli.terminal import echo
from reweigh.lab.spec import Run, describe

if TYPE_CHECKING:
    from reweigh.lab.run import Speed


# Fields outside the run's hash decide where and how fast it is computed: they may change.
@with_fields([field for field in describe() if not field.hashed])
def resume(
    fields: dict[str, Any],
    run: Annotated[str | None, typer.Argument(help="A run: its directory, or the start of its hash.")] = None,
    every: Annotated[
        Path | None,
        typer.Option("--all", metavar="ROOT", help="Resume every unfinished run in this directory."),
    ] = None,
    runs: RunsRoot = Path("runs"),
    jobs: Jobs = 1,
    capture: Capture = True,
    kernels: Kernels = True,
    compiled: Compile = None,
    as_json: Json = False,
) -> None:
    """Resume a run from its last checkpoint. The result is identical to that of an uninterrupted run."""
    if (run is None) == (every is None):
        raise ValueError("give either a run or --all ROOT")
    from reweigh.lab.run import Speed

    speed = Speed(capture, kernels, compiled)
    if run is not None:
        folder = find_run(run, runs)
        print_run(run_one(_run_of(folder, fields), folder.parent, speed), as_json)
    elif every is not None:
        _resume_all(every, fields, jobs, speed, as_json)


def _run_of(folder: Path, fields: dict[str, Any]) -> Run:
    """Return the run of a folder, with other execution fields."""
    from reweigh.lab.record import read_header

    run = read_header(folder).run
    if folder.resolve().name != run.folder_name():
        raise DataError(f"{folder}: was renamed; rename it back to {run.folder_name()}")
    return replace(run, **fields)


def _resume_all(root: Path, fields: dict[str, Any], jobs: int, speed: Speed, as_json: bool) -> None:
    """Resume all unfinished runs, also when some of them fail or cannot be read."""
    from reweigh.lab.record import list_runs
    from reweigh.lab.train import checkpoint

    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    unfinished: list[Run] = []
    failed: list[RunOutcome] = []
    for summary in list_runs(root):
        if summary.state == "done":
            checkpoint.remove(summary.folder / "checkpoint.pt")  # left by a process that was killed at its very end
            continue
        try:
            if summary.problem is not None:
                raise DataError(summary.problem)
            unfinished.append(_run_of(summary.folder, fields))
        except (DataError, ValueError) as error:
            failed.append(failed_run(summary.folder, error))
    if not unfinished and not failed and not as_json:
        echo(f"nothing to resume in {root}")
        return
    print_runs([*failed, *run_several(unfinished, root, jobs, speed)], as_json)
