"""`reweigh show`: one run, whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.engine import called, print_result
from reweigh.lab.cli.find import find_run
from reweigh.lab.cli.options import Json, RunsRoot
from reweigh.lab.cli.terminal import can_print, console, number, print_json, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.record import Header

# The scalars of a row, the most telling first; a narrow terminal shows fewer of them, --json all there is.
SHOWN = (
    "step",
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
WIDEST = 60  # characters of a sparkline


def show(
    run: Annotated[str, typer.Argument(help="A run: its folder, or the start of its hash.")],
    most: Annotated[int, typer.Option("--rows", min=0, help="Rows to show, evenly spaced; 0 for all.")] = 12,
    runs: RunsRoot = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show a run: what it is, where it comes from, how it went, what it gave."""
    from reweigh.lab.record import read_run

    folder = find_run(run, runs)
    header, rows, result = read_run(folder)
    if as_json:
        print_json({"folder": str(folder), "header": header.to_mapping(), "rows": rows, "result": result})
        return
    out = console()
    print(folder)
    out.print(table(("", ""), provenance(header), left=2, header=False))
    if rows:
        print()
        holdout = str(header.details.get("holdout", "test"))
        out.print(rows_table(rows, most, out.width, holdout))
        print()
        out.print(curves_table(rows, holdout))
    print()
    if result is None:
        print(f"not done; to go on: reweigh resume {folder}")
    else:
        print_result(result)


def provenance(header: Header) -> list[tuple[str, str]]:
    """What the run is, and what decided its result besides."""
    lines = [(name, str(value)) for name, value in header.run.to_mapping().items()]
    lines.append(("examples", f"{header.examples:,}"))
    noise = header.details.get("noise")
    if noise is not None:
        lines.append(("measured noise", f"{number(noise['measured'])} (nominal {number(noise['rate'])})"))
    if (holdout := header.details.get("holdout", "test")) != "test":
        lines.append(("tested on", f"{holdout}: a part of these data, set aside with its labels as given"))
    lines += [("data hash", header.data_hash[:12]), ("label hash", header.label_hash[:12])]
    for environment in header.environments:
        facts = (f"{name} {value}" for name, value in environment.items() if value not in (None, False))
        lines.append(("made with", ", ".join(facts)))
    return lines


def rows_table(rows: Sequence[Mapping[str, Any]], most: int, width: int, holdout: str = "test") -> RenderableType:
    """The rows, or `most` of them from the first to the last, with the columns that `width` has room for."""
    names = [name for name in SHOWN if any(row.get(name) is not None for row in rows)]
    heads = [called(name, holdout).split() for name in names]
    chosen = [[number(rows[i].get(name)) for name in names] for i in spaced(len(rows), most)]
    room = [2 + max(map(len, (*head, *column))) for head, *column in zip(heads, *chosen, strict=True)]
    fit = sum(total <= width for total in accumulate(room))
    return table(["\n".join(head) for head in heads[:fit]], [row[:fit] for row in chosen], left=0)


def curves_table(rows: Sequence[Mapping[str, Any]], holdout: str = "test") -> RenderableType:
    """A sparkline for each column, with its first and last value."""
    from reweigh.lab.figures.bars import ASCII, BLOCKS, sparkline

    ramp = BLOCKS if can_print(BLOCKS) else ASCII
    lines = []
    for name in SHOWN[1:-1]:  # neither step nor learning rate
        values = [rows[i].get(name) for i in spaced(len(rows), WIDEST)]
        there = [value for value in values if value is not None]
        if there:
            lines.append((called(name, holdout), sparkline(values, ramp), there[0], there[-1]))
    return table(("", "over time", "first", "last"), lines, left=2)


def spaced(count: int, most: int) -> list[int]:
    """At most `most` of `count` indices, evenly spaced, with both ends; all of them for 0.

    >>> spaced(10, 4), spaced(3, 10), spaced(3, 0), spaced(5, 1)
    ([0, 3, 6, 9], [0, 1, 2], [0, 1, 2], [4])
    """
    if most == 0 or count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)] if most > 1 else [count - 1]
