"""The page of suspects in a real browser: review, decisions by mouse and keys, and their download."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from accessibility import axe
from reweigh.lab.data.dataset import Column, Part
from reweigh.lab.data.registry import load
from reweigh.lab.data.source.images import Files
from reweigh.lab.report.page import MAX_BYTES
from reweigh.lab.report.suspects import gallery_rows, key_of, page_of_run, suspects_page, to_review
from reweigh.lab.run.material import gather
from reweigh.lab.spec import Run
from reweigh.lab.suspects.decisions import Decision, read_decisions
from reweigh.lab.suspects.examples import sources_of
from reweigh.labels import NoiseEstimate, Suspects

CLASSES = ("cat", 'a "dog", large', "</script><b>owl</b>")
N = 60


def noise(classes: int) -> NoiseEstimate:
    matrix = np.full((classes, classes), 0.3 / (classes - 1))
    np.fill_diagonal(matrix, 0.7)
    matrix[0, :2] = 0.6, 0.7 - 0.6 + matrix[0, 1]
    return NoiseEstimate(0.31, 0.28, 0.345, matrix, matrix * 0.9, matrix * 1.1)


def make_suspects(count: int = N, classes: tuple[str, ...] = CLASSES, issues: int = 30) -> Suspects:
    """Example i has class i mod C; the last `issues` examples are the suspects, the last of all the worst."""
    index = np.arange(count)
    given = index % len(classes)
    p = np.linspace(0.999, 0.001, count)
    return Suspects(
        index=index,
        given=given,
        suggested=np.where(index < count - issues, given, (given + 1) % len(classes)),
        score=1 - p,
        issue=index >= count - issues,
        p_given=p,
        p_suggested=np.maximum(p, 0.5),
        class_names=classes,
        sources=tuple(f"example-{i}.png" for i in index),
        description="mean of 1 - p",
        noise=noise(len(classes)),
    )


def pictures(count: int = N, side: int = 32) -> Part:
    rng = np.random.default_rng(0)
    return Part(rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8), np.arange(count) % len(CLASSES))


def texts() -> Part:
    return Part(tuple(f"<i>review</i> {i} " + "word " * 300 for i in range(N)), np.arange(N) % len(CLASSES))


@pytest.fixture(scope="module")
def html() -> str:
    return suspects_page(pictures(), make_suspects(), "Mine <& more>")


def pressed(card: Any) -> list[str]:
    return list(card.locator("button[aria-pressed=true]").all_inner_texts())


def choose(card: Any, label: str) -> None:
    """Pick another label; the list is filled when it is focused."""
    card.locator("select").focus()
    card.get_by_label("New label").select_option(label)


def test_the_worst_come_first_with_both_labels(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    assert page.title() == "Mine <& more> · reweigh"
    cards = page.locator(".card")
    assert cards.count() == 30
    first = cards.first
    assert first.locator(".pair").inner_text() == "</script><b>owl</b> → cat"
    assert first.locator(".numbers").inner_text() == "score 0.999, p 0.001 → 0.5"
    assert first.locator(".source").inner_text() == "example-59.png"
    assert first.locator("img").evaluate("image => image.complete && image.naturalWidth") == 32
    assert page.get_by_text("30 of 60 labels are issues").count() == 1


def test_keys_decide_and_move_on(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    cards = page.locator(".card")
    cards.first.focus()
    for key in ("k", "F", "d", "ArrowRight", "f", "ArrowLeft", "u", "Home"):
        page.keyboard.press(key)
    assert [pressed(cards.nth(i)) for i in range(5)] == [["Keep"], ["Fix"], ["Drop"], [], []]
    assert cards.first.evaluate("card => card === document.activeElement")
    assert page.locator(".counter").inner_text() == "3 decided: 1 keep, 1 fix, 1 drop"
    page.keyboard.press("ArrowDown")
    assert not cards.first.evaluate("card => card === document.activeElement")
    page.keyboard.press("End")
    assert cards.last.evaluate("card => card === document.activeElement")
    assert page.locator(".card[tabindex='0']").count() == 1


def test_the_downloaded_file_holds_the_decisions(open_page: Callable[..., Any], html: str, tmp_path: Path) -> None:
    page = open_page(html).page
    assert page.get_by_role("button", name="Download").is_disabled()
    cards = page.locator(".card")
    cards.nth(0).get_by_role("button", name="Keep").click()
    cards.nth(1).get_by_role("button", name="Fix").click()
    cards.nth(2).get_by_role("button", name="Drop").click()
    choose(cards.nth(3), 'a "dog", large')
    cards.nth(4).get_by_role("button", name="Drop").click()
    cards.nth(4).get_by_role("button", name="Drop").click()  # and undoes it
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download").click()
    assert waiting.value.suggested_filename == "decisions.csv"
    waiting.value.save_as(tmp_path / "decisions.csv")
    labels = make_suspects().given
    assert read_decisions(tmp_path / "decisions.csv", labels, CLASSES) == (
        Decision(56, 2, "fix", 1),
        Decision(57, 0, "drop", 0),
        Decision(58, 1, "fix", 2),
        Decision(59, 2, "keep", 2),
    )


def test_decisions_survive_a_reload_and_can_be_deleted(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    page.locator(".card").nth(0).press("d")
    choose(page.locator(".card").nth(3), 'a "dog", large')
    page.reload()
    assert pressed(page.locator(".card").nth(0)) == ["Drop"]
    assert pressed(page.locator(".card").nth(3)) == ["Fix"]
    assert page.locator(".card").nth(3).get_by_label("New label").input_value() == "1"
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete all").click()
    assert page.locator(".counter").inner_text() == "0 decided: 0 keep, 0 fix, 0 drop"
    assert page.locator("button[aria-pressed=true]").count() == 0


def test_without_storage_there_is_a_warning(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    assert page.locator(".note").is_hidden()
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('off'); }})")
    page.reload()
    assert page.locator(".note").is_visible()
    page.locator(".card").first.press("k")
    assert pressed(page.locator(".card").first) == ["Keep"]


def test_filters(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    visible = page.locator(".card:visible")
    page.get_by_label("Pair").select_option('cat → a "dog", large (10)')
    assert visible.count() == 10
    visible.first.press("k")
    assert visible.count() == 10  # no card disappears during a decision
    page.get_by_label("Show").select_option("undecided")
    assert visible.count() == 9
    page.get_by_label("Show").select_option("decided")
    assert visible.count() == 1
    visible.first.press("u")
    page.get_by_label("Show").select_option("all")
    page.get_by_label("Show").select_option("decided")
    assert page.get_by_text("No example matches these filters.").is_visible()


def test_where_the_model_agrees_there_is_nothing_to_fix_to(open_page: Callable[..., Any]) -> None:
    page = open_page(suspects_page(pictures(), make_suspects(issues=3))).page
    cards = page.locator(".card")
    assert cards.count() == 24
    agreed = cards.nth(5)
    assert "not an issue" in agreed.locator(".source").inner_text()
    assert agreed.get_by_role("button", name="Fix").is_disabled()
    agreed.press("f")
    assert pressed(agreed) == []
    choose(agreed, "</script><b>owl</b>")
    assert pressed(agreed) == ["Fix"]


def test_gallery_and_noise(open_page: Callable[..., Any], html: str) -> None:
    page = open_page(html).page
    gallery = page.get_by_role("region", name="Abnormal examples")
    rows = gallery.locator(".row")
    assert rows.count() == 3
    captions = rows.first.locator(".strip").first.locator("li").all_inner_texts()
    numbers = [float(caption.split()[1]) for caption in captions]
    assert len(numbers) == 8
    assert numbers == sorted(numbers)
    assert rows.first.locator("li.issue").count() == 8
    assert rows.first.locator(".normal li.issue").count() == 0
    estimate = page.get_by_role("region", name="Estimated noise").inner_text()
    assert "31.0 % of the labels are wrong" in estimate
    assert "95 % interval: 28.0 to 34.5 %" in estimate
    assert page.get_by_role("region", name="Transition matrix").locator("td.heat").count() == 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("part", [pictures(), texts()], ids=lambda part: part.kind)
def test_accessible(open_page: Callable[..., Any], part: Part, scheme: str) -> None:
    page = open_page(suspects_page(part, make_suspects()), scheme=scheme).page
    for i, key in enumerate("kfd"):
        page.locator(".card").nth(i).press(key)
    assert axe(page) == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_never_wider_than_the_window(open_page: Callable[..., Any], html: str, width: int) -> None:
    page = open_page(html, width=width).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_texts_are_text_and_tables_are_in_their_own_units(open_page: Callable[..., Any]) -> None:
    page = open_page(suspects_page(texts(), replace(make_suspects(), noise=None))).page
    shown = page.locator(".card blockquote").first.inner_text()
    assert shown.startswith("<i>review</i> 59 word")
    assert len(shown) < 700
    assert page.get_by_role("heading").all_inner_texts() == ["Suspects", "Review", "Confusions"]
    features = Part(np.eye(N, 5, dtype=np.float32), np.arange(N) % 3)
    columns = [Column(f"column {k}", 100.0 * k, 10.0) for k in range(5)]
    page = open_page(suspects_page(features, make_suspects(), columns=columns)).page
    assert page.locator(".card").first.locator("dt").all_inner_texts() == [f"column {k}" for k in range(5)]
    assert page.locator(".card").first.locator("dd").all_inner_texts() == ["0", "100", "200", "300", "400"]


def test_files_are_thumbnails_and_a_broken_one_says_so(tmp_path: Path) -> None:
    names = tuple(f"{i}.jpg" for i in range(N))
    for name in names:
        Image.new("RGB", (90, 200), (200, 30, 30)).save(tmp_path / name)
    (tmp_path / "59.jpg").write_bytes(b"no picture")
    html = suspects_page(Part(Files(tmp_path, names), np.arange(N) % 3), make_suspects())
    assert html.count("data:image/jpeg;base64,") >= 29
    assert "59.jpg: not a readable image" in html


def test_large_pictures_of_many_classes_stay_under_the_limit() -> None:
    classes = tuple(f"person {i:04d}" for i in range(625))
    count = 2000
    suspects = make_suspects(count, classes, issues=1500)
    rng = np.random.default_rng(0)
    part = Part(rng.integers(0, 256, (count, 128, 64, 3), dtype=np.uint8), suspects.given)
    html = suspects_page(part, suspects)
    assert len(html.encode()) < MAX_BYTES
    assert html.count("data:image/jpeg") >= 100


@pytest.mark.parametrize(("name", "found"), [("cifar10", "cifar-10-batches-bin"), ("mars", "mini_mars")])
def test_real_pictures(name: str, found: str) -> None:
    root = os.environ.get("REWEIGH_DATA")
    if not root or not Path(root, found).is_dir():
        pytest.skip(f"no {found} below REWEIGH_DATA: no real pictures to show")
    data = load(name, Path(root, found) if name == "mars" else root)
    suspects = make_suspects(len(data.train), data.class_names, issues=500)
    html = suspects_page(data.train, replace(suspects, given=data.train.labels))
    assert len(html.encode()) < MAX_BYTES
    assert html.count("data:image/jpeg") >= 300


def test_decisions_are_kept_by_labels_and_not_by_rank() -> None:
    suspects = make_suspects()
    again = suspects.take(suspects.ranked())
    assert key_of(again) == key_of(replace(suspects, score=suspects.score[::-1].copy())) == key_of(suspects)
    other = suspects.given.copy()
    other[7] = (other[7] + 1) % 3
    assert key_of(replace(suspects, given=other)) != key_of(suspects)
    assert to_review(suspects, 10).tolist() == list(range(59, 49, -1))
    lower = replace(suspects, issue=suspects.index % 30 == 0)  # issues, though others score higher
    assert to_review(lower, 100).tolist() == [30, 0, *range(59, 37, -1)]
    assert [row["label"] for row in gallery_rows(suspects)] == [0, 1, 2]


def test_the_part_of_a_run_is_shown_as_it_lies_on_disk(tmp_path: Path) -> None:
    lines = [f"{i % 7},{('a bad', 'a good')[i % 2]} film {i},{('no', 'yes')[i % 2]}\n" for i in range(60)]
    (tmp_path / "mine.csv").write_text("n,words,label\n" + "".join(lines))
    run = Run(data=str(tmp_path / "mine.csv"), text_column="words", net="mlp", weighting="CCE", imbalance="step(2)")
    material = gather(run)
    count = len(material.train)
    suspects = replace(make_suspects(count, ("no", "yes")), given=material.train.labels, noise=None)
    suspects = replace(suspects, sources=sources_of(run, material))
    data = page_of_run(run, suspects).partition('id="data">')[2].partition("</script>")[0]
    for example in json.loads(data)["suspects"]["shown"]:
        assert ("good" in example["text"]) == (example["given"] == 1)
        assert example["source"] == f"line {int(example['text'].split()[-1]) + 2}"


def test_suspects_of_other_data_are_refused() -> None:
    with pytest.raises(ValueError, match="index 59 is out of range for 30 examples"):
        suspects_page(pictures(30), make_suspects())
