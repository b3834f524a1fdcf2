"""`reweigh predict`: classes and probabilities of new inputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.paths import check_output, find_model
from reweigh.lab.cli.terminal import console, echo, print_json, print_stderr, progress, table
from reweigh.lab.csv_text import csv_text

if TYPE_CHECKING:
    from reweigh.lab.predict import Predictions

SHOWN = 20  # rows on a terminal
LISTED = 10  # empty texts
HEADER = "example,class,p"  # first columns of the CSV


def predict(
    model: Annotated[str, typer.Argument(help="Directory of a model, or the run that trained it.")],
    inputs: Annotated[
        Path, typer.Argument(help="A directory of images, an image, or a .csv, .parquet, .npz or .txt file.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the predictions as CSV."),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the best model instead of the final one.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write the probabilities of all classes.")
    ] = False,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, ...")] = "auto",
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Predict the class of each example, and its probability.

    Without --output, predictions are printed as CSV, or on a terminal as a table of the first 20. Empty texts are
    predicted as well and listed on standard error.
    """
    from reweigh.lab.predict import predict as apply

    folder = find_model(model, runs)
    check_output("--output", output, (".csv",), [inputs], begins=HEADER)
    with progress("examples") as show:
        found = apply(folder, inputs, "best" if best else "final", device=device, progress=show)
    if found.empty:
        more = f" and {len(found.empty) - LISTED} more" if len(found.empty) > LISTED else ""
        places = ", ".join(found.empty[:LISTED]) + more
        print_stderr(f"{inputs}: empty texts: {places}; their predictions are those for no words at all")
    if output is not None:
        _write(output, as_csv(found, probabilities))
    if as_json:
        print_json(_as_mapping(found, probabilities) | {"model": str(folder), "file": output and str(output)})
    elif output is not None:
        echo(f"{output}: {len(found.examples)} predictions")
    elif _is_terminal():
        _show(found)
    else:
        sys.stdout.write(as_csv(found, probabilities))


def as_csv(found: Predictions, probabilities: bool) -> str:
    """Return a CSV line for each example: name, predicted class, its probability, and optionally all probabilities."""
    names = [f"p({name})" for name in found.class_names] if probabilities else []
    lines = []
    for example, k, row in zip(found.examples, found.classes.tolist(), found.probabilities.tolist(), strict=True):
        every = [f"{p:.6g}" for p in row] if probabilities else []
        name = example.encode("utf-8", "backslashreplace").decode()  # a file's name may be in another encoding
        lines.append([name, found.class_names[k], f"{row[k]:.6g}", *every])
    return csv_text([*HEADER.split(","), *names], lines)


def _write(path: Path, text: str) -> None:
    from reweigh.lab.record.files import replace_file

    replace_file(path, lambda file: file.write(text.encode()))


def _as_mapping(found: Predictions, probabilities: bool) -> dict[str, Any]:
    classes = [found.class_names[k] for k in found.classes.tolist()]
    mapping = {"example": found.examples, "class": classes, "p": found.p, "empty": found.empty}
    return mapping | ({"class_names": found.class_names, "probabilities": found.probabilities} if probabilities else {})


def _show(found: Predictions) -> None:
    rows = zip(found.examples, (found.class_names[k] for k in found.classes), found.p.tolist(), strict=True)
    console().print(table(("example", "class", "p"), list(rows)[:SHOWN], left=2))
    if len(found.examples) > SHOWN:
        echo(f"... and {len(found.examples) - SHOWN} more; -o FILE.csv writes all")


def _is_terminal() -> bool:
    return sys.stdout.isatty()
