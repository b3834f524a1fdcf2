"""The page of suspects: look at the worst of them, decide, and take the decisions away as a CSV file."""

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
from reweigh.lab.report.figure import short
from reweigh.lab.report.page import LARGEST, assemble
from reweigh.lab.report.thumbnail import Detail, Sketch, sketcher
from reweigh.lab.spec import Run
from reweigh.lab.suspects.examples import original
from reweigh.labels import NoiseEstimate, Suspects
from reweigh.labels.noise import LEVEL
from reweigh.noise.corruption import label_hash

SCRIPTS = ("element.js", "copy.js", "theme.js", "decisions.js", "review.js", "gallery.js", "noise.js", "suspects.js")
STYLES = ("page.css", "suspects.css")

LEAST = 24  # examples to review, where fewer are called wrong
HEAT_CLASSES = 20  # the largest matrix that can be read as a table
MISTAKES = 12
ROWS, ABNORMAL, NORMAL = 12, 8, 3  # of the gallery: classes, and examples with the smallest and the largest p

# examples to review and how much of each: as many as the size allows
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
    """One self-contained HTML page on the suspects of a training part; thinned until it is under 1 MB.

    It shows the most suspicious examples with buttons to keep, fix or drop each, a gallery of the examples with the
    smallest p of their class beside those with the largest, and what is estimated of the noise. Decisions stay in the
    browser, under a hash of the labels, until they are downloaded.

    Args:
        part: the examples that `suspects.index` counts, as they were before any net read them: pictures, files, texts
            or rows of a table.
        suspects: the list.
        title: of the page.
        columns: of a table, its columns (`Dataset.columns`), so that numbers are shown in its own units.
        folder: of the run, as the command that applies the decisions is to name it; unknown, it says RUN.
        data_root: where the run's data lie, for the same command; None where the run itself knows it.
    """
    if len(suspects) and int(suspects.index.max()) >= len(part):
        raise ValueError(f"suspects: index {int(suspects.index.max())} is out of range for {len(part)} examples")
    sketch, page = sketcher(part, columns), ""
    words = [str(folder), *([] if data_root is None else ["--data-root", data_root])]
    named = None if folder is None else shlex.join(words)
    rows = gallery_rows(suspects) if part.kind in ("images", "files") else []
    for most, detail in _DETAIL:
        content = {"folder": named, **_content(suspects, rows, sketch, most, detail)}
        page = assemble(title, {"suspects": content}, SCRIPTS, STYLES)
        if len(page.encode()) < LARGEST:
            break
    return page


def page_of_run(run: Run, suspects: Suspects, title: str | None = None, folder: Path | None = None) -> str:
    """`suspects_page` of the examples that a run trains on, read anew from where its data lie."""
    part, columns = original(run)
    return suspects_page(part, suspects, title or f"Suspects in {run.data}", columns, folder, run.data_root)


def key_of(suspects: Suspects) -> str:
    """The name under which a browser keeps decisions: the same for every list of the same labels.

    Where a label changes, older decisions are no longer about it, so they must not come back.
    """
    order = np.argsort(suspects.index, kind="stable")
    labels = (label_hash(suspects.index[order]), label_hash(suspects.given[order]), *suspects.class_names)
    words = "\n".join((*labels, *(suspects.sources[i] for i in order.tolist())))
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def to_review(suspects: Suspects, most: int) -> NDArray[np.int64]:
    """Positions of the worst suspects: those called wrong, and some more where they are few."""
    order = suspects.ranked()
    issues, others = order[suspects.issue[order]], order[~suspects.issue[order]]
    return np.concatenate([issues[:most], others[: max(0, LEAST - len(issues))]])


def gallery_rows(suspects: Suspects) -> list[dict[str, Any]]:
    """A row for each class, the one with the most wrong labels first: positions of its smallest and largest p."""
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
    place = {position: k for k, position in enumerate(shown)}
    return {
        "key": key_of(suspects),
        "classes": suspects.class_names,
        "method": suspects.description,
        "examples": len(suspects),
        "issues": int(suspects.issue.sum()),
        "shown": [_example(suspects, i, sketch, detail) for i in shown],
        "review": len(review),
        "gallery": [row | {end: [place[i] for i in row[end]] for end in ("low", "high")} for row in rows],
        "noise": None if suspects.noise is None else _noise(suspects.noise),
    }


def _example(suspects: Suspects, i: int, sketch: Sketch, detail: Detail) -> dict[str, Any]:
    index = int(suspects.index[i])
    told = sketch(index, detail)
    return {
        "index": index,
        "source": _place(suspects.sources[i]) if "text" in told else _ending(suspects.sources[i]),
        "given": int(suspects.given[i]),
        "suggested": int(suspects.suggested[i]),
        "issue": bool(suspects.issue[i]),
        **short({name: float(getattr(suspects, name)[i]) for name in ("score", "p_given", "p_suggested")}),
        **told,
    }


def _ending(source: str, letters: int = 48) -> str:
    """A path from its end, where it differs from the others."""
    return source if len(source) <= letters else f"…{source[-letters:]}"


def _place(source: str) -> str | None:
    """Where a text stands, as `reweigh.lab.suspects.examples` tells it before the text, which speaks for itself."""
    found = re.match(r"((line|row) \d+): ", source)
    return None if found is None else found[1]


def _noise(noise: NoiseEstimate) -> dict[str, Any]:
    """Rate and largest mistakes with their intervals, and the matrix where it is small enough to read."""
    off = noise.transition.copy()
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:MISTAKES]
    places = [divmod(int(place), len(off)) for place in order if off.flat[place] > 0]
    matrices = (noise.transition, noise.transition_low, noise.transition_high)
    told = {
        "rate": [noise.rate, noise.low, noise.high],
        "level": LEVEL,
        "mistakes": [[true, given, *(float(matrix[true, given]) for matrix in matrices)] for true, given in places],
        "transition": noise.transition.tolist() if len(off) <= HEAT_CLASSES else None,
    }
    found: dict[str, Any] = short(told)
    return found
