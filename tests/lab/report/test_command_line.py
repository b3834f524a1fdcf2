"""The command that applies decisions, as the page of suspects shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reweigh.lab.data.dataset import Part
from reweigh.lab.report.suspects import suspects_page
from reweigh.labels import Suspects


def page_for(folder: Path | None) -> str:
    index = np.arange(6)
    found = Suspects(
        index=index,
        given=index % 2,
        suggested=1 - index % 2,
        score=index / 6,
        issue=index > 2,
        p_given=1 - index / 6,
        p_suggested=index / 6,
        class_names=("cat", "dog"),
        sources=tuple(map(str, index)),
        description="mean of 1 - p",
        noise=None,
    )
    return suspects_page(Part(tuple(f"text {i}" for i in index), index % 2), found, folder=folder)


@pytest.mark.parametrize(
    ("folder", "named"), [(None, "RUN"), (Path("runs/a-s0-1"), "runs/a-s0-1"), (Path("my runs/a"), "'my runs/a'")]
)
def test_it_names_the_run_and_can_be_copied(open_page: Callable[..., Any], folder: Path | None, named: str) -> None:
    page = open_page(page_for(folder)).page
    command = f"reweigh correct {named} --decisions decisions.csv -o corrected"
    assert page.locator(".copy code").inner_text() == command
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy: Command").click()
    page.get_by_role("button", name="Copy: Command").get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == command


@pytest.mark.parametrize("width", range(320, 521, 40))
def test_no_option_is_broken_in_two(open_page: Callable[..., Any], width: int) -> None:
    page = open_page(page_for(Path("runs/digits-s0-1")), width=width).page
    heights = {word.inner_text(): word.bounding_box()["height"] for word in page.locator(".copy code span").all()}
    assert heights["--decisions"] == heights["-o"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
