"""`reweigh predict`: what a trained model says of new inputs."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.find import find_model
from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.outputs import check_output
from reweigh.lab.cli.progress import progress
from reweigh.lab.cli.terminal import console, print_json, say, table

if TYPE_CHECKING:
    from reweigh.lab.predict import Predictions

SHOWN = 20  # rows on a terminal
NAMED = 10  # empty texts
HEADER = "example,class,p"  # of the CSV, before the probabilities of all classes


def predict(
    model: Annotated[str, typer.Argument(help="A model's folder, or the run that made it.")],
    inputs: Annotated[Path, typer.Argument(help="A folder of images, an image, a .csv, .parquet, .npz, or .txt.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a CSV file."),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The best model instead of the final one.")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The probability of every class, not of the predicted one alone.")
    ] = False,
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, ...")] = "auto",
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Predict classes: for each example its class and the probability of that class.

    Without an output file the rows go to standard output as CSV, or, on a terminal, as a table of the first few. A
    text that is empty keeps its row, and standard error says where it is.
    """
    from reweigh.lab.predict import predict as apply

    folder = find_model(model, runs)
    check_output("--output", output, (".csv",), [inputs], begins=HEADER)
    with progress("examples") as tell:
        found = apply(folder, inputs, "best" if best else "final", device=device, progress=tell)
    if found.empty:
        more = f" and {len(found.empty) - NAMED} more" if len(found.empty) > NAMED else ""
        places = ", ".join(found.empty[:NAMED]) + more
        say(f"{inputs}: the text is empty: {places}; predicted there is what the model says of nothing")
    if output is not None:
        _write(output, as_csv(found, probabilities))
    if as_json:
        print_json(_as_mapping(found, probabilities) | {"model": str(folder), "file": output and str(output)})
    elif output is not None:
        print(f"{output}: {len(found.examples)} predictions")
    elif _is_terminal():
        _show(found)
    else:
        sys.stdout.write(as_csv(found, probabilities))


def as_csv(found: Predictions, probabilities: bool) -> str:
    """A line for each example: its name, the predicted class and its probability, and all probabilities if wanted."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    names = [f"p({name})" for name in found.class_names] if probabilities else []
    writer.writerow([*HEADER.split(","), *names])
    for example, k, row in zip(found.examples, found.classes.tolist(), found.probabilities.tolist(), strict=True):
        every = [f"{p:.6g}" for p in row] if probabilities else []
        name = example.encode("utf-8", "backslashreplace").decode()  # a file's name may be in another encoding
        writer.writerow([name, found.class_names[k], f"{row[k]:.6g}", *every])
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    from reweigh.lab.record.files import replace_file

    replace_file(path, lambda file: file.write(text.encode()))


def _as_mapping(found: Predictions, probabilities: bool) -> dict[str, Any]:
    classes = [found.class_names[k] for k in found.classes.tolist()]
    told = {"example": found.examples, "class": classes, "p": found.p, "empty": found.empty}
    return told | ({"class_names": found.class_names, "probabilities": found.probabilities} if probabilities else {})


def _show(found: Predictions) -> None:
    rows = zip(found.examples, (found.class_names[k] for k in found.classes), found.p.tolist(), strict=True)
    console().print(table(("example", "class", "p"), list(rows)[:SHOWN], left=2))
    if len(found.examples) > SHOWN:
        print(f"... and {len(found.examples) - SHOWN} more; -o FILE.csv writes them all")


def _is_terminal() -> bool:
    return sys.stdout.isatty()
