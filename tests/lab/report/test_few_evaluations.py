"""Runs that were evaluated once, or so often that numbers have no room, in a real browser and in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reweigh.lab.figures import draw_figures
from reweigh.lab.report import collect, group, report_page
from reweigh.lab.report.figures import dynamics, group_figures

TEN = tuple(f"class {i}" for i in range(10))


def figure(page: Any, title: str) -> Any:
    return page.locator("figure", has=page.get_by_role("heading", name=title, exact=True))


def test_one_evaluation_is_a_dot_and_a_bar(
    open_page: Callable[..., Any], tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    make_run(tmp_path / "runs", evaluations=1, seed=0)
    make_run(tmp_path / "runs", evaluations=1, seed=1)
    page = open_page(report_page(collect([tmp_path / "runs"]))).page
    shown = figure(page, "Mean p of the given label")
    assert shown.locator("circle.dot").count() == 1
    assert shown.locator("circle.line.v1").count() == 1  # noisy labels: dashes, as in the legend
    frame, dot = shown.locator("svg.chart").bounding_box(), shown.locator("circle.dot").bounding_box()
    assert frame["x"] < dot["x"] - 50
    assert dot["x"] + dot["width"] + 50 < frame["x"] + frame["width"]
    assert figure(page, "Test accuracy").locator("path.line:not([data-name])").count() == 1  # over two seeds
    layers = figure(page, "Where the weight goes").locator("g > path").all()
    boxes = [layer.bounding_box() for layer in layers]
    assert len(boxes) == 10
    assert all(box["width"] > 50 for box in boxes)
    assert sum(box["height"] for box in boxes) == pytest.approx(248, abs=2)


def test_a_short_run_beside_a_long_one(
    open_page: Callable[..., Any], tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    make_run(tmp_path / "runs", "CCE", evaluations=1)
    make_run(tmp_path / "runs", "MAE", evaluations=6)
    page = open_page(report_page(collect([tmp_path / "runs"]))).page
    dots = figure(page, "Test accuracy").locator("circle")
    assert [dot.get_attribute("data-name") for dot in dots.all()] == ["CCE, iterations 100"]


def test_one_evaluation_in_a_file(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    pytest.importorskip("matplotlib")
    make_run(tmp_path, evaluations=1)
    (only,) = group(collect([tmp_path]).runs)
    lines, stack = draw_figures([dynamics([only])[0], group_figures(only)[0]]).axes
    assert lines.lines[0].get_marker() == "o"
    assert len(stack.patches) == 10
    assert sum(bar.get_height() for bar in stack.patches) == pytest.approx(100, abs=0.01)


@pytest.mark.parametrize("evaluations", [3, 6, 12])
def test_numbers_stay_inside_their_cells(
    open_page: Callable[..., Any], tmp_path: Path, make_run: Callable[..., Path], evaluations: int
) -> None:
    make_run(tmp_path / "runs", evaluations=evaluations, classes=TEN)
    page = open_page(report_page(collect([tmp_path / "runs"]))).page
    shown = figure(page, "Mean p by class")
    cell = shown.locator("rect.cell").first.bounding_box()["width"]
    widths = [text.bounding_box()["width"] for text in shown.locator("text.on-deep, text.on-pale").all()]
    assert len(widths) == (0 if evaluations == 12 else 10 * evaluations)
    assert all(width < cell for width in widths)
