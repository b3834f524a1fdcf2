"""`reweigh show`: one run in detail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.paths import find_run
from reweigh.lab.cli.runner import column_title, columns_of, named_by_holdout, print_result, result_as_json
from reweigh.lab.cli.terminal import can_print, console, echo, format_value, print_json, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.record import Header

# The scalars of a row, the most important first: a narrow terminal shows fewer, --json prints all.
SHOWN = (
    "step",
    "objective",
    "loss",
    "test_accuracy",
    "validation_accuracy",
    "train_accuracy",
    "train_accuracy_clean",
    "fit_clean",
    "fit_noisy",
    "p_clean",
    "p_noisy",
    "weight_noisy",
    "test_ece",
    "lr",
)
LISTED = 12  # classes and errors; --json prints all
WIDEST = 60  # characters of a sparkline


def show(
    run: Annotated[str, typer.Argument(help="A run: its directory, or the start of its hash.")],
    most: Annotated[int, typer.Option("--rows", min=0, help="Number of rows to show, evenly spaced; 0: all.")] = 12,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show the settings, provenance, learning curves and result of a run."""
    from reweigh.lab.record import read_run

    folder = find_run(run, runs)
    header, rows, result = read_run(folder)
    holdout = str(header.details.get("holdout", "test"))
    if as_json:
        named = {"rows": named_by_holdout(rows, holdout), "result": result_as_json(result)}
        print_json({"folder": str(folder), "header": header.to_mapping(), **named})
        return
    out = console()
    echo(folder)
    out.print(table(("", ""), provenance(header), left=2, header=False))
    if rows:
        echo()
        out.print(rows_table(rows, most, out.width, holdout))
        echo()
        out.print(curves_table(rows, holdout))
    echo()
    if result is None:
        echo(f"not finished; to resume: reweigh resume {folder}")
    else:
        print_result(result)
        for part in class_tables(result, header.details.get("class_names", ())):
            echo()
            out.print(part)


def class_tables(result: Mapping[str, Any], names: Sequence[str]) -> Iterator[RenderableType]:
    """Yield the scores of each class, the lowest F1 first, and the most frequent errors on the test set."""
    columns = [result.get(f"per_class_{name}") for name in ("precision", "accuracy", "f1", "count")]
    if result.get("diverged") is not None or any(column is None for column in columns):
        return  # a run of an earlier version has no such columns
    rows: list[tuple[Any, ...]] = list(zip(names, *columns, strict=True))
    rows.sort(key=lambda row: -1 if row[3] is None else row[3])
    yield table(("class", "precision", "recall", "F1", "examples"), rows[:LISTED])
    errors = [
        (count, names[i], names[j])
        for i, row in enumerate(result.get("confusion") or ())
        for j, count in enumerate(row)
        if count and i != j
    ]
    if errors:
        most = [(label, predicted, count) for count, label, predicted in sorted(errors, key=lambda e: -e[0])[:LISTED]]
        yield table(("label", "predicted as", "times"), most, left=2)


def provenance(header: Header) -> list[tuple[str, str]]:
    """Return the fields of the run, and everything else that decided its result."""
    lines = [(name, str(value)) for name, value in header.run.to_mapping().items()]
    lines.append(("examples", f"{header.examples:,}"))
    noise = header.details.get("noise")
    if noise is not None:
        lines.append(("measured noise", f"{format_value(noise['measured'])} (nominal {format_value(noise['rate'])})"))
    if (holdout := header.details.get("holdout", "test")) != "test" and header.run.holdout == 0:
        lines.append(("tested on", "nothing: all examples are for training"))
    elif holdout != "test":
        lines.append(("tested on", f"{holdout}: part of these data, held out with its given labels"))
    lines += [("data hash", header.data_hash[:12]), ("label hash", header.label_hash[:12])]
    for environment in header.environments:
        facts = (f"{name} {value}" for name, value in environment.items() if value not in (None, False))
        lines.append(("made with", ", ".join(facts)))
    return lines


def rows_table(rows: Sequence[Mapping[str, Any]], most: int, width: int, holdout: str = "test") -> RenderableType:
    """Return the table of at most `most` rows, from the first to the last, with the columns that fit in `width`."""
    from reweigh.lab.figures.figure import thin

    names = [name for name in SHOWN if any(row.get(name) is not None for row in rows)]
    heads = [column_title(name, holdout, columns_of(rows)).split() for name in names]
    chosen = [[format_value(rows[i].get(name)) for name in names] for i in thin(len(rows), most or len(rows))]
    room = [2 + max(map(len, (*head, *column))) for head, *column in zip(heads, *chosen, strict=True)]
    fit = sum(total <= width for total in accumulate(room))
    return table(["\n".join(head) for head in heads[:fit]], [row[:fit] for row in chosen], left=0)


def curves_table(rows: Sequence[Mapping[str, Any]], holdout: str = "test") -> RenderableType:
    """Return a sparkline of each column, with its first and last value."""
    from reweigh.lab.figures.figure import thin
    from reweigh.lab.figures.text import ASCII, BLOCKS, sparkline

    ramp = BLOCKS if can_print(BLOCKS) else ASCII
    lines = []
    for name in SHOWN[1:-1]:  # neither step nor learning rate
        values = [rows[i].get(name) for i in thin(len(rows), WIDEST)]
        measured = [value for value in values if value is not None]
        if measured:
            lines.append(
                (column_title(name, holdout, columns_of(rows)), sparkline(values, ramp), measured[0], measured[-1])
            )
    return table(("", "over time", "first", "last"), lines, left=2)
