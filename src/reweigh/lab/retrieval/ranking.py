"""The nearest items of the gallery for every query, as a page shows them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from reweigh.lab.data.mars import JUNK
from reweigh.lab.retrieval.nearness import NEVER, Chunks, Cosine, Features, Given, Nearness, keys, slices, unkeyed
from reweigh.lab.retrieval.scoring import Ids, People


class Ranking(NamedTuple):
    """The first `top` items for each of Q queries, junk skipped.

    Attributes:
        rows: (Q, top) int64, rows of the gallery, nearest first; -1 where the gallery has no more.
        similarity: (Q, top) float32, cosine, or the negated distance; NaN where there is no item.
        right: (Q, top) bool, whether the item is a good one.
    """

    rows: Ids
    similarity: NDArray[np.float32]
    right: NDArray[np.bool_]


def rank(
    query_features: Features,
    query_persons: ArrayLike,
    query_cameras: ArrayLike,
    gallery_features: Features,
    gallery_persons: ArrayLike,
    gallery_cameras: ArrayLike,
    top: int = 10,
    *,
    device: torch.device | str = "cpu",
    chunks: Chunks | None = None,
) -> Ranking:
    """The nearest `top` items by cosine similarity, in the order that `score` scores; arguments as there.

    >>> features = np.eye(3)[[0, 0, 1]] + 0.1
    >>> rank(features[:1], [7], [1], features, [7, 7, 0], [1, 2, 3], top=3).rows
    array([[ 1,  2, -1]])
    """
    who = People.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    return _nearest(Cosine(query_features, gallery_features, device), who, top, chunks or Chunks())


def rank_distances(
    distances: NDArray[Any] | Tensor,
    query_persons: ArrayLike,
    query_cameras: ArrayLike,
    gallery_persons: ArrayLike,
    gallery_cameras: ArrayLike,
    top: int = 10,
    *,
    device: torch.device | str = "cpu",
    chunks: Chunks | None = None,
) -> Ranking:
    """The nearest `top` items by given distances, (Q, G)."""
    who = People.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    return _nearest(Given(distances, device), who, top, chunks or Chunks())


def _nearest(near: Nearness, who: People, top: int, chunks: Chunks) -> Ranking:
    who.fit(near)
    if top < 1:
        raise ValueError(f"top must be 1 or more, not {top}")
    persons, cameras, shown, seen_by = (
        torch.from_numpy(ids).to(near.device)
        for ids in (who.query_persons, who.query_cameras, who.gallery_persons, who.gallery_cameras)
    )
    best = torch.full((near.queries, top), NEVER, device=near.device)
    for items in slices(near.items, chunks.gallery):
        block, row = near.block(items), torch.arange(items.start, items.stop, device=near.device)
        for group in slices(near.queries, chunks.queries):
            own = (shown[items] == persons[group, None]) & (seen_by[items] == cameras[group, None])
            key = keys(block.rows(group), row).masked_fill_(own | (shown[items] == JUNK), NEVER)
            best[group] = torch.cat((best[group], key), 1).topk(top, largest=False).values
    level, rows = unkeyed(best)
    found = best != NEVER
    rows = torch.where(found, rows, -1)
    right = found & (shown[rows] == persons[:, None])  # of its person only good items are left
    similarity = torch.where(found, near.value(level), torch.nan)
    return Ranking(rows.cpu().numpy(), similarity.cpu().numpy(), right.cpu().numpy())
