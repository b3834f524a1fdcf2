"""`reweigh explore`: a page to try weightings on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reweigh.lab.cli.options import Json
from reweigh.lab.cli.paths import PAGE, check_output
from reweigh.lab.cli.terminal import echo, print_json


def explore(
    weighting: Annotated[
        str, typer.Argument(help='The first weighting, such as "DM(0.5, 12)" or "GCE(0.7)".')
    ] = "DM(0.5, 8)",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML page to write.")] = Path(
        "explore.html"
    ),
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: Json = False,
) -> None:
    """Write the weighting explorer: one HTML page with sliders for every weighting, which works offline.

    It shows w, the emphasis density with its mode, variance and shares, the objective, and the weight of each example
    of a batch, compared with CCE, GCE and a second weighting. It also gives the Python line and the command to use.
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
        echo(output)
