"""CMC and mean average precision of a retrieval, by MARS's official rule and by the Python variant in wide use.

For a query of person y before camera c an item of the gallery is

    good     person y, another camera
    junk     person -1, or person y before camera c (the query itself too): skipped, it does not advance the rank
    wrong    all else, distractors (person 0) too

                        official                                    python
    gallery             all test tracklets                          without the queries and without junk
    AP, hit k of n      mean of (P_k + P before it) / 2, start 1    mean of P_k, the precision at the hit
    no good item        counts as 0 in CMC and mAP                  the query is left out

`gallery_rows` gives the gallery of a rule. MATLAB's official program would answer NaN for a query without a good item;
MARS has none.

Memory does not grow with queries x gallery. A query's few good items are compared with it first; then the gallery is
read in blocks, only to count how many wrong items come before each good one: that is all that CMC and AP need.
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
from reweigh.lab.retrieval.nearness import NEVER, Chunks, Cosine, Features, Given, Nearness, keys, slices

Rule: TypeAlias = Literal["official", "python"]
Progress: TypeAlias = Callable[[int, int], None]
Ids: TypeAlias = NDArray[np.int64]


class Scores(NamedTuple):
    """How well Q queries were answered.

    Attributes:
        cmc: (ranks,) float64: the share of queries with a good item among the first r, at index r - 1.
        mean_ap: mAP.
        average_precision: (Q,) float64; 0 for a query without a good item.
        valid: (Q,) bool, whether the query has a good item in the gallery.
        first_hit: (Q,) int64, the rank of the first good item from 1; 0 where there is none.
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
    """The scores of a ranking by cosine similarity; ties go to the item that comes first in the gallery.

    Args:
        query_features: (Q, D) floats, of any length (they are L2-normalised here).
        query_persons: (Q,) ids, 1 or more.
        query_cameras: (Q,).
        gallery_features: (G, D), or anything that is read in slices: a memory map, a reader of blocks.
        gallery_persons: (G,) ids; -1 is junk, 0 a distractor.
        gallery_cameras: (G,).
        rule: see above.
        ranks: length of the CMC curve.
        device: where similarities are computed.
        chunks: how many are compared at once.
        progress: called with (items of the gallery done, items).

    Raises:
        DataError: no query at all has a good item.

    >>> features = np.eye(4)[[0, 0, 1, 2]] + 0.1
    >>> scores = score(features[:1], [7], [1], features, [7, 7, 7, 0], [1, 2, 2, 3], rule="python")
    >>> scores.mean_ap, scores.first_hit.tolist()
    (1.0, [1])
    """
    who = People.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    near = Cosine(query_features, gallery_features, device)
    return evaluate(near, who, rule, ranks, chunks or Chunks(), progress)


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
    """The scores of a ranking by given distances, (Q, G), compared as float32; the rest as in `score`."""
    who = People.of(query_persons, query_cameras, gallery_persons, gallery_cameras)
    return evaluate(Given(distances, device), who, rule, ranks, chunks or Chunks(), progress)


