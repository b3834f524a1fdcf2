"""`reweigh export`: write a model for use without reweigh."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer

from reweigh.errors import DataError
from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.paths import check_output, find_model
from reweigh.lab.cli.terminal import echo, print_json


class Format(str, Enum):
    """File formats, by the suffix of the file."""

    onnx = "onnx"
    torchscript = "torchscript"


SUFFIX = {Format.onnx: ".onnx", Format.torchscript: ".pt"}


def export(
    model: Annotated[str, typer.Argument(help="Directory of a model, or the run that trained it.")],
    form: Annotated[Format, typer.Option("--format", help="File format; onnx needs the extra: export.")] = Format.onnx,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file (model.onnx or model.pt).")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the best model instead of the final one.")] = False,
    data_root: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the run's data, on whose rows the file is checked.")
    ] = None,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Write a model as ONNX or TorchScript, with its preprocessing inside.

    The file reads raw pixels or table columns and returns the probabilities of the classes, whose names are in its
    metadata. It is written only if it agrees with the model on rows of the run's data.

    Example: reweigh export 31bd641c --format torchscript -o model.pt
    """
    from dataclasses import replace

    from reweigh.lab.export import export as write
    from reweigh.lab.run.material import gather
    from reweigh.lab.train.model import load_model

    output = output or Path(f"model{SUFFIX[form]}")
    check_output("--output", output, (SUFFIX[form],))
    folder = find_model(model, runs)
    which: Literal["final", "best"] = "best" if best else "final"
    _, card = load_model(folder, which)
    if card.run is None:
        raise DataError(f"{folder}: has no run, so there are no rows to check the file on")
    run = card.run if data_root is None else replace(card.run, data_root=data_root)
    material = gather(run)
    rows = material.dataset.test if len(material.dataset.test) else material.train
    done = write(folder, output, rows, form.value, which)
    if as_json:
        print_json(done._asdict() | {"path": str(done.path), "model": str(folder), "class_names": card.class_names})
        return
    echo(f"{done.path}: reads {done.reads}; returns {len(card.class_names)} probabilities")
    echo(f"checked on {done.rows} rows: largest difference of a probability {done.difference:.1e}")
