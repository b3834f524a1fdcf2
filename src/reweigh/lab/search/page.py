"""The page of a search: one HTML file with nothing outside it and no script."""

from __future__ import annotations

from html import escape

from reweigh.lab.search.chart import choices, emphasis_map, parallel
from reweigh.lab.search.outcome import Outcome, Tried

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
        density: the chosen emphasis density as SVG, such as `reweigh.lab.figures.draw_curves.curves_svg` draws.
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
