"""`reweigh report`: compare runs in a page, figures or TensorBoard event files."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.paths import PAGE, check_output, find_run
from reweigh.lab.cli.terminal import echo, print_json, print_stderr

if TYPE_CHECKING:
    from reweigh.lab.report import Group

MAX_GROUPS = 7  # lines that can be distinguished in a figure


class Format(str, Enum):
    """File formats of figures."""

    svg = "svg"
    png = "png"
    pdf = "pdf"


def report(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time
        typer.Argument(metavar="RUN", help="Runs, or directories of runs; default: all of --runs."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Report",
    figures: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Also write every figure into this directory (extra: plot)."),
    ] = None,
    file_format: Annotated[Format, typer.Option("--format", help="File format of the figures.")] = Format.svg,
    tensorboard: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR", help="Also write TensorBoard event files into this directory (extra: tensorboard)."
        ),
    ] = None,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Compare runs in one HTML page that works offline.

    Runs that differ only in their seed share a line of the table, with mean and standard deviation. The page shows
    learning curves, weights by p, the noise, calibration, provenance, and the weighting explorer.

    Example: reweigh report runs -o page.html --figures figures --format png
    """
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report import collect, group, report_page

    check_output("--output", output, PAGE)
    collected = collect(_folders(names or [str(runs)], runs))
    for problem in collected.problems:
        print_stderr(f"left out: {problem}")
    if not collected.runs:
        raise DataError("none of these runs can be read; no page was written")
    groups, written = group(collected.runs), [output]
    page = report_page(collected, title)
    replace_file(output, lambda file: file.write(page.encode()))
    if figures is not None:
        written += _draw(groups, figures, file_format)
    if tensorboard is not None:
        from reweigh.lab.report.events import write_events

        written += write_events(collected.runs, tensorboard)
    if as_json:
        print_json({"runs": len(collected.runs), "files": [str(path) for path in written]})
        return
    for path in written:
        echo(path)


def _folders(names: list[str], runs: Path) -> list[Path]:
    """Return the folders that exist under these names, and those of the runs that the others name."""
    return [Path(name) if Path(name).is_dir() else find_run(name, runs) for name in names]


def _draw(groups: list[Group], folder: Path, file_format: Format) -> list[Path]:
    from reweigh.lab.figures import write_figures
    from reweigh.lab.report.collect import HASH_OF_DATA, leading
    from reweigh.lab.report.figures import densities, dynamics, group_figures

    chosen = leading(groups, MAX_GROUPS)
    together = [*dynamics(chosen, points=400), *filter(None, [densities(chosen)])]
    written = []
    for figure in together:
        written.append(folder / f"{figure.key}.{file_format.value}")
        write_figures([figure], written[-1])
    for member in chosen:
        name = member.runs[0].header.run.folder_name()
        if HASH_OF_DATA in member.varying:  # not part of the name
            name = f"{name}-{member.varying[HASH_OF_DATA]}"
        for inner in group_figures(member, points=400):
            written.append(folder / name / f"{inner.key}.{file_format.value}")
            write_figures([inner], written[-1])
    return written
