"""The page of `reweigh suspects`: review the most suspicious examples and download decisions as CSV."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.data.dataset import Column, Part
from reweigh.lab.figures.figure import short
from reweigh.lab.report.page import MAX_BYTES, assemble
from reweigh.lab.report.thumbnail import Detail, Sketch, sketcher
from reweigh.lab.spec import Run
from reweigh.lab.suspects.examples import original
from reweigh.labels import NoiseEstimate, Suspects
from reweigh.labels.noise import LEVEL
from reweigh.noise.corruption import label_hash

SCRIPTS = ("elements.js", "suspects.js")
STYLES = ("page.css", "suspects.css")

MIN_REVIEW = 24  # examples to review, even if fewer are issues
HEAT_CLASSES = 20  # classes up to which the transition matrix is shown
MISTAKES = 12
ENDING = 48  # letters of a path
ROWS, ABNORMAL, NORMAL = 12, 8, 3  # of the gallery: classes, and examples with the lowest and the highest p

# maximum examples to review, and their size: the first that fit in MAX_BYTES
_DETAIL = (
    (300, Detail(128, 75, 600)),
    (300, Detail(96, 70, 500)),
    (240, Detail(80, 65, 400)),
    (200, Detail(64, 60, 300)),
    (100, Detail(48, 55, 200)),
    (50, Detail(32, 50, 100)),
)


def suspects_page(
    part: Part,
    suspects: Suspects,
    title: str = "Suspects",
    columns: Sequence[Column] | None = None,
    folder: Path | None = None,
    data_root: str | None = None,
) -> str:
    """Return a self-contained HTML page on the suspects of a training set, with as many examples as fit in 1 MB.

    It shows the most suspicious examples with buttons to keep, fix or drop each, a gallery of the examples with the
    lowest and the highest p of each class, and the estimated noise. The browser stores decisions under a hash of the
    labels until they are downloaded.

    Args:
        part: the unprocessed examples that `suspects.index` refers to: images, files, texts or rows of a table.
        suspects: the suspects.
        title: title of the page.
        columns: the columns of a table (`Dataset.columns`), to show numbers in their own units.
        folder: folder of the run, for the command that applies the decisions; None shows RUN.
        data_root: the run's data root, for the same command; None if the run has none.
    """
    if len(suspects) and int(suspects.index.max()) >= len(part):
        raise ValueError(f"suspects: index {int(suspects.index.max())} is out of range for {len(part)} examples")
    sketch, page = sketcher(part, columns), ""
    words = [str(folder), *([] if data_root is None else ["--data-root", data_root])]
    run = None if folder is None else shlex.join(words)
    rows = gallery_rows(suspects) if part.kind in ("images", "files") else []
    for most, detail in _DETAIL:
        content = {"folder": run, **_content(suspects, rows, sketch, most, detail)}
        page = assemble(title, {"suspects": content}, SCRIPTS, STYLES)
        if len(page.encode()) < MAX_BYTES:
            break
    return page


def page_of_run(run: Run, suspects: Suspects, title: str | None = None, folder: Path | None = None) -> str:
    """Return the `suspects_page` of a run, whose training examples are read again from its data."""
    part, columns = original(run)
    return suspects_page(part, suspects, title or f"Suspects in {run.data}", columns, folder, run.data_root)


def key_of(suspects: Suspects) -> str:
    """Return the name under which the browser stores decisions: the same for every list of the same labels.

    If a label changes, so does the name: older decisions do not apply to it.
    """
    order = np.argsort(suspects.index, kind="stable")
    labels = (label_hash(suspects.index[order]), label_hash(suspects.given[order]), *suspects.class_names)
    words = "\n".join((*labels, *(suspects.sources[i] for i in order.tolist())))
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def to_review(suspects: Suspects, most: int) -> NDArray[np.int64]:
    """Return the positions of the examples to review: the issues, and some more if they are few."""
    order = suspects.ranked()
    issues, others = order[suspects.issue[order]], order[~suspects.issue[order]]
    return np.concatenate([issues[:most], others[: max(0, MIN_REVIEW - len(issues))]])


def confusions(suspects: Suspects, most: int = MISTAKES) -> list[tuple[int, int, int, int]]:
    """Return the most frequent pairs among the issues: given class, suggested class, issues, labels of the first."""
    chosen = suspects.issue & (suspects.suggested != suspects.given)
    classes = len(suspects.class_names)
    pairs, counts = np.unique(suspects.given[chosen] * classes + suspects.suggested[chosen], return_counts=True)
    of = np.bincount(suspects.given, minlength=classes)
    order = np.argsort(-counts, kind="stable")[:most].tolist()
    return [
        (int(pairs[k] // classes), int(pairs[k] % classes), int(counts[k]), int(of[pairs[k] // classes])) for k in order
    ]


def gallery_rows(suspects: Suspects) -> list[dict[str, Any]]:
    """Return a row per class, most issues first, with the positions of its lowest and highest p."""
    rows = []
    for k in np.unique(suspects.given).tolist():
        members = np.flatnonzero(suspects.given == k)
        order = members[np.lexsort((suspects.index[members], suspects.p_given[members]))].tolist()
        low, high = order[:ABNORMAL], order[max(ABNORMAL, len(order) - NORMAL) :]
        issues = int(suspects.issue[members].sum())
        rows.append({"label": k, "issues": issues, "of": len(order), "low": low, "high": high})
    return sorted(rows, key=lambda row: (-row["issues"], row["label"]))[:ROWS]


def _content(
    suspects: Suspects, rows: Sequence[dict[str, Any]], sketch: Sketch, most: int, detail: Detail
) -> dict[str, Any]:
    review = to_review(suspects, most).tolist()
    shown = list(dict.fromkeys([*review, *(i for row in rows for i in (*row["low"], *row["high"]))]))
    location = {position: k for k, position in enumerate(shown)}
    return {
        "key": key_of(suspects),
        "classes": suspects.class_names,
        "method": suspects.description,
        "examples": len(suspects),
        "issues": int(suspects.issue.sum()),
        "shown": [_example(suspects, i, sketch, detail) for i in shown],
        "review": len(review),
        "gallery": [row | {end: [location[i] for i in row[end]] for end in ("low", "high")} for row in rows],
        "noise": None if suspects.noise is None else _noise(suspects.noise),
        "confusions": confusions(suspects),
    }


def _example(suspects: Suspects, i: int, sketch: Sketch, detail: Detail) -> dict[str, Any]:
    index = int(suspects.index[i])
    preview = sketch(index, detail)
    return {
        "index": index,
        "source": _line_of(suspects.sources[i]) if "text" in preview else _ending(suspects.sources[i]),
        **({"path": suspects.sources[i]} if "image" in preview and len(suspects.sources[i]) > ENDING else {}),
        "given": int(suspects.given[i]),
        "suggested": int(suspects.suggested[i]),
        "issue": bool(suspects.issue[i]),
        **short({name: float(getattr(suspects, name)[i]) for name in ("score", "p_given", "p_suggested")}),
        **preview,
    }


def _ending(source: str) -> str:
    """Return the end of a long path, from a folder on, where it differs from the others."""
    if len(source) <= ENDING:
        return source
    end = source[-ENDING:]
    return f"…{end[max(0, end.find('/')) :]}"


def _line_of(source: str) -> str | None:
    """Return the line or row of a text, which `reweigh.lab.suspects.examples` puts in front of it."""
    found = re.match(r"((line|row) \d+): ", source)
    return None if found is None else found[1]


def _noise(noise: NoiseEstimate) -> dict[str, Any]:
    """Return the noise rate and the most frequent mistakes with their intervals, and the matrix if it is small."""
    off = noise.transition.copy()
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:MISTAKES]
    places = [divmod(int(place), len(off)) for place in order if off.flat[place] > 0]
    matrices = (noise.transition, noise.transition_low, noise.transition_high)
    estimates = {
        "rate": [noise.rate, noise.low, noise.high],
        "level": LEVEL,
        "mistakes": [[true, given, *(float(matrix[true, given]) for matrix in matrices)] for true, given in places],
        "transition": noise.transition.tolist() if len(off) <= HEAT_CLASSES else None,
    }
    rounded: dict[str, Any] = short(estimates)
    return rounded
