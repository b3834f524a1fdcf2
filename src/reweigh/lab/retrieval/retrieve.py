"""Extract features, rank and score in one call.

result = retrieve("runs/.../model", mars.scan("data/MARS"), cache="features")
result.scores.mean_ap, result.scores.cmc[0]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from reweigh.errors import DataError
from reweigh.lab.data.mars import Index, Tracklets
from reweigh.lab.nets.cae import CAENet
from reweigh.lab.retrieval.cache import extract_features
from reweigh.lab.retrieval.features import Fusion
from reweigh.lab.retrieval.ranking import (
    Ranking,
    Rule,
    Scores,
    gallery_rows,
    rank,
    rank_distances,
    score,
    score_distances,
)
from reweigh.lab.retrieval.snippets import extract_snippets, tracklet_distances
from reweigh.lab.train.model import load_model

Comparison: TypeAlias = "Fusion | Literal['snippets']"


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """Queries, gallery, rankings and scores.

    Attributes:
        test: the tracklets of queries and gallery.
        queries: (Q,) rows of `test`.
        gallery: (G,) rows of `test`.
        ranking: the most similar items of each query, as rows of `gallery`.
        scores: of all queries.
        measure: name of the values in `ranking.similarity`.
        features: (tracklets, F) of all of `test`; None if snippets were compared.
    """

    test: Tracklets
    queries: NDArray[np.int64]
    gallery: NDArray[np.int64]
    ranking: Ranking
    scores: Scores
    measure: str = "cosine similarity"
    features: NDArray[np.float32] | None = None


def retrieve(
    model: str | os.PathLike[str],
    index: Index,
    fusion: Comparison = "mean",
    rule: Rule = "official",
    *,
    cache: str | os.PathLike[str],
    which: Literal["final", "best"] = "final",
    top: int = 10,
    workers: int = 0,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RetrievalResult:
    """Extract features, rank the gallery for each query, and score the rankings.

    Args:
        model: directory of a model.
        index: tracklets and queries.
        fusion: how the features of frames are fused; "snippets" compares tracklets as CAE does, and requires its net.
        rule: "official" or "python".
        cache: directory of cached features.
        which: the final model, or the best if it was kept.
        top: items per ranking.
        workers: processes that decode frames.
        device: where to compute.
        progress: called with (frames done, frames).

    Raises:
        DataError: a file is missing or damaged, or no query has a match.
    """
    net, card = load_model(model, which, device=device)
    test, queries = index.test, index.queries
    gallery = gallery_rows(test.persons, queries, rule)
    if not len(gallery):
        raise DataError(
            f"the gallery is empty under rule 'python', since all {len(test)} tracklets are queries or junk; use the "
            "official rule (--rule official)"
        )
    query_ids, gallery_ids = ((test.persons[rows], test.cameras[rows]) for rows in (queries, gallery))
    if fusion == "snippets":
        if not isinstance(net, CAENet):
            raise DataError(f"{model}: fusion 'snippets' requires a net of CAE, such as cae-resnet50, not {card.net}")
        tracklets = extract_snippets(net, card, test, cache, workers=workers, device=device, progress=progress)
        distances = tracklet_distances(net, [tracklets[i] for i in queries], [tracklets[i] for i in gallery])
        ranking = rank_distances(distances, *query_ids, *gallery_ids, top=top, device=device)
        scores = score_distances(distances, *query_ids, *gallery_ids, rule, device=device)
        return RetrievalResult(test, queries, gallery, ranking, scores, "negated distance")
    features = extract_features(net, card, test, cache, fusion, workers=workers, device=device, progress=progress).all()
    ranking = rank(features[queries], *query_ids, features[gallery], *gallery_ids, top=top, device=device)
    scores = score(features[queries], *query_ids, features[gallery], *gallery_ids, rule, device=device)
    return RetrievalResult(test, queries, gallery, ranking, scores, features=features)
