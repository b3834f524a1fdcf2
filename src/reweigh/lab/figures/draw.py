"""Draw figures into PNG, SVG or PDF files through matplotlib (extra `plot`)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from reweigh.errors import require
from reweigh.lab.figures.figure import COLOURS, Bars, Figure, Heat, Lines, Stack, isolated
from reweigh.lab.record.files import make_folder, replace_file

DASHES = ("solid", "dashed", "dotted")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
_LEGEND_INSIDE = 8  # lines up to which the legend is inside the panel
_PANEL = (6.4, 4.2)  # inches
_WITH_NUMBERS = 12  # classes up to which a heat map shows its numbers
_LITERAL_TEXT = {"text.parse_math": False}  # the name of a class may be $_$


def write_figures(figures: Sequence[Figure], path: Path, *, columns: int | None = None) -> None:
    """Draw one figure, or several as panels, into a .png, .svg or .pdf file."""
    save_figure(draw_figures(figures, columns=columns), path)


def save_figure(drawn: Any, path: Path) -> None:
    """Save a figure of matplotlib in a .png, .svg or .pdf file; equal figures give equal bytes."""
    suffix = path.suffix.lower()
    if suffix not in FIGURE_SUFFIXES:
        raise ValueError(f"{path}: a figure ends in {', '.join(FIGURE_SUFFIXES)}")
    content = io.BytesIO()
    matplotlib = require("matplotlib", extra="plot")
    # a fixed salt for ids and no date: equal figures give equal bytes
    with matplotlib.rc_context({"svg.hashsalt": "reweigh", **_LITERAL_TEXT}):
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
        drawn.savefig(content, format=suffix[1:], metadata=metadata)
    make_folder(path.parent)
    replace_file(path, lambda file: file.write(content.getvalue()))


def draw_figures(figures: Sequence[Figure], *, columns: int | None = None) -> Any:
    """Return a `matplotlib.figure.Figure` with one panel per figure, `columns` in a row (by default up to three)."""
    if not figures:
        raise ValueError("no figure to draw")
    columns = columns or min(3, len(figures))
    rows = math.ceil(len(figures) / columns)
    # not through pyplot, which keeps global state and may need a display
    size = (_PANEL[0] * columns, _PANEL[1] * rows)
    drawn = require("matplotlib.figure", extra="plot").Figure(figsize=size, dpi=150, layout="constrained")
    with require("matplotlib", extra="plot").rc_context(_LITERAL_TEXT):
        for i, figure in enumerate(figures):
            _panel(drawn, drawn.add_subplot(rows, columns, i + 1), figure)
    return drawn


def _panel(drawn: Any, axes: Any, figure: Figure) -> None:
    axes.set_title(fill(figure.title, 60), fontsize=11)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.spines[["top", "right"]].set_visible(False)
    match figure:
        case Lines():
            _lines(axes, figure)
        case Stack():
            _stack(axes, figure)
        case Heat():
            _heat(drawn, axes, figure)
        case Bars():
            _bars(axes, figure)


def _lines(axes: Any, figure: Lines) -> None:
    factor = 100 if figure.percent else 1
    colours: dict[object, str] = {}
    for i, series in enumerate(figure.series):
        key = ("own", i) if series.group is None else series.group
        colour = colours.setdefault(key, COLOURS[len(colours) % len(COLOURS)])
        x, y = np.array(series.x), _array(series.y) * factor
        single = isolated(series.y)
        style = {"color": colour, "linestyle": DASHES[series.variant % 3], "linewidth": 1.8}
        if single:
            style |= {"marker": "o", "markevery": single, "markerfacecolor": "white" if series.variant else colour}
        axes.plot(x, y, label=fill(series.name, 40), **style)
        if series.spread is not None:
            room = np.nan_to_num(_array(series.spread)) * factor
            axes.fill_between(x, y - room, y + room, color=colour, alpha=0.15, linewidth=0)
    if figure.counts is not None:
        most = max(count for _, count in figure.counts)
        at, heights = zip(*((x, 0.25 * (figure.top or 1) * count / most) for x, count in figure.counts), strict=True)
        axes.bar(at, heights, width=0.05, color="#999999", alpha=0.4)
    axes.grid(axis="y", color="#e4e4e4")
    if figure.top is not None:
        axes.set_ylim(0, figure.top * factor)
    if figure.percent:
        axes.set_ylabel(f"{figure.y_label} (%)")
    if len(figure.series) > 1 or any(series.group is None for series in figure.series):
        outside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if len(figure.series) > _LEGEND_INSIDE else {}
        axes.legend(fontsize=8, frameon=True, framealpha=0.85, edgecolor="none", **outside)


def _stack(axes: Any, figure: Stack) -> None:
    colours = require("matplotlib", extra="plot").colormaps["viridis"](np.linspace(0.05, 0.95, len(figure.names)))
    layers = np.nan_to_num(np.array([_array(layer) for layer in figure.layers])) * 100
    labels = [f"p {name}" for name in figure.names]
    if len(figure.x) == 1:  # an area would have no width
        for layer, floor, label, colour in zip(layers, np.cumsum(layers, 0) - layers, labels, colours, strict=True):
            axes.bar(figure.x, layer, bottom=floor, label=label, color=colour, width=1)
        axes.set_xlim(figure.x[0] - 1.5, figure.x[0] + 1.5)
        axes.set_xticks(figure.x)
    else:
        axes.stackplot(figure.x, layers, labels=labels, colors=colours, linewidth=0)
    axes.margins(0)
    axes.set_ylabel(f"{figure.y_label} (%)")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _heat(drawn: Any, axes: Any, figure: Heat) -> None:
    values = np.array([_array(row) for row in figure.values]) * (100 if figure.percent else 1)
    scale = require("matplotlib.colors", extra="plot").PowerNorm(0.5, 0, np.nanmax(values, initial=1e-12))
    image = axes.imshow(values, cmap="Blues", norm=scale, aspect="auto", interpolation="nearest")
    for axis, names in ((axes.xaxis, figure.columns), (axes.yaxis, figure.rows)):
        step = max(1, math.ceil(len(names) / 12))
        axis.set_ticks(range(0, len(names), step), names[::step], fontsize=8)
    if max(values.shape) <= _WITH_NUMBERS and not figure.percent:
        for (i, j), value in np.ndenumerate(values):
            dark = scale(value) > 0.6
            axes.text(j, i, f"{value:.4g}", ha="center", va="center", fontsize=7, color="white" if dark else "#222")
    drawn.colorbar(image, ax=axes, label="%" if figure.percent else None)


def _bars(axes: Any, figure: Bars) -> None:
    width = 0.8 / len(figure.sets)
    places = np.arange(len(figure.names))
    for i, (name, values) in enumerate(figure.sets):
        heights = _array(values) * (100 if figure.percent else 1)
        axes.bar(places + (i - (len(figure.sets) - 1) / 2) * width, heights, width, label=name, color=COLOURS[i % 7])
    axes.set_xticks(places, figure.names, rotation=90 if len(figure.names) > 12 else 0, fontsize=8)
    if figure.percent:
        axes.set_ylabel(f"{figure.y_label} (%)")
    if len(figure.sets) > 1:
        axes.legend(fontsize=8, frameon=False)


def _array(values: Sequence[float | None]) -> Any:
    return np.array([math.nan if value is None else value for value in values], dtype=float)
