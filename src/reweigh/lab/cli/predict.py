"""`reweigh predict`: classes and probabilities of new inputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.paths import check_output, find_model
from reweigh.lab.cli.terminal import console, echo, print_json, print_stderr, progress, table
from reweigh.lab.csv_text import csv_text

if TYPE_CHECKING:
    from reweigh.lab.predict import Predictions

SHOWN, SHOWN_BESIDE = 20, 3  # rows, and columns besides the predictions, on a terminal
LISTED = 10  # empty texts
HEADER = "example,class,p"  # first columns of the CSV


def predict(
    model: Annotated[str, typer.Argument(help="Directory of a model, or the run that trained it.")],
    inputs: Annotated[
        Path,
        typer.Argument(
            help="A directory of images, an image, a .csv, .parquet, .npz or .txt file, or - for standard input: CSV, "
            "or for a model of texts one text per line."
        ),
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
    own_code: Annotated[
        bool, typer.Option("--own-code", help="Execute the recorded code of a net from a Python file; read it first.")
    ] = False,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Predict the class of each example, and its probability.

    Without --output, predictions are printed as CSV, or on a terminal as a table of the first 20. Next to them are the
    path of an image, the text, or the columns of the table that the model does not read, such as a key. Empty texts are
    predicted as well and listed on standard error.
    """
    from reweigh.lab.predict import predict as apply

    folder = find_model(model, runs)
    check_output("--output", output, (".csv",), [inputs], begins=HEADER)
    with progress("examples") as show, _as_file(inputs, folder) as file:
        found = apply(folder, file, "best" if best else "final", device=device, own_code=own_code, progress=show)
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


@contextmanager
def _as_file(inputs: Path, folder: Path) -> Iterator[Path]:
    """Yield the file to read; for `-` a copy of standard input, whose name in errors is "standard input"."""
    if inputs != Path("-"):
        yield inputs
        return
    from reweigh.lab.predict import reads_text, run_of
    from reweigh.lab.train.model import load_model

    suffix = ".txt" if reads_text(run_of(load_model(folder)[1])) else ".csv"
    with TemporaryDirectory() as place:
        file = Path(place) / f"standard input{suffix}"
        file.write_bytes(sys.stdin.buffer.read())
        try:
            yield file
        except DataError as error:
            raise DataError(str(error).replace(str(file), "standard input")) from error


def as_csv(found: Predictions, probabilities: bool) -> str:
    """Return a CSV line for each example: its name, the predicted class, p, optionally all probabilities, the rest."""
    names = [*HEADER.split(","), *([f"p({name})" for name in found.class_names] if probabilities else [])]
    beside = [f"{name} (input)" if name in names else name for name in found.beside]
    lines = []
    for i, (example, k, row) in enumerate(
        zip(found.examples, found.classes.tolist(), found.probabilities, strict=True)
    ):
        every = [f"{p:.6g}" for p in row.tolist()] if probabilities else []
        rest = [_encodable(column[i]) for column in found.beside.values()]
        lines.append([_encodable(example), found.class_names[k], f"{row[k]:.6g}", *every, *rest])
    return csv_text([*names, *beside], lines)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()  # a file's name may be in another encoding


def _write(path: Path, text: str) -> None:
    from reweigh.lab.record.files import replace_file

    replace_file(path, lambda file: file.write(text.encode()))


def _as_mapping(found: Predictions, probabilities: bool) -> dict[str, Any]:
    classes = [found.class_names[k] for k in found.classes.tolist()]
    mapping = {"example": found.examples, "class": classes, "p": found.p, "empty": found.empty}
    mapping |= {"beside": dict(found.beside)} if found.beside else {}
    return mapping | ({"class_names": found.class_names, "probabilities": found.probabilities} if probabilities else {})


def _show(found: Predictions) -> None:
    beside = list(found.beside.values())[:SHOWN_BESIDE]
    names = (found.class_names[k] for k in found.classes)
    rows = list(zip(found.examples, names, found.p.tolist(), *beside, strict=True))[:SHOWN]
    rows = [tuple(_short(value) for value in row) for row in rows]
    heads = ("example", "class", "p", *list(found.beside)[:SHOWN_BESIDE])
    console().print(table(heads, rows, left=2))
    if len(found.examples) > SHOWN:
        echo(f"... and {len(found.examples) - SHOWN} more; -o FILE.csv writes all")


def _short(value: Any) -> Any:
    return f"{value[:59]}…" if isinstance(value, str) and len(value) > 60 else value


def _is_terminal() -> bool:
    return sys.stdout.isatty()
