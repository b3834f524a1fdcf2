"""The HTML page of a search, with its charts as SVG; one file without scripts or external resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from reweigh.lab.search.outcome import Outcome, Tried
from reweigh.lab.search.space import Range, Scalar
from reweigh.lab.spec import parse

WIDTH, HEIGHT, EDGE = 640, 400, 64
ROOM = 0.13  # of an axis, from one label to the next
# Viridis at nine places: even for every kind of eye, and in grey.
COLOURS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


class Axis(NamedTuple):
    """A choice as an axis: its name, the place in [0, 1] of a value, and values to write beside it."""

    name: str
    place: Callable[[Scalar], float]
    ticks: tuple[Scalar, ...]


def choices(outcome: Outcome, tried: Tried) -> dict[str, Scalar]:
    """What a trial chose, arguments and fields alike under their own names."""
    found: dict[str, Scalar] = {}
    for name, value in outcome.setting(tried).items():
        if name in ("weighting", "loss", "method"):
            expression = parse(str(value))
            found["taught by"] = expression.name
            found |= {key: item if isinstance(item, int | float) else str(item) for key, item in expression.kwargs}
        else:
            found[name] = value
    return found


def axes(outcome: Outcome) -> list[Axis]:
    """An axis for everything in which trials differ."""
    rows = [choices(outcome, tried) for tried in outcome.tried if tried.point is not None]
    names = list(dict.fromkeys(name for row in rows for name in row))
    logs = {
        key
        for branch in outcome.plan.space.branches
        for key, choice in branch.choices.items()
        if isinstance(choice, Range) and choice.log
    }
    found = []
    for name in names:
        values = list(dict.fromkeys(row[name] for row in rows if name in row))
        if len(values) > 1:
            found.append(_axis(name, values, name in logs))
    return found


def _axis(name: str, values: Sequence[Scalar], log: bool) -> Axis:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        order = list(map(str, values))
        return Axis(name, lambda value: order.index(str(value)) / (len(order) - 1), tuple(values))
    scale: Callable[[Any], float] = math.log if log and min(numbers) > 0 else float
    low, high = scale(min(numbers)), scale(max(numbers))

    def place(value: Any) -> float:
        return (scale(value) - low) / (high - low)

    few = sorted(numbers)
    ticks = few if len(few) <= 6 else [few[0], few[len(few) // 2], few[-1]]
    return Axis(name, place, tuple(_apart(ticks, place)))


def _apart(ticks: Sequence[float], place: Callable[[Any], float]) -> list[float]:
    """The first and the last of ascending ticks, and those between whose labels do not run into another."""
    kept = [ticks[0]]
    for tick in ticks[1:-1]:
        if min(place(tick) - place(kept[-1]), 1 - place(tick)) >= ROOM:
            kept.append(tick)
    return [*kept, ticks[-1]]


def emphasis_map(outcome: Outcome) -> str | None:
    """lam against beta (or the first two numbers in which trials differ) with the score as colour."""
    found = {axis.name: axis for axis in axes(outcome) if all(isinstance(tick, int | float) for tick in axis.ticks)}
    names = [name for name in ("lam", "beta") if name in found] + [
        name for name in found if name not in ("lam", "beta")
    ]
    if len(names) < 2:
        return None
    across, up = found[names[0]], found[names[1]]
    parts = _frame(across, up)
    colour = _colours(outcome)
    # the best on top
    for tried in sorted(_scored(outcome), key=lambda tried: tried.score or 0):
        values = choices(outcome, tried)
        if across.name in values and up.name in values:
            x, y = _x(across.place(values[across.name])), _y(up.place(values[up.name]))
            parts.append(_dot(x, y, colour(tried), tried, tried == outcome.best))
    return _svg(parts + _legend(outcome), f"{across.name} against {up.name}")


def parallel(outcome: Outcome) -> str | None:
    """One line for every trial through all that it chose, to its score."""
    found = axes(outcome)
    scores = [tried.score for tried in _scored(outcome) if tried.score is not None]
    if not found or len(set(scores)) < 2:
        return None
    found.append(_axis("score", sorted(set(scores)), False))
    places = [EDGE + i * (WIDTH - 2 * EDGE) / (len(found) - 1) for i in range(len(found))]
    parts = []
    for axis, x in zip(found, places, strict=True):
        parts.append(f'<line x1="{x:.1f}" y1="{_y(0)}" x2="{x:.1f}" y2="{_y(1)}" stroke="#999"/>')
        parts.append(_text(x, HEIGHT - 22, axis.name))
    colour = _colours(outcome)
    for tried in sorted(_scored(outcome), key=lambda tried: tried.score or 0):
        values: Mapping[str, Scalar] = {**choices(outcome, tried), "score": tried.score}
        points = " ".join(
            f"{x:.1f},{_y(axis.place(values[axis.name])):.1f}"
            for axis, x in zip(found, places, strict=True)
            if axis.name in values
        )
        width = 3 if tried == outcome.best else 1.3
        dash = ' stroke-dasharray="3 3"' if tried.state == "pruned" else ""
        line = f'fill="none" stroke="{colour(tried)}" stroke-width="{width}"{dash}'
        parts.append(f'<polyline points="{points}" {line}><title>{_told(tried)}</title></polyline>')
    for axis, x in zip(found, places, strict=True):  # over the lines, each with a halo
        parts += [_text(x - 6, _y(axis.place(tick)) + 4, _short(tick), "end") for tick in axis.ticks]
    return _svg(parts, "parallel coordinates of the trials")


def _scored(outcome: Outcome) -> list[Tried]:
    return [tried for tried in outcome.tried if tried.score is not None and tried.point is not None]


def _colours(outcome: Outcome) -> Callable[[Tried], str]:
    low, high = _limits(outcome)
    span = (high - low) or 1.0
    last = len(COLOURS) - 1
    return lambda tried: COLOURS[min(last, max(0, round(last * ((tried.score or 0) - low) / span)))]


def _limits(outcome: Outcome) -> tuple[float, float]:
    """The range of colours: a few settings that collapse must not make all the others look alike.

    They share the lowest colour, which the legend marks with ≤.
    """
    scores = sorted(tried.score for tried in _scored(outcome) if tried.score is not None) or [0.0]
    return max(scores[0], 2 * scores[len(scores) // 2] - scores[-1]), scores[-1]


def _frame(across: Axis, up: Axis) -> list[str]:
    parts = [
        f'<path d="M{_x(0)},{_y(1)} V{_y(0)} H{_x(1)}" fill="none" stroke="#999"/>',
        _text((_x(0) + _x(1)) / 2, HEIGHT - 12, across.name),
        f'<g transform="rotate(-90 18 {(_y(0) + _y(1)) / 2})">{_text(18, (_y(0) + _y(1)) / 2, up.name)}</g>',
    ]
    parts += [_text(_x(across.place(tick)), _y(0) + 22, _short(tick)) for tick in across.ticks]
    return parts + [_text(_x(0) - 12, _y(up.place(tick)) + 4, _short(tick), "end") for tick in up.ticks]


def _legend(outcome: Outcome) -> list[str]:
    low, high = _limits(outcome)
    left, top, size = WIDTH - 34, EDGE, (HEIGHT - 2 * EDGE) / len(COLOURS)
    parts = [
        f'<rect x="{left}" y="{top + i * size:.1f}" width="14" height="{size + 0.5:.1f}" fill="{colour}"/>'
        for i, colour in enumerate(reversed(COLOURS))
    ]
    below = "≤ " if any((tried.score or 0) < low for tried in _scored(outcome)) else ""
    parts.append(_text(WIDTH - 6, top - 8, f"{100 * high:.1f} %", "end"))
    return [*parts, _text(WIDTH - 6, HEIGHT - EDGE + 16, f"{below}{100 * low:.1f} %", "end")]


def _dot(x: float, y: float, colour: str, tried: Tried, best: bool) -> str:
    ring = ' stroke="#d55e00" stroke-width="3"' if best else ' stroke="#555" stroke-width="0.6"'
    size = 5 if tried.state == "pruned" else 9
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"{ring}><title>{_told(tried)}</title></circle>'


def _told(tried: Tried) -> str:
    point = ", ".join(f"{key} {_short(value)}" for key, value in (tried.point or {}).items())
    return escape(f"trial {tried.slot}: {point}: {100 * (tried.score or 0):.2f} % ({tried.state} at {tried.step})")


def _x(place: float) -> float:
    return EDGE + 14 + place * (WIDTH - 2 * EDGE - 44)


def _y(place: float) -> float:
    return HEIGHT - EDGE - place * (HEIGHT - 2 * EDGE)


def _short(value: Scalar) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    halo = 'paint-order="stroke" stroke="white" stroke-width="4"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222" {halo}>{escape(text)}</text>'


def _svg(parts: Sequence[str], label: str) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(label)}" '
        'font-family="system-ui, Helvetica, Arial, sans-serif" font-size="13">'
    )
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>"])


STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, Helvetica, Arial, sans-serif; color: #222; background: white }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.scroll { overflow-x: auto; overflow-wrap: normal }
svg { max-width: 100%; min-width: 30rem; height: auto; border: 1px solid #ddd }
table { border-collapse: collapse; font-size: 0.85rem } th, td { padding: 0.15rem 0.7rem 0.15rem 0; text-align: right }
th { border-bottom: 1px solid #999; white-space: nowrap }
td:last-child, th:last-child { text-align: left; font-family: monospace }
td:last-child { min-width: 16rem } tr.best { font-weight: bold } tr.pruned, tr.failed, tr.open { color: #777 }
.judged { background: #fff4d6; padding: 0.5rem 0.8rem; border-left: 4px solid #e69f00 }
@media (prefers-color-scheme: dark) {
body { color: #eceff3; background: #14171b }
.judged { background: #332b18 } tr.pruned, tr.failed, tr.open { color: #a5aeb9 }
svg { border-color: #3a424c }
svg text { fill: #eceff3 } svg text[paint-order] { stroke: #1d2126 }
svg rect[fill="white"] { fill: #1d2126 } svg line[stroke="#e4e4e4"] { stroke: #2c333b }
svg line[stroke="#333"] { stroke: #b3bcc7 } svg circle[stroke="#555"] { stroke: #b3bcc7 }
svg [stroke="#0072b2"] { stroke: #5cb8f5 } svg [fill="#0072b2"] { fill: #5cb8f5 }
svg [stroke="#440154"] { stroke: #8250a8 } svg [fill="#440154"] { fill: #8250a8 }
svg [stroke="#472d7b"] { stroke: #6d5fb0 } svg [fill="#472d7b"] { fill: #6d5fb0 }
svg [stroke="#3b528b"] { stroke: #5075bb } svg [fill="#3b528b"] { fill: #5075bb }
}
"""


