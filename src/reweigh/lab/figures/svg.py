"""Emphasis densities as an SVG file, written by hand: no dependency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from reweigh.lab.figures.curves import Curve, height_of
from reweigh.lab.figures.ticks import ticks

# Okabe and Ito's colours, which colour-blind readers can tell apart, in an order that goes well on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
DASHES = ("", "7 4", "2 3", "9 3 2 3")

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 20, 52
LINE = 20  # of the legend


def svg(curves: Sequence[Curve]) -> str:
    """The curves over p with their modes as dots, and a legend."""
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
    return DASHES[i % len(DASHES)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "", width: int = 1) -> str:
    place = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {place} stroke="{colour}" stroke-width="{width}" {more}/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="#222" {more}>{escape(text)}</text>'
