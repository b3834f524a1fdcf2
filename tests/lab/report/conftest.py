"""Synthetic records, and a real browser."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reweigh.lab.record import Header, Record, environment
from reweigh.lab.record.files import append_bytes
from reweigh.lab.record.rows import row_bytes
from reweigh.lab.spec import Run

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
CLASSES = ("cat", "dog", "ship", "</script><b>owl</b>")


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Path]:
    """Make the folder of a finished run, with rows in closed form."""
    here = environment()

    def make(
        root: Path,
        weighting: str = "DM(0.5, 8)",
        *,
        seed: int = 0,
        rate: float | None = 0.4,
        evaluations: int = 6,
        done: bool = True,
        top: float = 0.9,
        classes: tuple[str, ...] = CLASSES,
        lr: float = 0.05,
        holdout: str = "test",
        diverged: int | None = None,
        record_p: bool = False,
        data: str = "digits",
        data_hash: str = "d" * 64,
    ) -> Path:
        noise = None if rate is None else "symmetric"
        steps = 100 * evaluations
        fields = {"weighting": weighting, "noise": noise, "rate": rate, "seed": seed, "lr": lr}
        run = Run.from_mapping({"data": data, "net": "mlp", "iterations": steps, "record_p": record_p, **fields})
        details: dict[str, Any] = {"name": "digits", "holdout": holdout, "class_names": list(classes)}
        if rate is not None:
            count = len(classes)
            counts = [[60 if i == j else 40 // (count - 1) for j in range(count)] for i in range(count)]
            details["noise"] = {"kind": noise, "rate": rate, "measured": rate, "hash": "ab" * 32, "counts": counts}
        folder = root / run.folder_name()
        with Record(folder, Header(run, data_hash, "e" * 64, 400, details), here) as record:
            rows = [_row(step, seed, rate, evaluations, top, len(classes)) for step in range(1, evaluations + 1)]
            append_bytes(folder / "rows.jsonl", b"".join(map(row_bytes, rows)))  # at once: one flush
            if done:
                best = max(rows, key=lambda row: row["test_accuracy"])
                record.finish(
                    {
                        "final": {key: value for key, value in rows[-1].items() if not isinstance(value, list)},
                        "best": {key: best[key] for key in ("step", "test_accuracy")},
                        "holdout": holdout,
                        "diverged": diverged,
                        "per_class_accuracy": [top - 0.01 * i for i in range(len(classes))],
                        "reliability": [
                            {"confidence": (i + 0.5) / 10, "accuracy": (i + 0.2) / 10, "count": 10} for i in range(10)
                        ],
                        "seconds": 1.5,
                    }
                )
        return folder

    return make


def _row(number: int, seed: int, rate: float | None, total: int, top: float, classes: int) -> dict[str, Any]:
    t = number / total
    accuracy = top * (1 - math.exp(-4 * t)) - 0.1 * t * (rate or 0) + 0.001 * seed
    histogram = _shares([math.exp(-((i / 20 - t) ** 2) * 9) for i in range(20)])
    row: dict[str, Any] = {
        "step": 100 * number,
        "lr": 0.05 * (1 - t),
        "loss": 2 - t,
        "train_accuracy": 0.6 * t,
        "p_mean": 0.5 * t,
        "p_histogram": histogram,
        "weight_histogram": _shares([share * (1.05 - i / 20) for i, share in enumerate(histogram)]),
        "p_by_class": [t * (1 - 0.1 * i) if i < 10 else 0.5 * t for i in range(classes)],
        "test_accuracy": accuracy,
        "test_cross_entropy": 1 - t / 2,
        "test_ece": 0.1 * t,
    }
    if rate is not None:
        row |= {"p_clean": 0.9 * t, "p_noisy": 0.3 * t, "fit_clean": 0.95 * t, "fit_noisy": 0.2 * t}
        row |= {"train_accuracy_clean": 0.8 * t, "weight_noisy": 0.3 + 0.1 * t}
        row |= {"p_histogram_clean": histogram, "p_histogram_noisy": histogram[::-1]}
    return row


def _shares(values: list[float]) -> list[float]:
    return [round(value / sum(values), 6) for value in values]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, as its package installs it."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield chromium
        chromium.close()


class Opened:
    """A page and its errors."""

    def __init__(self, page: Any, file: Path) -> None:
        self.page, self.problems = page, list[str]()
        page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: request.url == file.as_uri() or self.problems.append(request.url))
        page.goto(file.as_uri())


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open a page with a profile of its own; fail at the end if it logged, failed or loaded anything."""
    opened: list[Opened] = []

    def show(html: str, width: int = 1280, scheme: str = "light") -> Opened:
        file = tmp_path / f"page-{len(opened)}.html"
        file.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        opened.append(Opened(context.new_page(), file))
        return opened[-1]

    yield show
    for each in opened:
        each.page.context.close()
    assert [problem for each in opened for problem in each.problems] == []
