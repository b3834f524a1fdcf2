"""The explorer in a real browser: sliders, fields, curves, lines to copy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import reweigh
from reweigh.emphasis import integral
from reweigh.lab.report import explorer_page
from reweigh.lab.spec import Run


def curve(page: Any, title: str, name: str) -> list[tuple[float, float]]:
    """Return the points of a drawn line, converted from pixels by its axes."""
    figure = page.locator("figure", has=page.get_by_role("heading", name=title, exact=True))
    drawn = figure.locator("svg.chart")
    low, high = (float(drawn.get_attribute(f"data-{end}")) for end in ("low", "high"))
    axis = drawn.locator("line.axis").last
    left, right = float(axis.get_attribute("x1")), float(axis.get_attribute("x2"))
    bottom, top = float(axis.get_attribute("y1")), 10.0
    points = re.findall(r"[ML]([\d.]+),([-\d.]+)", drawn.locator(f'path.line[data-name="{name}"]').get_attribute("d"))
    return [
        ((float(x) - left) / (right - left), low + (bottom - float(y)) / (bottom - top) * (high - low))
        for x, y in points
    ]


def settled(page: Any) -> None:
    """Wait for the frame in which the page redraws."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def knob(page: Any, name: str) -> Any:
    return page.locator(f'.knob[data-name="{name}"]').first


def test_a_slider_moves_the_curve_to_the_right_values(open_page: Callable[..., Any]) -> None:
    page = open_page(explorer_page("DM(0.5, 8)")).page
    slider = knob(page, "beta").locator("input[type=range]")
    slider.focus()
    for _ in range(8):
        slider.press("ArrowRight")
    knob(page, "lam").locator("input[type=number]").fill("1")
    settled(page)
    weighting = reweigh.DM(lam=1, beta=12)
    name = "DM(lam=1, beta=12)"
    z = float(integral(weighting))
    drawn = curve(page, "Emphasis density", name)
    assert len(drawn) == 201
    for p, h in drawn:
        assert math.isclose(h, weighting(min(max(p, 0.0), 1.0)) / z, abs_tol=0.02)
    specs = page.evaluate("() => window.reweigh.explorer.state().specs")
    series = specs["density"]["series"][0]
    assert series["name"] == name
    assert all(
        math.isclose(h, weighting(p, 1 - p) / z, rel_tol=1e-6) for p, h in zip(series["x"], series["y"], strict=True)
    )
    assert page.locator(".facts tbody tr").first.locator("td").first.inner_text() == "0.5"


def test_taper_classes_and_batch(open_page: Callable[..., Any]) -> None:
    page = open_page(explorer_page("DM(0.5, 8)")).page
    knob(page, "taper").locator("input[type=number]").fill("0.01")
    knob(page, "classes").locator("input[type=number]").fill("100")
    page.get_by_label("p of the examples").fill("0.9 0.1")
    settled(page)
    state = page.evaluate("() => window.reweigh.explorer.state()")
    w = state["specs"]["w"]["series"][0]["y"]
    assert w[-1] == 0
    assert math.isclose(w[180], reweigh.Tapered(reweigh.DM(0.5, 8), 0.01)(0.9, 0.1), rel_tol=1e-9)
    assert [len(values) for _, values in state["specs"]["batch"]["sets"]] == [2, 2, 2, 2]
    assert "1/C = 0.01" in page.locator(".begin").inner_text()


@pytest.mark.parametrize("name", ["GCE", "Curve", "ForwardSymmetric", "Focal"])
def test_lines_to_copy_do_what_the_page_shows(open_page: Callable[..., Any], name: str) -> None:
    page = open_page(explorer_page()).page
    page.get_by_label("Weighting", exact=True).first.select_option(name)
    settled(page)
    python, command = page.locator(".copy code").all_inner_texts()
    criterion = eval(python.partition(" = ")[2], {"reweigh": reweigh})
    expression = re.search(r'--weighting "(.*)"', command)
    assert expression is not None
    run = Run(data="digits", net="mlp", weighting=expression[1])
    shown = page.evaluate("() => window.reweigh.explorer.state().specs.w.series[0].y[50]")
    taper = criterion.settings.taper
    assert math.isclose(shown, reweigh.Tapered(criterion.settings.weighting, taper)(0.25, 0.75), rel_tol=1e-6)
    assert run.weighting is not None
    assert ("taper" in command) == ("taper=" in python)


def test_values_that_are_not_allowed_are_marked_and_change_nothing(open_page: Callable[..., Any]) -> None:
    page = open_page(explorer_page("GCE(0.7)")).page
    field = knob(page, "q").locator("input[type=number]")
    field.fill("-1")
    settled(page)
    assert field.get_attribute("aria-invalid") == "true"
    assert "GCE(q=0.7)" in page.locator(".copy code").first.inner_text()