def page(outcome: Outcome, density: str | None = None) -> str:
    """The page of an outcome.

    Args:
        outcome: of `search`.
        density: the chosen emphasis density as SVG, such as `reweigh.lab.figures.svg.svg` draws.
    """
    best = outcome.best
    chart = emphasis_map(outcome)
    sections = [
        f"<h1>Search: {escape(outcome.plan.space.text)}</h1>",
        f'<p class="judged">The validation set was <strong>{escape(outcome.plan.judged)}</strong>.</p>',
        *([] if best is None else [_best(outcome, best)]),
        _figure("Where the good settings lie", chart, _MAP + (_BELOW if chart and "≤" in chart else "")),
        _figure("All choices together", parallel(outcome), "One line for every trial; dashed ones were pruned."),
        _figure("The chosen emphasis density", density, _DENSITY),
        "<h2>Trials</h2>",
        _table(outcome),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(outcome.name)}</title><style>{STYLE}</style></head>\n<body>\n<main>\n"
        + "\n".join(filter(None, sections))
        + "\n</main>\n</body></html>\n"
    )


_MAP = "Every dot is a trial, its colour the validation accuracy; small dots were pruned, the ringed one was chosen."
_BELOW = " Those at or below the number with ≤ share one colour."
_DENSITY = "How much an example counts, by the probability p that the net gives its label, before any taper."


