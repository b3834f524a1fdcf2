"""Rank a gallery for each query, and score the ranking by CMC and mAP.

There are two rules: MARS's official one, and the one of most Python programs.

For a query of person y from camera c, an item of the gallery is

    good     person y from another camera
    junk     person -1, or person y from camera c (including the query itself); skipped, does not advance the rank
    wrong    anything else, including distractors (person 0)

                        official                                    python
    gallery             all test tracklets                          without the queries and junk
    AP, hit k of n      mean of (P_k + P before it) / 2, start 1    mean of P_k, the precision at the hit
    no good item        counts as 0 in CMC and mAP                  the query is excluded

`gallery_rows` returns the gallery of a rule. MARS's official MATLAB program would return NaN for a query without a good
item; MARS has none.

Memory does not grow with queries x gallery, since CMC and AP only need the number of wrong items before each good one.
The few good items of each query are compared first. Then the gallery is read in blocks to count the wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from reweigh.errors import DataError
from reweigh.lab.data.mars import JUNK
from reweigh.lab.retrieval.similarity import (
    NEVER,
    Chunks,
    CosineSimilarity,
    Features,
    GivenDistances,
    Similarity,
    keys,
    slices,
    unkeyed,
)

Rule: TypeAlias = Literal["official", "python"]
Progress: TypeAlias = Callable[[int, int], None]
Ids: TypeAlias = NDArray[np.int64]


class Ranking(NamedTuple):
    """The first `top` items for each of Q queries, without junk.

    Attributes:
        rows: (Q, top) int64, rows of the gallery, most similar first; -1 after the last item.
        similarity: (Q, top) float32, cosine or negated distance; NaN after the last item.
        right: (Q, top) bool, whether the item is a good one.
    """

    rows: Ids
    similarity: NDArray[np.float32]
    right: NDArray[np.bool_]


class Scores(NamedTuple):
    """The scores of a ranking for Q queries.

    Attributes:
        cmc: (ranks,) float64, the share of queries with a good item among the first r, at index r - 1.
        mean_ap: mAP.
        average_precision: (Q,) float64; 0 for a query without a good item.
        valid: (Q,) bool, whether the query has a good item in the gallery.
        first_hit: (Q,) int64, the rank of the first good item, from 1; 0 if there is none.
        matches: (Q,) int64, the number of good items.
        rule: `"official"` or `"python"`.
    """

    cmc: NDArray[np.float64]
    mean_ap: float
    average_precision: NDArray[np.float64]
    valid: NDArray[np.bool_]
    first_hit: Ids
    matches: Ids
    rule: Rule


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
    """Rank the `top` most similar items by cosine, in the order that `score` scores; arguments as there.

    >>> features = np.eye(3)[[0, 0, 1]] + 0.1
    >>> rank(features[:1], [7], [1], features, [7, 7, 0], [1, 2, 3], top=3).rows
    array([[ 1,  2, -1]])
    """
    ids = Identities.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    return _rank(CosineSimilarity(query_features, gallery_features, device), ids, top, chunks or Chunks())


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
    """Rank the `top` items with the smallest of the given distances (Q, G); other arguments as in `score`."""
    ids = Identities.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    return _rank(GivenDistances(distances, device), ids, top, chunks or Chunks())


def score(
    query_features: Features,
    query_persons: ArrayLike,
    query_cameras: ArrayLike,
    gallery_features: Features,
    gallery_persons: ArrayLike,
    gallery_cameras: ArrayLike,
    rule: Rule = "official",
    *,
    ranks: int = 50,
    device: torch.device | str = "cpu",
    chunks: Chunks | None = None,
    progress: Progress = lambda done, total: None,
) -> Scores:
    """Score the ranking by cosine similarity; ties are ordered by gallery row.

    Args:
        query_features: (Q, D) floats, not necessarily normalised.
        query_persons: (Q,) ids, 1 or more.
        query_cameras: (Q,).
        gallery_features: (G, D), or anything that is read in slices, such as a memory map.
        gallery_persons: (G,) ids; -1 is junk, 0 a distractor.
        gallery_cameras: (G,).
        rule: see above.
        ranks: length of the CMC curve.
        device: where to compute similarities.
        chunks: how many queries and items to compare at once.
        progress: called with (items of the gallery done, items).

    Raises:
        DataError: no query has a good item.

    >>> features = np.eye(4)[[0, 0, 1, 2]] + 0.1
    >>> scores = score(features[:1], [7], [1], features, [7, 7, 7, 0], [1, 2, 2, 3], rule="python")
    >>> scores.mean_ap, scores.first_hit.tolist()
    (1.0, [1])
    """
    ids = Identities.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    similarity = CosineSimilarity(query_features, gallery_features, device)
    return _score(similarity, ids, rule, ranks, chunks or Chunks(), progress)


def score_distances(
    distances: NDArray[Any] | Tensor,
    query_persons: ArrayLike,
    query_cameras: ArrayLike,
    gallery_persons: ArrayLike,
    gallery_cameras: ArrayLike,
    rule: Rule = "official",
    *,
    ranks: int = 50,
    device: torch.device | str = "cpu",
    chunks: Chunks | None = None,
    progress: Progress = lambda done, total: None,
) -> Scores:
    """Score the ranking by given distances (Q, G), compared as float32; other arguments as in `score`."""
    ids = Identities.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    return _score(GivenDistances(distances, device), ids, rule, ranks, chunks or Chunks(), progress)


def gallery_rows(persons: ArrayLike, queries: ArrayLike, rule: Rule) -> Ids:
    """Return the rows of the test part that form the gallery under a rule; `queries` are rows, too.

    >>> gallery_rows([-1, 0, 2, 2, 4], [2], "official"), gallery_rows([-1, 0, 2, 2, 4], [2], "python")
    (array([0, 1, 2, 3, 4]), array([1, 3, 4]))
    """
    _check_rule(rule)
    ids = np.asarray(persons)
    if rule == "official":
        return np.arange(len(ids))
    return np.setdiff1d(np.flatnonzero(ids != JUNK), np.asarray(queries, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Identities:
    """Person and camera ids of Q queries and G items of the gallery."""

    query_persons: Ids
    query_cameras: Ids
    gallery_persons: Ids
    gallery_cameras: Ids

    @classmethod
    def of(cls, query_persons: Any, query_cameras: Any, gallery_persons: Any, gallery_cameras: Any) -> Identities:
        """Convert the ids to int64, and check that there is one for each query and item."""
        ids = cls(
            _ids(query_persons, "query_persons"),
            _ids(query_cameras, "query_cameras"),
            _ids(gallery_persons, "gallery_persons"),
            _ids(gallery_cameras, "gallery_cameras"),
        )
        for side, persons, cameras in (
            ("query", ids.query_persons, ids.query_cameras),
            ("gallery", ids.gallery_persons, ids.gallery_cameras),
        ):
            if len(persons) != len(cameras):
                raise ValueError(f"{side}_persons has {len(persons)} ids, but {side}_cameras has {len(cameras)}")
            if not len(persons):
                raise ValueError(f"{side}_persons is empty; expected one or more")
        if (ids.query_persons <= 0).any():
            row = int(np.argmax(ids.query_persons <= 0))
            raise ValueError(f"query_persons: query {row} is {ids.query_persons[row]}; expected a person, 1 or more")
        return ids

    def check_sizes(self, similarity: Similarity) -> None:
        """Raise ValueError if the features or distances have another number of queries or items."""
        for side, ids, count in (
            ("query", self.query_persons, similarity.queries),
            ("gallery", self.gallery_persons, similarity.items),
        ):
            if len(ids) != count:
                raise ValueError(f"{side}_persons has {len(ids)} ids, but there are {count} features or distances")

    def good_pairs(self) -> tuple[Ids, Ids]:
        """Return all pairs of a query and a good item as (queries, rows), sorted."""
        order = np.argsort(self.gallery_persons, kind="stable")
        persons = self.gallery_persons[order]
        first = np.searchsorted(persons, self.query_persons, "left")
        counts = np.searchsorted(persons, self.query_persons, "right") - first
        queries = np.repeat(np.arange(len(counts)), counts)
        rows = order[first[queries] + _within(counts)]
        kept = self.gallery_cameras[rows] != self.query_cameras[queries]
        return queries[kept], rows[kept]


def _score(
    similarity: Similarity, ids: Identities, rule: Rule, ranks: int, chunks: Chunks, progress: Progress
) -> Scores:
    _check_rule(rule)
    ids.check_sizes(similarity)
    if ranks < 1:
        raise ValueError(f"ranks must be 1 or more, not {ranks}")
    queries, rows = ids.good_pairs()
    if not len(queries):
        raise DataError("no query has a match: the gallery has no person of a query from another camera")
    counts = np.bincount(queries, minlength=similarity.queries)
    key = _good_keys(similarity, queries, rows, chunks)
    key = key[np.lexsort((key, queries))]
    before = _wrong_before(similarity, ids, key, counts, chunks, progress)

    hit = _within(counts)
    rank = before + hit  # number of items before this one, without junk
    precision = (hit + 1) / (rank + 1)
    if rule == "official":
        precision = (precision + np.where(rank > 0, hit / np.maximum(rank, 1), 1.0)) / 2
    average = np.bincount(queries, weights=precision, minlength=similarity.queries) / np.maximum(counts, 1)
    valid = counts > 0
    first_hit = np.zeros(similarity.queries, dtype=np.int64)
    first_hit[valid] = rank[hit == 0] + 1
    counted = valid if rule == "python" else np.ones_like(valid)
    reached = np.bincount(np.minimum(first_hit[valid], ranks + 1), minlength=ranks + 2)[1 : ranks + 1]
    cmc = np.cumsum(reached) / counted.sum()
    return Scores(cmc, float(average[counted].mean()), average, valid, first_hit, counts, rule)


def _rank(similarity: Similarity, ids: Identities, top: int, chunks: Chunks) -> Ranking:
    ids.check_sizes(similarity)
    if top < 1:
        raise ValueError(f"top must be 1 or more, not {top}")
    query_persons, query_cameras, persons, cameras = (
        torch.from_numpy(array).to(similarity.device)
        for array in (ids.query_persons, ids.query_cameras, ids.gallery_persons, ids.gallery_cameras)
    )
    best = torch.full((similarity.queries, top), NEVER, device=similarity.device)
    for items in slices(similarity.items, chunks.gallery):
        block, row = similarity.block(items), torch.arange(items.start, items.stop, device=similarity.device)
        for group in slices(similarity.queries, chunks.queries):
            same_camera = cameras[items] == query_cameras[group, None]
            junk = (persons[items] == JUNK) | ((persons[items] == query_persons[group, None]) & same_camera)
            key = keys(block.rows(group), row).masked_fill_(junk, NEVER)
            best[group] = torch.cat((best[group], key), 1).topk(top, largest=False).values
    level, rows = unkeyed(best)
    is_item = best != NEVER
    rows = torch.where(is_item, rows, -1)
    right = is_item & (persons[rows] == query_persons[:, None])  # junk is excluded, so these are good
    values = torch.where(is_item, similarity.value(level), torch.nan)
    return Ranking(rows.cpu().numpy(), values.cpu().numpy(), right.cpu().numpy())


def _good_keys(similarity: Similarity, queries: Ids, rows: Ids, chunks: Chunks) -> Ids:
    """Return the keys of the good pairs."""
    result = np.empty(len(rows), dtype=np.int64)
    by_row = np.argsort(rows, kind="stable")
    ordered = rows[by_row]
    for items in slices(similarity.items, chunks.gallery):
        low, high = np.searchsorted(ordered, (items.start, items.stop))
        if low == high:
            continue
        inside = by_row[low:high]
        query, row = (torch.from_numpy(array[inside]).to(similarity.device) for array in (queries, rows))
        result[inside] = keys(similarity.block(items).pairs(query, row - items.start), row).cpu().numpy()
    return result


def _wrong_before(
    similarity: Similarity, ids: Identities, key: Ids, counts: Ids, chunks: Chunks, progress: Progress
) -> Ids:
    """Count the wrong items before each good one; `key` is sorted by query, then by key."""
    groups = list(slices(similarity.queries, chunks.queries))
    end = np.cumsum(counts)
    sorted_keys, tallies = [], []
    for group in groups:
        here = counts[group]
        table = np.full((len(here), max(1, here.max())), NEVER)
        table[np.arange(table.shape[1]) < here[:, None]] = key[end[group.start] - here[0] : end[group.stop - 1]]
        sorted_keys.append(torch.from_numpy(table).to(similarity.device))
        tallies.append(torch.zeros(len(here), table.shape[1] + 1, dtype=torch.int64, device=similarity.device))
    query_persons = torch.from_numpy(ids.query_persons).to(similarity.device)
    persons = torch.from_numpy(ids.gallery_persons).to(similarity.device)
    for items in slices(similarity.items, chunks.gallery):
        block, row = similarity.block(items), torch.arange(items.start, items.stop, device=similarity.device)
        for group, good, tally in zip(groups, sorted_keys, tallies, strict=True):
            wrong = (persons[items] != query_persons[group, None]) & (persons[items] != JUNK)
            after = torch.searchsorted(good, keys(block.rows(group), row))  # number of good items before this one
            after.masked_fill_(~wrong, good.shape[1])  # not counted: as if after all good items
            after += torch.arange(len(good), device=similarity.device)[:, None] * tally.shape[1]
            tally += torch.bincount(after.view(-1), minlength=tally.numel()).view_as(tally)
        progress(items.stop, similarity.items)
    before = [tally.cumsum(1)[:, :-1].cpu().numpy() for tally in tallies]
    return np.concatenate(
        [rows[np.arange(rows.shape[1]) < counts[group, None]] for group, rows in zip(groups, before, strict=True)]
    )


def _check_rule(rule: str) -> None:
    if rule not in get_args(Rule):
        raise ValueError(f"rule must be 'official' or 'python', not {rule!r}")


def _within(counts: Ids) -> Ids:
    """Return 0, 1, ... within each group of `counts`."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _ids(values: Any, name: str) -> Ids:
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or not array.size):
        raise ValueError(f"{name} must be (N,) integers, not {array.shape} of {array.dtype}")
    return array.astype(np.int64)
