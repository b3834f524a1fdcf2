"""`reweigh data`: list, download and describe data sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.options import Json
from reweigh.lab.cli.terminal import console, echo, print_json, print_stderr, progress, table

if TYPE_CHECKING:
    from reweigh.lab.data import Dataset
    from reweigh.lab.data.dataset import Part

app = typer.Typer(help="List, download and describe data sets.", no_args_is_help=True)

Root = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Data directory; default: $REWEIGH_DATA."),
]


@app.command("list")
def list_command(root: Root = None, as_json: Json = False) -> None:
    """List the named data sets and their licences."""
    from reweigh.lab.data.get import SOURCES

    folder = _folder(root)
    rows = []
    for name, source in SOURCES.items():
        if not source.gives:
            state = "built in"
        elif folder is not None and source.is_in(folder):
            state = "downloaded"
        else:
            state = "available" if source.files else "manual download"
        rows.append((name, state, source.licence))
    if as_json:
        listed = [{"name": name, "state": state, "licence": licence} for name, state, licence in rows]
        print_json({"root": folder and str(folder), "data": listed})
        return
    echo(f"data directory: {folder if folder is not None else 'none (set REWEIGH_DATA, or give --root)'}\n")
    console().print(table(("name", "state", "licence"), rows, left=3))
    echo("\nTo download: reweigh data get NAME. For your own data, give reweigh train --data a path.")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="Name of a data set; see reweigh data list.")],
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Download a data set from its official address, verify it, and unpack it into the data directory."""
    from reweigh.lab.data.get import SOURCES
    from reweigh.lab.data.get import get as fetch

    folder = _folder(root)
    if folder is None and name in SOURCES and SOURCES[name].gives:
        raise ValueError("no data directory: give --root DIR, or set the environment variable REWEIGH_DATA")
    with progress("B") as show:
        paths = fetch(name, folder or Path(), show)
    licence = SOURCES[name].licence
    if as_json:
        print_json({"name": name, "paths": list(map(str, paths)), "licence": licence})
        return
    for path in paths:
        echo(path)
    echo(licence)


@app.command()
def info(
    spec: Annotated[str, typer.Argument(metavar="NAME_OR_PATH", help="Name of a data set, or path of your own.")],
    root: Root = None,
    label: Annotated[str | None, typer.Option(help="Label column of a table.")] = None,
    text: Annotated[str | None, typer.Option(help="Text column of a table.")] = None,
    as_json: Json = False,
) -> None:
    """Describe a data set: kind, sizes, classes and content hash."""
    from reweigh.lab.data.get import SOURCES
    from reweigh.lab.data.registry import load

    print_stderr(f"reading {spec}")
    dataset = load(spec, root, label=label, text=text)
    licence = SOURCES[spec].licence if spec in SOURCES else None
    if as_json:
        print_json(_as_mapping(dataset) | {"licence": licence})
        return
    facts = [
        ("name", dataset.name),
        ("kind", dataset.kind + (f" {'x'.join(map(str, dataset.train.shape))}" if dataset.train.shape else "")),
        ("train", f"{len(dataset.train):,}"),
        (dataset.holdout, f"{len(dataset.test):,}"),
        ("classes", f"{dataset.num_classes:,}"),
        *([("groups", f"{len(set(dataset.groups)):,}")] if dataset.groups is not None else []),
        ("sha256", dataset.hash),
        *([("licence", licence)] if licence is not None else []),
    ]
    out = console()
    out.print(table(("", ""), facts, left=2, header=False))
    counts = [_counts(part, dataset.num_classes) for part in (dataset.train, dataset.test)]
    rows = list(zip(dataset.class_names, *counts, strict=True))
    echo()
    out.print(table(("class", "train", dataset.holdout), rows[:20]))
    if len(rows) > 20:
        echo(f"... and {len(rows) - 20} more classes; --json prints all")


def _counts(part: Part, num_classes: int) -> list[int]:
    import numpy as np

    counts: list[int] = np.bincount(part.labels, minlength=num_classes).tolist()
    return counts


def _as_mapping(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "kind": dataset.kind,
        "shape": dataset.train.shape,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "holdout": dataset.holdout,
        "class_names": dataset.class_names,
        "train_counts": _counts(dataset.train, dataset.num_classes),
        "test_counts": _counts(dataset.test, dataset.num_classes),
        "groups": dataset.groups,
        "hash": dataset.hash,
    }


def _folder(root: Path | None) -> Path | None:
    """Return the data directory: the option, or that of the environment."""
    if root is not None:
        return root
    found = os.environ.get("REWEIGH_DATA")
    return Path(found) if found else None
