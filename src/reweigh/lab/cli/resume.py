"""`reweigh resume`: go on with what was cut short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.engine import carry_out_alone, report
from reweigh.lab.cli.find import find_run
from reweigh.lab.cli.options import Capture, Compile, Jobs, Json, Kernels, RunsRoot, with_fields
from reweigh.lab.cli.several import Ended, carry_out_together, failed, report_together
from reweigh.lab.spec import Run, describe

if TYPE_CHECKING:
    from reweigh.lab.run import Speed


# What says where or how fast, not what, may differ from the first time.
@with_fields([field for field in describe() if not field.hashed])
def resume(
    fields: dict[str, Any],
    run: Annotated[str | None, typer.Argument(help="A run: its folder, or the start of its hash.")] = None,
    every: Annotated[
        Path | None,
        typer.Option("--all", metavar="ROOT", help="Go on with every unfinished run in this folder."),
    ] = None,
    runs: RunsRoot = Path("runs"),
    jobs: Jobs = 1,
    capture: Capture = True,
    kernels: Kernels = True,
    compiled: Compile = None,
    as_json: Json = False,
) -> None:
    """Go on with a run from its last checkpoint; the result is the same as without the break."""
    if (run is None) == (every is None):
        raise ValueError("give either a run or --all ROOT")
    from reweigh.lab.run import Speed

    speed = Speed(capture, kernels, compiled)
    if run is not None:
        folder = find_run(run, runs)
        report(carry_out_alone(_again(folder, fields), folder.parent, speed), as_json)
    elif every is not None:
        _resume_all(every, fields, jobs, speed, as_json)


def _again(folder: Path, fields: dict[str, Any]) -> Run:
    """The run of a folder, elsewhere or otherwise carried out."""
    from reweigh.lab.record import read_header

    run = read_header(folder).run
    if folder.resolve().name != run.folder_name():
        raise DataError(f"{folder}: was renamed; its run is called {run.folder_name()}")
    return replace(run, **fields)


def _resume_all(root: Path, fields: dict[str, Any], jobs: int, speed: Speed, as_json: bool) -> None:
    """All unfinished runs; one that can't be read or fails does not keep the others from being finished."""
    from reweigh.lab.record import list_runs

    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    found: list[Run] = []
    ended: list[Ended] = []
    for summary in list_runs(root):
        if summary.state == "done":
            continue
        try:
            if summary.problem is not None:
                raise DataError(summary.problem)
            found.append(_again(summary.folder, fields))
        except (DataError, ValueError) as error:
            ended.append(failed(summary.folder, error))
    if not found and not ended and not as_json:
        print(f"nothing to resume in {root}")
        return
    report_together([*ended, *carry_out_together(found, root, jobs, speed)], as_json)
