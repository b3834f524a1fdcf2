"""From a trained model and tracklets to rankings and scores: all of retrieval in one call.

found = retrieve("runs/.../model", mars.scan("data/MARS"), cache="features")
found.scores.mean_ap, found.scores.cmc[0]
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
from reweigh.lab.retrieval.cache import extract
from reweigh.lab.retrieval.features import Fusion
from reweigh.lab.retrieval.ranking import Ranking, rank, rank_distances
from reweigh.lab.retrieval.scoring import Rule, Scores, gallery_rows, score, score_distances
from reweigh.lab.retrieval.snippets import extract_snippets, tracklet_distances
from reweigh.lab.train.model import load_model

Comparison: TypeAlias = "Fusion | Literal['snippets']"


@dataclass(frozen=True, eq=False)
class Retrieved:
    """What was asked, and what was found.

    Attributes:
        test: all tracklets that were searched or searched for.
        queries: (Q,) rows of `test`.
        gallery: (G,) rows of `test`.
        ranking: the nearest items of every query, as rows of `gallery`.
        scores: of all queries.
        measure: what a ranking's number is, in words.
        features: (tracklets, F) of all of `test`; None where snippets were compared.
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
) -> Retrieved:
    """Extract features, rank the gallery for every query, and score.

    Args:
        model: the folder of a model.
        index: tracklets and queries.
        fusion: how the frames of a tracklet become its feature; "snippets" compares tracklets as CAE does, and needs
            its net.
        rule: "official" or "python".
        cache: a folder for features: what is there is not computed again.
        which: the final model, or the best where it was kept.
        top: items of every ranking.
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
            f"all {len(test)} tracklets that are searched are queries or junk, which rule 'python' leaves out of the "
            "gallery: nothing is left to find; take the official rule (--rule official), or more tracklets of a person "
            "before a camera"
        )
    asked, shown = ((test.persons[rows], test.cameras[rows]) for rows in (queries, gallery))
    if fusion == "snippets":
        if not isinstance(net, CAENet):
            raise DataError(f"{model}: snippets are compared by CAE's net, such as cae-resnet50, not by {card.net}")
        tracklets = extract_snippets(net, card, test, cache, workers=workers, device=device, progress=progress)
        near = tracklet_distances(net, [tracklets[i] for i in queries], [tracklets[i] for i in gallery])
        ranking = rank_distances(near, *asked, *shown, top=top, device=device)
        scores = score_distances(near, *asked, *shown, rule, device=device)
        return Retrieved(test, queries, gallery, ranking, scores, "negated distance")
    features = extract(net, card, test, cache, fusion, workers=workers, device=device, progress=progress).all()
    ranking = rank(features[queries], *asked, features[gallery], *shown, top=top, device=device)
    scores = score(features[queries], *asked, features[gallery], *shown, rule, device=device)
    return Retrieved(test, queries, gallery, ranking, scores, features=features)
