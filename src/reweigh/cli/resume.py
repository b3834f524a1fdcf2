"""`reweigh resume`: go on with what was cut short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from reweigh.cli.engine import carry_out, carry_out_alone, every_row, report
from reweigh.cli.failures import BAD_DATA, FAILED, EndedError, verdict
from reweigh.cli.find import find_run
from reweigh.cli.options import Json, RunsRoot, with_fields
from reweigh.cli.progress import progress
from reweigh.cli.stop import Stop
from reweigh.cli.terminal import console, print_json, say, table
from reweigh.errors import DataError
from reweigh.spec import Run, describe


# What says where or how fast, not what, may differ from the first time.
@with_fields([field for field in describe() if not field.hashed])
def resume(
    fields: dict[str, Any],
    run: Annotated[str | None, typer.Argument(help="A run: its folder, or the start of its hash.")] = None,
    every: Annotated[
        Path | None,
        typer.Option("--all", metavar="ROOT", help="Go on with every unfinished run in this folder, one by one."),
    ] = None,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Go on with a run from its last checkpoint; the result is the same as without the break."""
    if (run is None) == (every is None):
        raise ValueError("give either a run or --all ROOT")
    if run is not None:
        folder = find_run(run, runs)
        report(carry_out_alone(_again(folder, fields), folder.parent), as_json)
    elif every is not None:
        _resume_all(every, fields, as_json)


def _again(folder: Path, fields: dict[str, Any]) -> Run:
    """The run of a folder, elsewhere or otherwise carried out."""
    from reweigh.record import read_header

    run = read_header(folder).run
    if folder.resolve().name != run.folder_name():
        raise DataError(f"{folder}: was renamed; its run is called {run.folder_name()}")
    return replace(run, **fields)


def _resume_all(root: Path, fields: dict[str, Any], as_json: bool) -> None:
    """All unfinished runs; one that fails does not keep the others from being finished."""
    from reweigh.record import list_runs

    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    found = [summary for summary in list_runs(root) if summary.state != "done"]
    ended: list[tuple[str, str, str]] = []
    code = 0
    with Stop() as stop:
        for summary in found:
            try:
                if summary.problem is not None:
                    raise DataError(summary.problem)
                say(str(summary.folder))
                with progress("it") as tell:
                    carry_out(_again(summary.folder, fields), root, stop, every_row(tell))
                ended.append((summary.folder.name, "done", ""))
            except (DataError, ValueError, OSError, ImportError) as error:
                what = verdict(error)
                code = max(code, BAD_DATA if what is not None and what.code == BAD_DATA else FAILED)
                ended.append((summary.folder.name, "failed", str(error) if what is None else what.sentence))
    if as_json:
        print_json({"runs": [{"run": name, "state": state, "problem": why or None} for name, state, why in ended]})
    elif ended:
        console().print(table(("run", "state", "problem"), ended, left=3))
    else:
        print(f"nothing to resume in {root}")
    if code:
        raise EndedError(code, f"{sum(state == 'failed' for _, state, _ in ended)} of {len(found)} runs failed")