@pytest.mark.parametrize(
    ("name", "values"),
    [("SL", {"alpha": 0, "b": 0}), ("ForwardSymmetric", {"rate": 0.9}), ("ForwardSymmetric", {"rate": 0.95})],
)
def test_parameters_that_leave_no_weight_are_refused(
    open_page: Callable[..., Any], name: str, values: dict[str, float]
) -> None:
    page = open_page(explorer_page(name if name == "SL" else "ForwardSymmetric(0.4, 10)")).page
    before = page.locator(".copy code").first.inner_text()
    for knob_name, value in values.items():
        knob(page, knob_name).locator("input[type=number]").fill(str(value))
        settled(page)
    assert page.locator(".results > .problem").inner_text() == (
        f"{name}: these parameters are not allowed, because w must be above 0 for some p."
    )
    assert before.startswith(f"criterion = reweigh.Criterion(reweigh.{name}(")


@pytest.mark.parametrize(("text", "size"), [("1, 1, 1", 3), ("1, 1, 0.5", 1), ("0, 0", 2)])
def test_a_batch_at_the_ends_is_shared_as_the_library_shares_it(
    open_page: Callable[..., Any], text: str, size: int
) -> None:
    page = open_page(explorer_page("DM(0.5, 8)")).page
    page.get_by_label("p of the examples").fill(text)
    settled(page)
    batch = page.evaluate("() => window.reweigh.explorer.state().specs.batch")
    # closer to 0 and 1 than float64 reaches
    margins = [{0.0: -800.0, 0.5: 0.0, 1.0: 800.0}[float(p)] for p in text.split(", ")]
    logits = torch.tensor([[margin, 0.0] for margin in margins], dtype=torch.float64)
    weightings = (reweigh.DM(0.5, 8), reweigh.MAE(), reweigh.CCE(), reweigh.GCE(0.7))
    for weighting, (name, shares) in zip(weightings, batch["sets"], strict=True):
        stats = reweigh.batch_stats(logits, torch.zeros(len(margins), dtype=torch.long), weighting)
        assert shares == pytest.approx(stats.share.tolist(), abs=1e-9)
        assert f"{name} {float(stats.effective_size):g}" in batch["caption"]
    assert f"DM(lam=0.5, beta=8) {size}," in batch["caption"]


def test_a_constant_weighting_has_no_variance(open_page: Callable[..., Any]) -> None:
    page = open_page(explorer_page("Uniform()")).page
    assert page.locator(".facts tbody tr").first.locator("td").all_inner_texts()[2:4] == ["0", "0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2, -1, foo", "“2” is not a number from 0 to 1."),
        ("nan", "“nan” is not a number from 0 to 1."),
        ("0.5, 0,5", "“5” is not a number from 0 to 1."),
        (" ", "Give at least one number from 0 to 1."),
        ("0.5 " * 65, "At most 64 examples can be shown; there are 65."),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused(open_page: Callable[..., Any], text: str, message: str) -> None:
    page = open_page(explorer_page()).page
    before = page.evaluate("() => window.reweigh.explorer.state().specs.batch")
    field = page.get_by_label("p of the examples")
    field.fill(text)
    settled(page)
    assert field.get_attribute("aria-invalid") == "true"
    assert page.locator(f"#{field.get_attribute('aria-describedby')}").inner_text() == message
    assert page.evaluate("() => window.reweigh.explorer.state().specs.batch") == before
    field.fill("0.5")
    settled(page)
    assert field.get_attribute("aria-invalid") == "false"
    assert page.evaluate("() => window.reweigh.explorer.state().specs.batch")["names"] == ["0.5"]


def test_half_a_class_is_refused(open_page: Callable[..., Any]) -> None:
    page = open_page(explorer_page()).page
    field = knob(page, "classes").locator("input[type=number]")
    for text in ("2.5", ""):
        field.fill(text)
        settled(page)
        assert field.get_attribute("aria-invalid") == "true"
        assert page.evaluate("() => window.reweigh.explorer.state().classes") == 10


def test_the_taper_is_that_of_the_weighting_until_it_is_changed(open_page: Callable[..., Any]) -> None:
    page = open_page(explorer_page("DM(0.5, 8)")).page
    choice, field = page.get_by_label("Weighting", exact=True).first, knob(page, "taper").locator("input[type=number]")
    for name, taper in (("GCE", "0"), ("DM", "5e-7"), ("GCE", "0")):
        choice.select_option(name)
        settled(page)
        assert float(field.input_value()) == float(taper)
        assert "taper" not in "".join(page.locator(".copy code").all_inner_texts())
    field.fill("0.01")
    choice.select_option("DM")
    settled(page)
    assert field.input_value() == "0.01"
    assert all("taper" in line for line in page.locator(".copy code").all_inner_texts())


def test_copying(open_page: Callable[..., Any]) -> None:
    page = open_page(explorer_page()).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy: Python").click()
    page.get_by_role("button", name="Copy: Python").get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.locator(".copy code").first.inner_text()


def test_a_start_that_the_explorer_cannot_show_is_refused() -> None:
    with pytest.raises(ValueError, match="no weighting is named 'DMM'"):
        explorer_page("DMM(1)")
    with pytest.raises(ValueError, match="the explorer starts from one of AEL, AGCE"):
        explorer_page("CCE + MAE")
