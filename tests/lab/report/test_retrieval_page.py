"""The page of a retrieval as a person meets it, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from accessibility import axe
from reweigh.lab.data.mars import Tracklets
from reweigh.lab.data.source.images import Files
from reweigh.lab.report.page import MAX_BYTES
from reweigh.lab.report.retrieval import headline, retrieval_page
from reweigh.lab.retrieval import gallery_rows, rank, score
from reweigh.lab.retrieval.retrieve import RetrievalResult

# person, camera: person 4 is seen by one camera alone, -1 is junk, 0 a distractor
SEEN = [(2, 1), (2, 2), (2, 3), (6, 1), (6, 2), (4, 5), (0, 3), (-1, 1)]


def tracklets(folder: Path, seen: list[tuple[int, int]], noisy: bool = False) -> Tracklets:
    draws, names = np.random.default_rng(0), []
    for i in range(len(seen)):
        names.append(f"{i}.png")
        shape = (64, 32, 3) if noisy else (1, 1, 3)
        pixels = draws.integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).resize((32, 64), Image.Resampling.NEAREST).save(folder / names[-1])
    places = np.arange(len(seen))
    persons, cameras = np.array(seen).T
    return Tracklets(Files(folder, tuple(names)), places, places + 1, persons, cameras)


def retrieved(test: Tracklets, queries: list[int], features: np.ndarray, rule: Any = "official") -> RetrievalResult:
    rows, gallery = np.array(queries), gallery_rows(test.persons, queries, rule)
    who = (test.persons[rows], test.cameras[rows], features[gallery], test.persons[gallery], test.cameras[gallery])
    found = score(features[rows], *who, rule, ranks=20)
    return RetrievalResult(test, rows, gallery, rank(features[rows], *who, top=5), found)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> RetrievalResult:
    features = np.array([[1, 0], [1, 0.1], [0.1, 1], [0, 1], [0.5, 0.6], [0.9, 0.1], [0.05, 1], [1, 0]])
    return retrieved(tracklets(tmp_path_factory.mktemp("frames"), SEEN), [0, 3, 5], features)


@pytest.fixture(scope="module")
def html(found: RetrievalResult) -> str:
    return retrieval_page(found, "Who <is> it?", {"run": "a </script> run", "fusion": "mean"})


def test_scores(open_page: Callable[..., Any], html: str, found: RetrievalResult) -> None:
    page = open_page(html).page
    assert page.title() == "Who <is> it? · reweigh"
    named = dict(headline(found.scores))
    shown = page.locator(".facts li").all_inner_texts()
    assert shown[0].split("\n") == [f"{100 * named['CMC-1']:.1f} %", "CMC-1"]
    assert shown[-1].split("\n") == [f"{100 * named['mAP']:.1f} %", "mAP"]
    scores = page.get_by_role("region", name="Scores").inner_text()
    assert "3 queries in a gallery of 8 tracklets, scored by MARS's official rule." in scores
    assert "1 of the queries have no match in the gallery and count as 0." in scores
    page.get_by_text("The data as a table").click()
    page.locator("figure tbody tr").last.wait_for()
    assert page.locator("figure tbody tr").count() == 20


def test_right_and_wrong_are_marked_and_junk_is_left_out(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    answer = page.locator("li.answer", has=page.get_by_role("heading", name="Query 1: person 2, camera 1"))
    items = [text.split("\n") for text in answer.locator("ol li").all_inner_texts()]
    assert [item[0] for item in items][:2] == ["✓ right", "✗ wrong"]
    assert [item[2] for item in items] == [
        "person 2, camera 2",
        "person 4, camera 5",
        "person 6, camera 2",
        "person 2, camera 3",
        "distractor, camera 3",
    ]
    alternative = answer.locator("ol img").nth(1).get_attribute("alt")
    assert alternative == "Rank 2, wrong: person 4, camera 5"
    assert all(image.evaluate("image => image.naturalWidth") > 0 for image in page.locator("img").all())
    empty = page.locator("li.answer", has=page.get_by_role("heading", name="Query 3"))
    assert "no match in the gallery" in empty.inner_text()


def test_queries_can_be_ordered_and_chosen(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page

    def numbers() -> list[str]:
        return [text.split(":")[0] for text in page.locator(".answer h3").all_inner_texts()]

    assert numbers()[0] == "Query 3"
    page.get_by_label("Order").select_option(label="Query number")
    assert numbers() == ["Query 1", "Query 2", "Query 3"]
    page.get_by_label("Show").select_option(label="right at rank 1")
    assert numbers() == ["Query 1"]
    assert "1 of 3 shown" in page.locator(".choose").inner_text()


def test_accessible_in_light_and_dark(open_page: Callable[..., Any], html: str) -> None:
    assert axe(open_page(html).page) == []
    page = open_page(html, scheme="dark").page
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert axe(page, ["color-contrast"]) == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_never_wider_than_the_window(open_page: Callable[..., Any], html: str, width: int) -> None:
    page = open_page(html, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_can_be_reached_by_keyboard(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    reached = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.className || document.activeElement.tagName"))
    assert {"skip", "BUTTON", "SELECT", "stage", "scroll", "ranked", "SUMMARY"} <= reached


def test_a_frame_that_cannot_be_read_leaves_its_sentence(tmp_path: Path) -> None:
    test = tracklets(tmp_path, SEEN)
    (tmp_path / "1.png").write_bytes(b"nothing")
    page = retrieval_page(retrieved(test, [0], np.random.default_rng(0).normal(size=(8, 3)), "python"))
    assert "1.png: not a readable image" in page
    assert "the rule of most Python programs" in page


@pytest.mark.slow
def test_many_queries_fit_on_one_page(tmp_path: Path) -> None:
    """Noise is the worst that a JPEG can meet; those shown are spread from the lowest AP to the highest."""
    seen = [(2 + person, camera) for person in range(150) for camera in (1, 2)]
    test = tracklets(tmp_path, seen, noisy=True)
    found = retrieved(test, list(range(300)), np.random.default_rng(0).normal(size=(300, 4)))
    page = retrieval_page(found)
    assert len(page.encode()) < MAX_BYTES
    assert '"total":300' in page
    assert f'"number":{1 + int(found.scores.average_precision.argmin())},' in page
    assert f'"ap":{float(found.scores.average_precision.max()):.4g}'.removesuffix(".0") in page
