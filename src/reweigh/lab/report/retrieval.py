"""The page of `reweigh retrieve`: scores, the CMC curve, and queries with their nearest tracklets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from reweigh.errors import DataError
from reweigh.lab.data.mars import Tracklets
from reweigh.lab.figures.figure import Lines, Series, short, thin, to_mapping
from reweigh.lab.report.page import MAX_BYTES, assemble
from reweigh.lab.report.thumbnail import Detail, data_uri
from reweigh.lab.retrieval import Scores
from reweigh.lab.retrieval.retrieve import RetrievalResult

SCRIPTS = ("elements.js", "figure.js", "retrieval.js")
STYLES = ("page.css", "retrieval.css")
RANKS = (1, 5, 10, 20)
"""The ranks at which CMC is usually reported."""

# maximum queries, ranked tracklets of each, and image size: the first that fit in MAX_BYTES
_DETAIL = (
    (200, 10, Detail(128, 75, 0)),
    (100, 10, Detail(112, 70, 0)),
    (64, 10, Detail(96, 65, 0)),
    (40, 10, Detail(80, 60, 0)),
    (24, 8, Detail(64, 50, 0)),
    (12, 5, Detail(48, 40, 0)),
)


def retrieval_page(
    found: RetrievalResult, title: str = "Retrieval", provenance: Mapping[str, object] = MappingProxyType({})
) -> str:
    """Return a self-contained HTML page with as many queries as fit in 1 MB, evenly spread over their AP.

    Args:
        found: the result of `retrieve`.
        title: title of the page.
        provenance: what made the result, by name.
    """
    made = [[name, str(value)] for name, value in provenance.items()]
    page = ""
    for most, top, detail in _DETAIL:
        content = _content(found, most, top, detail) | {"provenance": made}
        page = assemble(title, {"retrieval": content}, SCRIPTS, STYLES)
        if len(page.encode()) < MAX_BYTES:
            break
    return page


def cmc_figure(scores: Scores) -> Lines:
    """Return the CMC curve: the share of queries with a match among the first r."""
    ranks = tuple(float(rank) for rank in range(1, len(scores.cmc) + 1))
    return Lines(
        key="cmc",
        title="CMC curve",
        caption="The share of queries with a match within the first ranks, without junk.",
        x_label="rank",
        y_label="queries",
        series=(Series("right", ranks, tuple(scores.cmc.tolist())),),
        percent=True,
        top=1.0,
    )


def headline(scores: Scores) -> list[tuple[str, float]]:
    """Return CMC at the usual ranks, and mAP, by name.

    >>> none = np.zeros(0)
    >>> headline(Scores(np.array([0.5, 1.0]), 0.7, none, none, none, none, "official"))
    [('CMC-1', 0.5), ('mAP', 0.7)]
    """
    cmc = [(f"CMC-{rank}", float(scores.cmc[rank - 1])) for rank in RANKS if rank <= len(scores.cmc)]
    return [*cmc, ("mAP", scores.mean_ap)]


def _content(found: RetrievalResult, most: int, top: int, detail: Detail) -> dict[str, Any]:
    scores = found.scores
    by_ap = np.argsort(scores.average_precision, kind="stable")
    shown = np.sort(by_ap[thin(len(by_ap), most)]).tolist()
    tracklets: dict[int, int] = {}  # row of `test` -> index on the page
    queries = [_query(found, i, top, tracklets) for i in shown]
    rules = {"official": "MARS's official rule", "python": "the rule of most Python programs"}
    unmatched = int((~scores.valid).sum())
    without = f" {unmatched} of the queries have no match in the gallery" if unmatched else ""
    without += "" if not unmatched else " and count as 0." if scores.rule == "official" else " and are left out."
    return {
        "facts": short(headline(scores)),
        "summary": f"{len(found.queries):,} queries in a gallery of {len(found.gallery):,} tracklets, scored by "
        f"{rules[scores.rule]}.{without}",
        "curve": to_mapping(cmc_figure(scores)),
        "total": len(found.queries),
        "queries": queries,
        "tracklets": [_tracklet(found.test, row, detail) for row in tracklets],
        "measure": found.measure,
    }


def _query(found: RetrievalResult, i: int, top: int, tracklets: dict[int, int]) -> dict[str, Any]:
    def place(row: int) -> int:
        return tracklets.setdefault(row, len(tracklets))

    rows, similarity, right = (column[i, :top].tolist() for column in found.ranking)
    items = [
        [place(int(found.gallery[row])), short(near), good]
        for row, near, good in zip(rows, similarity, right, strict=True)
        if row >= 0
    ]
    return {
        "number": i + 1,
        "row": place(int(found.queries[i])),
        "ap": short(float(found.scores.average_precision[i])),
        "first": int(found.scores.first_hit[i]),
        "matches": int(found.scores.matches[i]),
        "ranked": items,
    }


def _tracklet(test: Tracklets, row: int, detail: Detail) -> dict[str, Any]:
    """Return person, camera and name of a tracklet, and its middle frame."""
    person = 0 if test.distractor[row] else test.people[row]
    fields: dict[str, Any] = {"person": person, "camera": int(test.cameras[row]), "name": test.names[row]}
    frames = test.of(row)
    try:
        return fields | {"image": data_uri(frames[len(frames) // 2], detail)}
    except DataError as error:  # shown in place of the image
        return fields | {"text": str(error)}