def _best(outcome: Outcome, best: Tried) -> str:
    setting = ", ".join(f"{key} = {value}" for key, value in outcome.setting(best).items())
    score = 100 * (best.score or 0)
    told = (
        f"<p>Chosen: <strong>{escape(setting)}</strong>, with {score:.2f} % on the validation set (trial {best.slot})."
    )
    if outcome.accuracy is not None:
        mean, deviation = outcome.accuracy
        spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
        told += (
            f" Trained on all training data, {len(outcome.finals)} seed(s): "
            f"<strong>{100 * mean:.2f}{spread} %</strong> ({escape(outcome.holdout)}, final checkpoint)."
        )
    elif outcome.finals:
        told += f" Trained on all training data, {len(outcome.finals)} seed(s), without a test part to judge by."
    return told + "</p>"


def _figure(title: str, svg: str | None, caption: str) -> str:
    return "" if svg is None else f"<h2>{escape(title)}</h2>\n{_scrolling(svg, title)}\n<p>{escape(caption)}</p>"


def _scrolling(content: str, label: str) -> str:
    """Content that scrolls sideways by itself where there is no room, by keys as well."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'


def _table(outcome: Outcome) -> str:
    rows = [(tried, choices(outcome, tried)) for tried in outcome.tried]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    lines = [_row("th", ["trial", *names, "validation", "state", "step", "run"], "")]
    for tried, row in sorted(rows, key=lambda pair: -(pair[0].score if pair[0].score is not None else -1)):
        score = "" if tried.score is None else f"{100 * tried.score:.2f} %"
        cells = [
            tried.slot,
            *(row.get(name, "") for name in names),
            score,
            tried.state,
            tried.step or "",
            tried.run or "",
        ]
        lines.append(_row("td", list(map(str, cells)), "best" if tried == outcome.best else tried.state))
    return _scrolling(f"<table>{''.join(lines)}</table>", "Trials")


def _row(tag: str, cells: list[str], kind: str) -> str:
    return f'<tr class="{kind}">' + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"
