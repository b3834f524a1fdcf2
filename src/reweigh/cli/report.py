"""`reweigh report`: runs side by side, as a page, as figures, as event files."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from reweigh.cli.find import find_run
from reweigh.cli.options import Json, RunsRoot
from reweigh.cli.outputs import FIGURE, PAGE, check_output
from reweigh.cli.terminal import print_json, say
from reweigh.errors import DataError

if TYPE_CHECKING:
    from reweigh.report import Group

MOST = 7  # lines that can be told apart in a drawn figure


class Format(str, Enum):
    """What figures can be written as."""

    svg = "svg"
    png = "png"
    pdf = "pdf"


def report(
    names: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it at run time
        typer.Argument(metavar="[RUN]...", help="Runs, or folders of runs; all of --runs if none is given."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Runs",
    figures: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Write every figure into this folder, too (extra: plot)."),
    ] = None,
    file_format: Annotated[Format, typer.Option("--format", help="Of these figures.")] = Format.svg,
    figure: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="1b|2|grid", help="Write this figure of the paper alone, to --output (.svg, .png, .pdf)."),
    ] = None,
    tensorboard: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Write TensorBoard event files into this folder, too."),
    ] = None,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Put runs side by side in one HTML page that needs no network.

    Runs that differ only in their seed become one line of the table, with mean and spread. The page holds curves,
    weights by p, the noise, calibration, provenance, and the explorer of weightings.

    Example: reweigh report runs -o page.html --figures figures --format png
    """
    from reweigh.record.files import replace_file
    from reweigh.report import collect, group, paper_figure, report_page, write

    check_output("--output", output, PAGE if figure is None else FIGURE)
    if figure == "1b":  # the one that needs no runs
        panels = paper_figure(figure)
        write(panels.figures, output, columns=panels.columns)
        _tell([output], 0, as_json)
        return
    collected = collect(_folders(names or [str(runs)], runs))
    for problem in collected.problems:
        say(f"left out: {problem}")
    if not collected.runs:
        raise DataError("none of these runs can be read; nothing was written")
    groups, written = group(collected.runs), [output]
    if figure is not None:
        panels = paper_figure(figure, groups)
        write(panels.figures, output, columns=panels.columns)
    else:
        page = report_page(collected, title)
        replace_file(output, lambda file: file.write(page.encode()))
    if figures is not None:
        written += _draw(groups, figures, file_format)
    if tensorboard is not None:
        from reweigh.report.events import write_events

        written += write_events(collected.runs, tensorboard)
    _tell(written, len(collected.runs), as_json)


def _folders(names: list[str], runs: Path) -> list[Path]:
    """A folder is taken as it is; anything else must be the name or hash of a run."""
    return [Path(name) if Path(name).is_dir() else find_run(name, runs) for name in names]


def _draw(groups: list[Group], folder: Path, file_format: Format) -> list[Path]:
    from reweigh.report import write
    from reweigh.report.collect import HASH_OF_DATA, leading
    from reweigh.report.dynamics import densities, dynamics
    from reweigh.report.inside import inside

    chosen = leading(groups, MOST)
    together = [*dynamics(chosen, points=400), *filter(None, [densities(chosen)])]
    written = []
    for figure in together:
        written.append(folder / f"{figure.key}.{file_format.value}")
        write([figure], written[-1])
    for member in chosen:
        name = member.runs[0].header.run.folder_name()
        if HASH_OF_DATA in member.varying:  # which the name does not tell
            name = f"{name}-{member.varying[HASH_OF_DATA]}"
        for inner in inside(member, points=400):
            written.append(folder / name / f"{inner.key}.{file_format.value}")
            write([inner], written[-1])
    return written


def _tell(written: list[Path], count: int, as_json: bool) -> None:
    if as_json:
        print_json({"runs": count, "files": [str(path) for path in written]})
        return
    for path in written:
        print(path)