def gallery_rows(persons: ArrayLike, queries: ArrayLike, rule: Rule) -> Ids:
    """The rows of the test part that are the gallery by a rule; `queries` are rows too.

    >>> gallery_rows([-1, 0, 2, 2, 4], [2], "official"), gallery_rows([-1, 0, 2, 2, 4], [2], "python")
    (array([0, 1, 2, 3, 4]), array([1, 3, 4]))
    """
    checked_rule(rule)
    ids = np.asarray(persons)
    if rule == "official":
        return np.arange(len(ids))
    return np.setdiff1d(np.flatnonzero(ids != JUNK), np.asarray(queries, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class People:
    """Who is seen, and by which camera, in Q queries and G items of the gallery."""

    query_persons: Ids
    query_cameras: Ids
    gallery_persons: Ids
    gallery_cameras: Ids

    @classmethod
    def of(cls, query_persons: Any, query_cameras: Any, gallery_persons: Any, gallery_cameras: Any) -> People:
        """The ids as int64, one for each query and item."""
        who = cls(
            _ids(query_persons, "query_persons"),
            _ids(query_cameras, "query_cameras"),
            _ids(gallery_persons, "gallery_persons"),
            _ids(gallery_cameras, "gallery_cameras"),
        )
        for side, persons, cameras in (
            ("query", who.query_persons, who.query_cameras),
            ("gallery", who.gallery_persons, who.gallery_cameras),
        ):
            if len(persons) != len(cameras):
                raise ValueError(f"{side}_persons has {len(persons)} ids, {side}_cameras {len(cameras)}")
            if not len(persons):
                raise ValueError(f"{side}_persons is empty; expected one or more")
        if (who.query_persons <= 0).any():
            row = int(np.argmax(who.query_persons <= 0))
            raise ValueError(f"query_persons: query {row} is {who.query_persons[row]}, a distractor or junk")
        return who

    def fit(self, near: Nearness) -> None:
        """Refuse features or distances of another number of queries or items."""
        for called, ids, found in (
            ("query", self.query_persons, near.queries),
            ("gallery", self.gallery_persons, near.items),
        ):
            if len(ids) != found:
                raise ValueError(f"{called}_persons has {len(ids)} ids, but there are {found} to compare")

    def good(self) -> tuple[Ids, Ids]:
        """All pairs of a query and a good item, as (queries, rows), in that order."""
        order = np.argsort(self.gallery_persons, kind="stable")
        persons = self.gallery_persons[order]
        first = np.searchsorted(persons, self.query_persons, "left")
        counts = np.searchsorted(persons, self.query_persons, "right") - first
        queries = np.repeat(np.arange(len(counts)), counts)
        rows = order[first[queries] + _within(counts)]
        kept = self.gallery_cameras[rows] != self.query_cameras[queries]
        return queries[kept], rows[kept]


def evaluate(near: Nearness, who: People, rule: Rule, ranks: int, chunks: Chunks, progress: Progress) -> Scores:
    """The scores of any nearness."""
    checked_rule(rule)
    who.fit(near)
    if ranks < 1:
        raise ValueError(f"ranks must be 1 or more, not {ranks}")
    queries, rows = who.good()
    if not len(queries):
        raise DataError("no query has a match: nobody in the gallery is a query's person before another camera")
    counts = np.bincount(queries, minlength=near.queries)
    key = _good_keys(near, queries, rows, chunks)
    key = key[np.lexsort((key, queries))]
    before = _wrong_before(near, who, key, counts, chunks, progress)

    hit = _within(counts)
    rank = before + hit  # items that are not junk before this one
    precision = (hit + 1) / (rank + 1)
    if rule == "official":
        precision = (precision + np.where(rank > 0, hit / np.maximum(rank, 1), 1.0)) / 2
    average = np.bincount(queries, weights=precision, minlength=near.queries) / np.maximum(counts, 1)
    valid = counts > 0
    first_hit = np.zeros(near.queries, dtype=np.int64)
    first_hit[valid] = rank[hit == 0] + 1
    asked = valid if rule == "python" else np.ones_like(valid)
    reached = np.bincount(np.minimum(first_hit[valid], ranks + 1), minlength=ranks + 2)[1 : ranks + 1]
    cmc = np.cumsum(reached) / asked.sum()
    return Scores(cmc, float(average[asked].mean()), average, valid, first_hit, counts, rule)


def _good_keys(near: Nearness, queries: Ids, rows: Ids, chunks: Chunks) -> Ids:
    """The keys of the good pairs."""
    found = np.empty(len(rows), dtype=np.int64)
    by_row = np.argsort(rows, kind="stable")
    ordered = rows[by_row]
    for items in slices(near.items, chunks.gallery):
        low, high = np.searchsorted(ordered, (items.start, items.stop))
        if low == high:
            continue
        mine = by_row[low:high]
        query, row = (torch.from_numpy(ids[mine]).to(near.device) for ids in (queries, rows))
        found[mine] = keys(near.block(items).pairs(query, row - items.start), row).cpu().numpy()
    return found


def _wrong_before(near: Nearness, who: People, key: Ids, counts: Ids, chunks: Chunks, progress: Progress) -> Ids:
    """How many wrong items come before each good one; `key` is sorted by query, then by nearness."""
    groups = list(slices(near.queries, chunks.queries))
    end = np.cumsum(counts)
    sorted_keys, tallies = [], []
    for group in groups:
        here = counts[group]
        table = np.full((len(here), max(1, here.max())), NEVER)
        table[np.arange(table.shape[1]) < here[:, None]] = key[end[group.start] - here[0] : end[group.stop - 1]]
        sorted_keys.append(torch.from_numpy(table).to(near.device))
        tallies.append(torch.zeros(len(here), table.shape[1] + 1, dtype=torch.int64, device=near.device))
    asked = torch.from_numpy(who.query_persons).to(near.device)
    shown = torch.from_numpy(who.gallery_persons).to(near.device)
    for items in slices(near.items, chunks.gallery):
        block, row = near.block(items), torch.arange(items.start, items.stop, device=near.device)
        for group, good, tally in zip(groups, sorted_keys, tallies, strict=True):
            wrong = (shown[items] != asked[group, None]) & (shown[items] != JUNK)
            after = torch.searchsorted(good, keys(block.rows(group), row))  # of which good items it comes after
            after.masked_fill_(~wrong, good.shape[1])  # as if it came after all: it precedes none
            after += torch.arange(len(good), device=near.device)[:, None] * tally.shape[1]
            tally += torch.bincount(after.view(-1), minlength=tally.numel()).view_as(tally)
        progress(items.stop, near.items)
    before = [tally.cumsum(1)[:, :-1].cpu().numpy() for tally in tallies]
    return np.concatenate(
        [rows[np.arange(rows.shape[1]) < counts[group, None]] for group, rows in zip(groups, before, strict=True)]
    )


def checked_rule(rule: str) -> None:
    """Refuse a rule that is none."""
    if rule not in get_args(Rule):
        raise ValueError(f"rule must be 'official' or 'python', not {rule!r}")


def _within(counts: Ids) -> Ids:
    """0, 1, ... within each group of `counts`."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _ids(values: Any, called: str) -> Ids:
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or not array.size):
        raise ValueError(f"{called} must be a row of integers, not {array.shape} of {array.dtype}")
    return array.astype(np.int64)
