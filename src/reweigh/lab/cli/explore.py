"""`reweigh explore`: turn the knobs of a weighting, in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reweigh.lab.cli.options import Json
from reweigh.lab.cli.outputs import PAGE, check_output
from reweigh.lab.cli.terminal import print_json


def explore(
    weighting: Annotated[
        str, typer.Argument(help='Where to start, such as "DM(0.5, 12)" or "GCE(0.7)".')
    ] = "DM(0.5, 8)",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path("explore.html"),
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Write the explorer: one HTML page with sliders for every weighting, which needs neither server nor network.

    It shows w, the emphasis density, its mode, variance and shares, the objective, and who gets how much of a batch,
    beside CCE, GCE and a second weighting, and gives the line of Python and the command to use it.
    """
    from reweigh.lab.record.files import replace_file
    from reweigh.lab.report import explorer_page

    check_output("--output", output, PAGE)
    page = explorer_page(weighting)
    replace_file(output, lambda file: file.write(page.encode()))
    if show:
        import webbrowser

        webbrowser.open(output.resolve().as_uri())
    if as_json:
        print_json({"file": str(output)})
    else:
        print(output)
