"""Emphasis densities as a PNG, through matplotlib (extra `plot`)."""

from __future__ import annotations

import io
from collections.abc import Sequence

from reweigh.errors import require
from reweigh.lab.figures.curves import Curve, height_of
from reweigh.lab.figures.svg import COLOURS

DASHES = ("solid", "dashed", "dotted", "dashdot")


def png(curves: Sequence[Curve]) -> bytes:
    """The curves over p with their modes as dots, and a legend."""
    # Figure and canvas by hand: pyplot would keep a global state and might look for a display.
    figure = require("matplotlib.figure", extra="plot").Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(curve.p, curve.h, color=colour, linestyle=DASHES[i % len(DASHES)], label=curve.label, linewidth=2)
        axes.plot(curve.modes, [curve.at(mode) for mode in curve.modes], "o", color=colour, clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1.05 * height_of(curves)))
    axes.set_xlabel("p, the probability of the label")
    axes.set_ylabel("emphasis density w / ∫ w dp")
    axes.grid(axis="y", color="#e4e4e4")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.legend(loc="upper right", frameon=True)
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()
