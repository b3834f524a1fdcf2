"""The page of a search in a real browser; its trials are made up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from accessibility import axe

pytest.importorskip("optuna")

from reweigh.lab.search.outcome import Outcome, TrialResult
from reweigh.lab.search.page import page as search_page
from reweigh.lab.search.plan import plan_search

FIELDS = {"data": "digits", "net": "mlp-32", "noise": "symmetric", "rate": 0.4, "iterations": 60}
# without the halo around it
INKED = "(text) => { const { x, y, width, height } = text.getBBox(); return { x, y, width, height }; }"
TRIED = ((1.395, 13.71, 0.8667), (0.1787, 19.76, 0.7167), (1.635, 20.42, 0.3458), (0.1459, 11.37, 0.5833))


def outcome(scores: tuple[float, ...]) -> Outcome:
    plan = plan_search(FIELDS, "DM(lam=0..2, beta=0.5..24)", trials=4)
    lam, beta = (plan.space.key(0, name) for name in ("lam", "beta"))
    run = "digits-mlp-32-DM-{}-symmetric-0.4-s0-cdf0e8f7"
    trials = tuple(
        TrialResult(i, {lam: at[0], beta: at[1]}, "done", score, 60, run.format(at[0]))
        for i, (at, score) in enumerate(zip(TRIED, scores, strict=True))
    )
    return Outcome("made up", plan, trials)


@pytest.fixture(scope="module")
def html() -> str:
    return search_page(outcome(tuple(score for _, _, score in TRIED)))


def test_a_colour_that_stands_for_all_below_says_so(open_page: Callable[..., Any], html: str) -> None:
    shown = open_page(html).page.locator("main").inner_text()
    assert "≤ 56.7 %" in shown
    assert "share one colour" in shown
    even = open_page(search_page(outcome((0.8, 0.7, 0.6, 0.65)))).page.locator("main").inner_text()
    assert "60.0 %" in even
    assert "≤" not in even


def test_every_trial_is_drawn_and_listed(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    assert page.locator("circle.trial").count() == page.locator("polyline.trial").count() == 4
    assert page.locator("circle.best").count() == page.locator("polyline.best").count() == 1
    assert page.locator("table.sortable tbody tr").first.locator("th").inner_text() == "86.67 %"
    page.locator("figure .stage").first.press("Home")
    assert "trial 3: loss or method DM, lam 0.146" in page.locator("figure output").first.inner_text()


def test_labels_do_not_lie_upon_each_other(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html, width=1400).page
    for drawn in page.locator("svg").all():
        boxes = [(text.text_content(), text.evaluate(INKED)) for text in drawn.locator("text").all()]
        for (one, a), (other, b) in combinations(boxes, 2):
            across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
            up = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
            assert across <= 0 or up <= 0, (one, other)


def test_dark_where_the_reader_asks_for_it(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html, scheme="dark").page
    for painted in ("document.body).backgroundColor", "document.querySelector('figure')).backgroundColor"):
        assert max(map(int, page.evaluate(f"getComputedStyle({painted}")[4:-1].split(","))) < 60
    assert axe(page, ["color-contrast"]) == []


@pytest.mark.parametrize("width", [320, 420, 768])
def test_never_wider_than_the_window(open_page: Callable[..., Any], html: str, width: int) -> None:
    page = open_page(html, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert axe(page) == []
