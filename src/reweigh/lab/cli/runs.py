"""`reweigh runs`: list runs, and move many of them as one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from reweigh.errors import DataError
from reweigh.lab.cli.options import Json
from reweigh.lab.cli.paths import find_run
from reweigh.lab.cli.runner import accuracies, holdout_of, mean_std, result_as_json
from reweigh.lab.cli.terminal import console, echo, print_json, print_stderr, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.record import Summary
    from reweigh.lab.report import Group


class _ListByDefault(TyperGroup):
    """Make `reweigh runs [ROOT]` the same as `reweigh runs list [ROOT]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {*self.commands, "--help"}
        return super().parse_args(ctx, args if args and args[0] in known else ["list", *args])


app = typer.Typer(cls=_ListByDefault, help="List runs (runs [ROOT]), or move many of them as one file.")


@app.command("list")
def list_command(
    root: Annotated[Path, typer.Argument(help="Directory containing runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a directory with their settings, progress and accuracy.

    Below them are means over runs that differ only in their seed.
    """
    from reweigh.lab.record import list_runs
    from reweigh.lab.report import collect, group

    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    found = list_runs(root)
    groups = group(collect([root]).runs) if found else []
    repeated = group([run for member in groups if len(member.runs) > 1 for run in member.runs])
    if as_json:
        means = [group_as_mapping(member) for member in repeated]
        print_json({"root": str(root), "runs": [_as_mapping(summary) for summary in found], "means": means})
        return
    if not found:
        echo(f"no runs in {root}")
        return
    columns = (
        "hash",
        "state",
        "evaluated",
        "data",
        "net",
        "loss or method",
        "noise",
        "tested on",
        "seed",
        "final",
        "best",
    )
    console().print(table(columns, [_row(summary) for summary in found], left=8))
    for summary in found:
        if summary.problem is not None:
            echo(f"broken: {summary.problem}")
    if repeated:
        echo()
        console().print(groups_table(repeated))


def groups_table(groups: Sequence[Group]) -> RenderableType:
    """Return the table of means over seeds, the highest final accuracy first; diverged runs are left out."""
    rows = []
    for member in groups:
        final, best, diverged = _scores(member)
        done = f"{len(final)} of {len(member.runs)}" + (f", {diverged} diverged" if diverged else "")
        row = (
            member.label,
            member.run.data,
            member.holdout,
            done,
            *(mean_std(x) if x else None for x in (final, best)),
        )
        rows.append((sum(final) / len(final) if final else -1.0, row))
    columns = ("mean over seeds, in per cent", "data", "tested on", "seeds", "final", "best")
    return table(columns, [row for _, row in sorted(rows, key=lambda pair: -pair[0])], left=4)


def group_as_mapping(member: Group) -> dict[str, Any]:
    """Return the accuracies of runs that differ only in their seed, for `--json`."""
    final, best, diverged = _scores(member)
    return {
        "name": member.label,
        "data": member.run.data,
        "tested_on": member.holdout,
        "seeds": [run.header.run.seed for run in member.runs],
        "diverged": diverged,
        **{name: _spread(values) for name, values in (("final", final), ("best", best))},
    }


def _scores(member: Group) -> tuple[list[float], list[float], int]:
    """Return the final and best accuracies of the runs that converged, and the number of those that diverged."""
    converged = [accuracies(run.result or {}) for run in member.runs if run.diverged is None]
    final = [value for value, _ in converged if value is not None]
    best = [value for _, value in converged if value is not None]
    return final, best, sum(run.diverged is not None for run in member.runs)


def _spread(values: list[float]) -> dict[str, Any]:
    from reweigh.lab.report.collect import spread

    mean, deviation = spread(values) if values else (None, None)
    return {"accuracies": values, "mean": mean, "deviation": deviation}


def _row(summary: Summary) -> tuple[object, ...]:
    run, result = summary.run, summary.result or {}
    if run is None:
        return (summary.folder.name, summary.state)
    noise = None if run.noise is None else f"{run.noise} {'' if run.rate is None else f'{run.rate:g}'}".strip()
    loss = run.weighting or run.loss or run.method
    state = summary.state if result.get("diverged") is None else "diverged"
    step = f"{max(summary.step, 0)}/{run.iterations}"
    settings = (run.data, run.net, loss, noise, holdout_of(result), run.seed)
    return (run.hash(), state, step, *settings, *accuracies(result))


def _as_mapping(summary: Summary) -> dict[str, Any]:
    return {
        "folder": str(summary.folder),
        "state": summary.state,
        "step": None if summary.step < 0 else summary.step,
        "run": None if summary.run is None else summary.run.to_mapping(),
        "hash": None if summary.run is None else summary.run.hash(),
        "result": result_as_json(summary.result),
        "problem": summary.problem,
    }


@app.command()
def pack(
    archive: Annotated[Path, typer.Argument(help="The archive to write: .tar.gz, .tgz or .zip.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Runs, by directory or start of hash; default: all."),
    ] = None,
    root: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Directory containing runs.")] = Path("runs"),
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Include checkpoints, to resume unfinished runs elsewhere.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write runs into one archive. Without RUN, unreadable runs are skipped."""
    from reweigh.lab.record import list_runs
    from reweigh.lab.record import pack as write

    found = [] if names else list_runs(root)
    left_out = [summary.problem for summary in found if summary.problem is not None]
    for problem in left_out:
        print_stderr(f"left out: {problem}")
    folders = [find_run(name, root) for name in names or ()]
    folders += [summary.folder for summary in found if summary.problem is None]
    if not folders:
        raise DataError(f"{root}: {'none of the runs can be read' if left_out else 'there are no runs to pack'}")
    packed = write(folders, archive, checkpoints=checkpoints)
    if as_json:
        size = archive.stat().st_size
        print_json({"archive": str(archive), "bytes": size, "runs": packed, "left_out": left_out})
    else:
        echo(f"{archive}: {len(packed)} runs, {archive.stat().st_size / 1e6:.1f} MB")


@app.command()
def unpack(
    archive: Annotated[Path, typer.Argument(help="The archive to read.")],
    root: Annotated[Path, typer.Argument(help="Directory to unpack the runs into.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Unpack the runs of an archive. Runs that already exist are not changed."""
    from reweigh.lab.record import unpack as read

    unpacked = read(archive, root)
    if as_json:
        print_json({"root": str(root), "added": unpacked.added, "skipped": unpacked.skipped})
    else:
        echo(f"{root}: {len(unpacked.added)} runs added, {len(unpacked.skipped)} already existed")
