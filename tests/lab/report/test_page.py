"""The report in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accessibility import axe
from reweigh.lab.report import collect, report_page
from reweigh.lab.report.page import MAX_BYTES


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., Path]) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        make_run(root, "DM(0.5, 8)", seed=seed, top=0.95)
        make_run(root, "CCE", seed=seed, top=0.8)
    make_run(root, "GCE(0.7)", top=0.9)
    make_run(root, "DM(0.5, linear(0, 8))", top=0.7)
    make_run(root, "DM(1, 8)", rate=None, done=False)
    return root


@pytest.fixture(scope="module")
def html(runs: Path) -> str:
    return report_page(collect([runs]), "A <title> & more")


def rows(page: Any) -> list[list[str]]:
    lines = page.locator("table.sortable tbody tr").all()
    return [line.locator("th, td").all_inner_texts() for line in lines]


def figure(page: Any, title: str) -> Any:
    return page.locator("figure", has=page.get_by_role("heading", name=title, exact=True))


def test_runs_are_grouped_over_seeds_and_sorted(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    assert page.title() == "A <title> & more · reweigh"
    found = rows(page)
    assert [row[1] for row in found][:3] == ["DM(0.5, 8)", "GCE(0.7)", "CCE"]
    assert found[0][2] == "89.36 ± 0.10"
    assert found[0][4] == "3 of 3"
    assert page.locator("main").inner_text().count("Net: mlp.") == 1  # the same for all: no column
    assert found[-1][2] == "–"
    for direction, first in (("ascending", "CCE"), ("descending", "GCE(0.7)")):
        page.get_by_role("button", name="Loss or method").press("Enter")
        assert rows(page)[0][1] == first
        assert page.locator("th[aria-sort]", has_text="Loss or method").get_attribute("aria-sort") == direction
    page.get_by_role("button", name="Best %").click()
    assert rows(page)[-1][1] == "DM(1, 8)"  # missing values stay at the end
    page.get_by_role("button", name="Best %").click()
    assert rows(page)[-1][1] == "DM(1, 8)"


def test_results_and_their_runs_stay_visible(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html, width=420).page
    heads = page.locator("table.sortable thead th").all_inner_texts()
    assert heads[:5] == ["Draw", "Loss or method", "Final %", "Best %", "Runs done"]
    table = page.get_by_role("region", name="Table of runs")
    name, score = table.locator("tbody tr").first.locator("th, td").all()[1:3]
    assert score.bounding_box()["x"] + score.bounding_box()["width"] < 420
    table.evaluate("(region) => { region.scrollLeft = region.scrollWidth; }")
    assert score.bounding_box()["x"] < 0
    assert name.bounding_box()["x"] >= table.bounding_box()["x"]


def test_curves_follow_the_selection_in_the_table(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    lines = figure(page, "Test accuracy").locator("path.line[data-name]")
    before = lines.count()
    page.get_by_label("Draw CCE, symmetric, rate 0.4", exact=True).uncheck()
    assert lines.count() == before - 1
    assert figure(page, "Emphasis densities").locator('path.line[data-name*="linear"]').count() == 2


def test_all_curves_share_one_legend(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    legend = page.get_by_role("list", name="Legend of all curves")
    names = legend.locator("li").all_inner_texts()
    assert len(names) == 5
    assert not any(name in text for name in names for text in page.locator("figure .legend").all_inner_texts()[:5])
    page.get_by_label("Draw CCE, symmetric, rate 0.4", exact=True).uncheck()
    assert legend.locator("li").count() == 4


def test_data_sets_and_trials_are_apart(
    open_page: Callable[..., Any], tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    trial, final = make_run(tmp_path, "CCE", top=0.8), make_run(tmp_path, "CCE", lr=0.1)
    names = {"trials": [{"run": trial.name}, {"run": None}], "final": {"seeds": [{"run": final.name}]}}
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search.json").write_text(json.dumps(names))
    make_run(tmp_path, "GCE(0.7)", data="imdb")
    page = open_page(report_page(collect([tmp_path]))).page
    tabs = page.get_by_role("group", name="Data set").get_by_role("button")
    assert tabs.all_inner_texts() == ["digits (1)", "imdb (1)", "digits, trials of a search (1)"]
    assert [row[1] for row in rows(page)] == ["CCE"]
    tabs.nth(1).click()
    assert [row[1] for row in rows(page)] == ["GCE(0.7)"]
    assert tabs.nth(1).get_attribute("aria-pressed") == "true"
    assert figure(page, "Test accuracy").locator("path.line").count() == 1
    assert axe(page) == []


def test_keys_read_values_and_tables_hold_the_data(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    shown = figure(page, "Weight on noisy labels")
    shown.locator(".stage").press("End")
    assert shown.locator("output").inner_text().startswith("iteration 600: ")
    shown.get_by_text("The data as a table").click()
    shown.locator("tbody tr").last.wait_for()  # made when the browser reports that it was opened
    assert shown.locator("tbody tr").count() == 6
    assert "40.00 %" in shown.locator("tbody tr").last.inner_text()
    assert "goes from" in shown.locator(".stage").get_attribute("aria-label")


def test_details_of_a_group(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    section = page.get_by_role("region", name="Details")
    titles = section.locator("h3").all_inner_texts()
    assert titles == [
        "Where the weight goes",
        "p of all training examples over time",
        "p of clean labels over time",
        "p of noisy labels over time",
        "Mean p by class",
        "Noise: true class and given label",
        "Reliability at the end",
        "Recall, precision and F1 by class",
    ]
    noise = figure(page, "Noise: true class and given label")
    noise.get_by_text("The data as a table").click()
    noise.locator("tbody tr").last.wait_for()
    assert "</script><b>owl</b>" in noise.locator("tbody").inner_text()  # text, not markup
    section.get_by_label("Group").select_option(label="DM(1, 8)")
    assert section.locator("h3").all_inner_texts() == [*titles[:2], titles[4]]


def test_provenance(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    section = page.get_by_role("region", name="Provenance", exact=True)
    assert section.locator("details").count() == 9
    section.locator("summary").first.press("Enter")
    opened = section.locator("details[open]")
    opened.get_by_text("d" * 64).wait_for()
    assert "torch" in opened.inner_text()


@pytest.mark.parametrize(("count", "shown"), [(7, "7"), (42297, "42,297"), (1234567, "1,234,567")])
def test_counts_are_exact(open_page: Callable[..., Any], html: str, count: int, shown: str) -> None:
    page = open_page(html.replace('"examples":400', f'"examples":{count}')).page
    page.get_by_role("region", name="Provenance", exact=True).locator("summary").first.press("Enter")
    row = page.locator("details[open] tr", has=page.get_by_role("rowheader", name="training examples"))
    assert row.locator("td").inner_text() == shown


def test_a_noisy_holdout_and_a_diverged_run_are_marked(
    open_page: Callable[..., Any], html: str, tmp_path: Path, make_run: Callable[..., Path]
) -> None:
    assert "noisy hold-out" not in open_page(html).page.locator("main").inner_text()
    make_run(tmp_path / "runs", "CCE", holdout="noisy hold-out", top=0.8)
    make_run(tmp_path / "runs", "GCE(0.7)", holdout="noisy hold-out", diverged=300, top=0.7)
    page = open_page(report_page(collect([tmp_path / "runs"]))).page
    assert [row[4] for row in rows(page)] == ["1 of 1", "1 of 1, 1 diverged"]
    section = page.get_by_role("region", name="Runs", exact=True).inner_text()
    assert "Tested on: noisy hold-out." in section
    assert "with its given labels" in section
    assert "Try a smaller learning rate" in section
    assert figure(page, "Noisy hold-out accuracy").count() == 1


def test_accessible(open_page: Callable[..., Any], html: str) -> None:
    assert axe(open_page(html).page) == []


def test_dark_has_contrast_too(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html, scheme="dark").page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert axe(page, ["color-contrast"]) == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_never_wider_than_the_window(open_page: Callable[..., Any], html: str, width: int) -> None:
    page = open_page(html, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_light_and_dark_by_hand(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    page.get_by_role("button", name="Switch to dark colours").press("Enter")
    assert page.evaluate(paper) != before
    page.get_by_role("button", name="Switch to light colours").press("Enter")
    assert page.evaluate(paper) == before


def test_everything_can_be_reached_by_keyboard(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
    assert {"skip", "BUTTON", "INPUT", "stage", "scroll", "SUMMARY"} <= reached


@pytest.fixture
def hundred(tmp_path: Path, make_run: Callable[..., Path]) -> str:
    names = tuple(f"class {i}" for i in range(100))
    for i in range(100):
        make_run(tmp_path / "runs", f"DM(0.5, {i})", evaluations=30, classes=names)
    return report_page(collect([tmp_path / "runs"]))


@pytest.mark.slow
def test_a_hundred_different_runs_fit_on_one_page(open_page: Callable[..., Any], hundred: str) -> None:
    assert len(hundred.encode()) < MAX_BYTES
    page = open_page(hundred).page
    assert page.locator("table.sortable tbody tr").count() == 100
    loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert loaded < 10_000  # 2 s on an idle machine; this one may be busy
    page.get_by_label("Filter").fill("DM(0.5, 42)")
    assert page.locator("table.sortable tbody tr:visible").count() == 1
