"""`reweigh edf`: draw emphasis densities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reweigh.lab.cli.options import Json
from reweigh.lab.cli.paths import check_output
from reweigh.lab.cli.terminal import can_print, console, echo, format_value, print_json, table
from reweigh.lab.spec import is_scheduled, parse

if TYPE_CHECKING:
    from rich.console import RenderableType

    from reweigh.lab.figures.curves import Curve

COLUMNS, LINES = 34, 8  # of one curve in the terminal


def edf(
    weightings: Annotated[
        list[str],
        typer.Argument(
            metavar="WEIGHTING", help='Weightings, such as "DM(0.5, 12)", "GCE(0.7)", CCE, "CCE + 0.5 * MAE".'
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also draw them into an .svg or .png file."),
    ] = None,
    taper: Annotated[
        float | None,
        typer.Option(min=0, help="Taper of the objective; default: as in training."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw emphasis density functions: the weight of an example over the probability p of its label.

    Each curve is w divided by its integral. The objective is the function whose gradient training follows at a fixed
    scale; robustness theorems require it to be bounded.
    """
    from reweigh.lab.figures.curves import curve_of
    from reweigh.lab.weightings import weighting_from

    check_output("--output", output, (".svg", ".png"))
    expressions = [parse(text) for text in weightings]
    for expression in expressions:
        if is_scheduled(expression):
            raise ValueError(f"{expression}: a schedule has no single curve; give numbers instead")
    curves = [curve_of(weighting_from(expression), str(expression), taper=taper) for expression in expressions]
    if output is not None:
        from reweigh.lab.figures.draw_curves import write_curves

        write_curves(curves, output)
    if as_json:
        print_json(
            {"curves": [_as_mapping(curve) for curve in curves], "file": None if output is None else str(output)}
        )
        return
    console().print(side_by_side(curves))
    echo()
    console().print(facts(curves))
    if output is not None:
        echo(f"\n{output}")


def side_by_side(curves: Sequence[Curve]) -> RenderableType:
    """Return all curves as text on one scale, as many in a row as fit."""
    from rich.columns import Columns

    from reweigh.lab.figures.curves import height_of
    from reweigh.lab.figures.text import ASCII, BLOCKS, bars

    ramp = BLOCKS if can_print(BLOCKS + "└─") else ASCII
    top = height_of(curves)
    drawn = []
    for curve in curves:
        values = [curve.at(i / (COLUMNS - 1)) for i in range(COLUMNS)]
        lines = bars(values, LINES, top, ramp)
        scale = [f"{top:6.3g}", *[" " * 6] * (LINES - 2), f"{0:6}"]
        body = [f"{mark} {line}" for mark, line in zip(scale, lines, strict=True)]
        axis = f"{'':6} p=0{'1':>{COLUMNS - 3}}"
        drawn.append("\n".join([f"{'':6} {curve.label}"[: COLUMNS + 7], *body, axis]))
    return Columns(drawn, padding=(1, 3))


def facts(curves: Sequence[Curve]) -> RenderableType:
    """Return the table of the curves' numbers, one line each."""
    columns = ("weighting", "mode", "integral", "variance", "of w/∫w", "on p<½", "taper", "objective", "bounded")
    if not can_print("".join(columns)):
        columns = ("weighting", "mode", "integral", "variance", "of w/Z", "on p<0.5", "taper", "objective", "bounded")
    rows = [
        (
            curve.label,
            " and ".join(map(format_value, curve.modes)) or "none",
            curve.integral,
            curve.variance,
            curve.density_variance,
            curve.hard,
            curve.taper,
            " to ".join(f"{end:.4g}" for end in curve.objective),
            "yes" if curve.bounded else "no",
        )
        for curve in curves
    ]
    return table(columns, rows)


def _as_mapping(curve: Curve) -> dict[str, Any]:
    return {
        "weighting": curve.label,
        "mode": curve.mode,
        "integral": curve.integral,
        "variance": curve.variance,
        "density_variance": curve.density_variance,
        "share_below_half": curve.hard,
        "taper": curve.taper,
        "objective": curve.objective,
        "bounded": curve.bounded,
        "p": curve.p,
        "density": curve.h,
    }
