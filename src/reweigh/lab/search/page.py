"""The HTML page of a search, with its charts as SVG; one file without scripts or external resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from reweigh.lab.search.outcome import Outcome, TrialResult
from reweigh.lab.search.space import Range, Scalar

WIDTH, HEIGHT, EDGE = 640, 400, 64
MIN_GAP = 0.13  # of an axis, between two labels
# nine colours of viridis, which is perceptually uniform, also in greyscale and for colour-blind readers
COLOURS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


class Axis(NamedTuple):
    """An axis of a chart: its name, the position in [0, 1] of a value, and the labelled values."""

    name: str
    place: Callable[[Scalar], float]
    ticks: tuple[Scalar, ...]


def axes(outcome: Outcome) -> list[Axis]:
    """Return an axis for every choice in which trials differ."""
    rows = [outcome.choices(trial) for trial in outcome.trials if trial.point is not None]
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
    """Return the first and last of ascending ticks, and those between whose labels do not overlap."""
    kept = [ticks[0]]
    for tick in ticks[1:-1]:
        if min(place(tick) - place(kept[-1]), 1 - place(tick)) >= MIN_GAP:
            kept.append(tick)
    return [*kept, ticks[-1]]


def emphasis_map(outcome: Outcome) -> str | None:
    """Plot lam against beta (or the first two numbers in which trials differ), with the score as colour."""
    numeric = {axis.name: axis for axis in axes(outcome) if all(isinstance(tick, int | float) for tick in axis.ticks)}
    names = [name for name in ("lam", "beta") if name in numeric] + [
        name for name in numeric if name not in ("lam", "beta")
    ]
    if len(names) < 2:
        return None
    across, up = numeric[names[0]], numeric[names[1]]
    parts = _frame(across, up)
    colour = _colours(outcome)
    # ascending, so that the best is drawn last
    for trial in sorted(_scored(outcome), key=lambda trial: trial.score or 0):
        values = outcome.choices(trial)
        if across.name in values and up.name in values:
            x, y = _x(across.place(values[across.name])), _y(up.place(values[up.name]))
            parts.append(_dot(x, y, colour(trial), trial, trial == outcome.best))
    return _svg(parts + _legend(outcome), f"{across.name} against {up.name}")


def parallel(outcome: Outcome) -> str | None:
    """Plot one line per trial through all its choices to its score (parallel coordinates)."""
    found = axes(outcome)
    scores = [trial.score for trial in _scored(outcome) if trial.score is not None]
    if not found or len(set(scores)) < 2:
        return None
    found.append(_axis("score", sorted(set(scores)), False))
    places = [EDGE + i * (WIDTH - 2 * EDGE) / (len(found) - 1) for i in range(len(found))]
    parts = []
    for axis, x in zip(found, places, strict=True):
        parts.append(f'<line x1="{x:.1f}" y1="{_y(0)}" x2="{x:.1f}" y2="{_y(1)}" stroke="#999"/>')
        parts.append(_text(x, HEIGHT - 22, axis.name))
    colour = _colours(outcome)
    for trial in sorted(_scored(outcome), key=lambda trial: trial.score or 0):
        values: Mapping[str, Scalar] = {**outcome.choices(trial), "score": trial.score}
        points = " ".join(
            f"{x:.1f},{_y(axis.place(values[axis.name])):.1f}"
            for axis, x in zip(found, places, strict=True)
            if axis.name in values
        )
        width = 3 if trial == outcome.best else 1.3
        dash = ' stroke-dasharray="3 3"' if trial.state == "pruned" else ""
        line = f'fill="none" stroke="{colour(trial)}" stroke-width="{width}"{dash}'
        parts.append(f'<polyline points="{points}" {line}><title>{_tooltip(trial)}</title></polyline>')
    for axis, x in zip(found, places, strict=True):  # on top of the lines
        parts += [_text(x - 6, _y(axis.place(tick)) + 4, _short(tick), "end") for tick in axis.ticks]
    return _svg(parts, "Parallel coordinates of the trials")


def _scored(outcome: Outcome) -> list[TrialResult]:
    return [trial for trial in outcome.trials if trial.score is not None and trial.point is not None]


def _colours(outcome: Outcome) -> Callable[[TrialResult], str]:
    low, high = _limits(outcome)
    span = (high - low) or 1.0
    last = len(COLOURS) - 1
    return lambda trial: COLOURS[min(last, max(0, round(last * ((trial.score or 0) - low) / span)))]


def _limits(outcome: Outcome) -> tuple[float, float]:
    """Return the range of the colour scale.

    Scores far below the median share the lowest colour, which the legend marks with ≤, so that a few collapsed trials
    do not hide the differences between the others.
    """
    scores = sorted(trial.score for trial in _scored(outcome) if trial.score is not None) or [0.0]
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
    below = "≤ " if any((trial.score or 0) < low for trial in _scored(outcome)) else ""
    parts.append(_text(WIDTH - 6, top - 8, f"{100 * high:.1f} %", "end"))
    return [*parts, _text(WIDTH - 6, HEIGHT - EDGE + 16, f"{below}{100 * low:.1f} %", "end")]


def _dot(x: float, y: float, colour: str, trial: TrialResult, best: bool) -> str:
    ring = ' stroke="#d55e00" stroke-width="3"' if best else ' stroke="#555" stroke-width="0.6"'
    size = 5 if trial.state == "pruned" else 9
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"{ring}><title>{_tooltip(trial)}</title></circle>'
    )


def _tooltip(trial: TrialResult) -> str:
    point = ", ".join(f"{key} {_short(value)}" for key, value in (trial.point or {}).items())
    return escape(f"trial {trial.slot}: {point}: {100 * (trial.score or 0):.2f} % ({trial.state} at {trial.step})")


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
    """Return the HTML page of an outcome.

    Args:
        outcome: the result of `search`.
        density: the best setting's weighting as SVG, such as `reweigh.lab.figures.draw_curves.curves_svg` draws.
    """
    best = outcome.best
    chart = emphasis_map(outcome)
    sections = [
        f"<h1>Search: {escape(outcome.plan.space.text)}</h1>",
        f'<p class="judged">The validation set was <strong>{escape(outcome.plan.judged)}</strong>.</p>',
        *([] if best is None else [_best(outcome, best)]),
        _figure("Score by setting", chart, _MAP + (_BELOW if chart and "≤" in chart else "")),
        _figure("Parallel coordinates", parallel(outcome), "One line per trial; dashed lines are pruned trials."),
        _figure("Weighting of the best setting", density, _DENSITY),
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


_MAP = "One dot per trial, coloured by validation accuracy; small dots are pruned trials, the ring marks the best."
_BELOW = " All values at or below the number with ≤ share one colour."
_DENSITY = "The weight w of an example against the probability p that the net gives its label, without taper."


def _best(outcome: Outcome, best: TrialResult) -> str:
    setting = ", ".join(f"{key} = {value}" for key, value in outcome.setting(best).items())
    score = 100 * (best.score or 0)
    text = (
        f"<p>Best setting: <strong>{escape(setting)}</strong>; {score:.2f} % on the validation set (trial {best.slot})."
    )
    seeds = "1 seed" if len(outcome.finals) == 1 else f"{len(outcome.finals)} seeds"
    if outcome.accuracy is not None:
        mean, deviation = outcome.accuracy
        spread = "" if deviation is None else f" ± {100 * deviation:.2f}"
        text += (
            f" Trained on all training data, {seeds}: "
            f"<strong>{100 * mean:.2f}{spread} %</strong> ({escape(outcome.holdout)}, final checkpoint)."
        )
    elif outcome.finals:
        text += f" Trained on all training data, {seeds}; the data have no test set."
    return text + "</p>"


def _figure(title: str, svg: str | None, caption: str) -> str:
    return "" if svg is None else f"<h2>{escape(title)}</h2>\n{_scrolling(svg, title)}\n<p>{escape(caption)}</p>"


def _scrolling(content: str, label: str) -> str:
    """Wrap content in a region that scrolls sideways, also by keyboard."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{content}</div>'


def _table(outcome: Outcome) -> str:
    rows = [(trial, outcome.choices(trial)) for trial in outcome.trials]
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    lines = [_row("th", ["trial", *names, "validation", "state", "step", "run"], "")]
    for trial, row in sorted(rows, key=lambda pair: -(pair[0].score if pair[0].score is not None else -1)):
        score = "" if trial.score is None else f"{100 * trial.score:.2f} %"
        cells = [
            trial.slot,
            *(row.get(name, "") for name in names),
            score,
            trial.state,
            trial.step or "",
            trial.run or "",
        ]
        lines.append(_row("td", list(map(str, cells)), "best" if trial == outcome.best else trial.state))
    return _scrolling(f"<table>{''.join(lines)}</table>", "Trials")


def _row(tag: str, cells: list[str], kind: str) -> str:
    return f'<tr class="{kind}">' + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"
