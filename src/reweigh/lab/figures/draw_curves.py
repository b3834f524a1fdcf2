"""Emphasis curves of weightings drawn into files: SVG without a dependency, PNG through matplotlib (extra `plot`)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from reweigh.errors import require
from reweigh.lab.figures.curves import Curve, height_of
from reweigh.lab.figures.figure import COLOURS
from reweigh.lab.record.files import make_folder, replace_file

SVG_DASHES = ("", "7 4", "2 3", "9 3 2 3")
PNG_DASHES = ("solid", "dashed", "dotted", "dashdot")

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 20, 52
LINE = 20  # of the legend


def write_curves(curves: Sequence[Curve], path: Path) -> None:
    """Write the curves to `path`, an .svg or, with matplotlib, a .png."""
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise ValueError(f"{path}: a figure ends in .svg or .png")
    content = curves_svg(curves).encode() if suffix == ".svg" else curves_png(curves)
    make_folder(path.parent)
    replace_file(path, lambda file: file.write(content))


def curves_png(curves: Sequence[Curve]) -> bytes:
    """Draw the curves over p, with their modes as dots and a legend, through matplotlib."""
    # not through pyplot, which keeps global state and may need a display
    figure = require("matplotlib.figure", extra="plot").Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(
            curve.p, curve.h, color=colour, linestyle=PNG_DASHES[i % len(PNG_DASHES)], label=curve.label, linewidth=2
        )
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


def curves_svg(curves: Sequence[Curve]) -> str:
    """Draw the curves over p, with their modes as dots and a legend."""
    top = 1.05 * height_of(curves)

    def x(p: float) -> float:
        return LEFT + p * (WIDTH - LEFT - RIGHT)

    def y(h: float) -> float:
        return HEIGHT - BOTTOM - min(h / top, 1.0) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" font-family="system-ui, Helvetica, Arial, sans-serif" font-size="13">',
        f"<title>Emphasis densities: {escape(', '.join(curve.label for curve in curves))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in ticks(top):
        parts.append(_line(x(0), y(tick), x(1), y(tick), "#e4e4e4"))
        parts.append(_text(x(0) - 8, y(tick) + 4, f"{tick:g}", "end"))
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1):
        parts.append(_line(x(tick), y(0), x(tick), y(0) + 5, "#333"))
        parts.append(_text(x(tick), y(0) + 20, f"{tick:g}", "middle"))
    parts.append(_line(x(0), y(0), x(1), y(0), "#333"))
    parts.append(_text(x(0.5), HEIGHT - 10, "p, the probability of the label", "middle"))
    turned = f'transform="rotate(-90 18 {y(top / 2):g})"'
    parts.append(_text(18, y(top / 2), "emphasis density w / ∫ w dp", "middle", turned))
    for i, curve in enumerate(curves):
        stroke = f'stroke="{_colour(i)}" stroke-width="2" stroke-dasharray="{_dash(i)}" fill="none"'
        points = [(x(p), y(h)) for p, h in zip(curve.p, curve.h, strict=True) if not math.isnan(h)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" {stroke} stroke-linejoin="round"/>')
        for mode in curve.modes:
            parts.append(f'<circle cx="{x(mode):.1f}" cy="{y(curve.at(mode)):.1f}" r="4" fill="{_colour(i)}"/>')
    parts += _legend(curves, x(1))
    return "\n".join([*parts, "</svg>\n"])


def _legend(curves: Sequence[Curve], right: float) -> list[str]:
    width = 48 + 7.4 * max(len(curve.label) for curve in curves)
    left = max(LEFT + 8.0, right - width - 8)
    box = f'x="{left:g}" y="{TOP + 4}" width="{right - left - 4:g}" height="{LINE * len(curves) + 10}"'
    parts = [f'<rect {box} fill="white" fill-opacity="0.85" stroke="#ccc"/>']
    for i, curve in enumerate(curves):
        middle = TOP + 4 + 5 + LINE * (i + 0.5)
        parts.append(_line(left + 8, middle, left + 34, middle, _colour(i), f'stroke-dasharray="{_dash(i)}"', 2))
        parts.append(_text(left + 40, middle + 4.5, curve.label, "start"))
    return parts


def _colour(i: int) -> str:
    return COLOURS[i % len(COLOURS)]


def _dash(i: int) -> str:
    return SVG_DASHES[i % len(SVG_DASHES)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "", width: int = 1) -> str:
    place = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {place} stroke="{colour}" stroke-width="{width}" {more}/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="#222" {more}>{escape(text)}</text>'


def ticks(top: float, most: int = 6) -> list[float]:
    """Return ticks for an axis: 0 and up to `most` multiples of 1, 2 or 5 times a power of ten, at most `top`.

    >>> ticks(3.4), ticks(0.07)
    ([0.0, 1.0, 2.0, 3.0], [0.0, 0.02, 0.04, 0.06])
    """
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(int(top / step + 1e-9) + 1)]
