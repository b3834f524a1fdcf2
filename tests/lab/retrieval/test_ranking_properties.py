"""Properties of scores and rankings on small galleries with many ties, compared with plain loops."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reweigh.errors import DataError
from reweigh.lab.retrieval import Chunks, rank, rank_distances, score, score_distances


class Case(NamedTuple):
    queries: Any
    query_persons: Any
    query_cameras: Any
    gallery: Any
    gallery_persons: Any
    gallery_cameras: Any


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small integers as features, so that many similarities tie; person 1 always has a match."""
    q, g = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    numbers = st.integers(-2, 2).map(float)
    persons = draw(arrays(np.int64, g, elements=st.integers(-1, 3)))
    query_persons = draw(arrays(np.int64, q, elements=st.integers(1, 4)))
    cameras = draw(arrays(np.int64, g, elements=st.integers(1, 3)))
    query_cameras = draw(arrays(np.int64, q, elements=st.integers(1, 3)))
    query_persons[0], persons[0], cameras[0], query_cameras[0] = 1, 1, 2, 1
    queries, gallery = (draw(arrays(np.float64, (n, 3), elements=numbers)) for n in (q, g))
    return Case(queries, query_persons, query_cameras, gallery, persons, cameras)


CHUNKS = st.builds(Chunks, st.integers(1, 5), st.integers(1, 13))


def ordered(case: Case, query: int) -> list[tuple[int, bool]]:
    """Rank the items without junk by the definition; return their rows and whether they are good."""

    def unit(vector: Any) -> Any:
        return vector / max(np.linalg.norm(vector), 1e-300)

    items = []
    for row, (person, camera) in enumerate(zip(case.gallery_persons, case.gallery_cameras, strict=True)):
        same = person == case.query_persons[query]
        if person == -1 or (same and camera == case.query_cameras[query]):
            continue
        cosine = unit(case.queries[query]) @ unit(case.gallery[row])
        items.append((-round(float(cosine) * 2**30), row, bool(same)))
    return [(row, good) for _, row, good in sorted(items)]


def average_precision(goods: list[bool], rule: str) -> float:
    """Compute AP like the MATLAB program, or as the mean of precisions."""
    hits, average, old_recall, old_precision = 0, 0.0, 0.0, 1.0
    for n, good in enumerate(goods, start=1):
        hits += good
        recall, precision = hits / sum(goods), hits / n
        if rule == "official":
            average += (recall - old_recall) * (old_precision + precision) / 2
        elif good:
            average += precision / sum(goods)
        old_recall, old_precision = recall, precision
    return average


@pytest.mark.parametrize("rule", ["official", "python"])
@settings(max_examples=40, deadline=None)
@given(case=cases(), chunks=CHUNKS)
def test_scores_agree_with_the_definition_in_any_chunks(rule: Any, case: Case, chunks: Chunks) -> None:
    scores = score(*case, rule, ranks=15, chunks=chunks)
    goods = [[good for _, good in ordered(case, query)] for query in range(len(case.queries))]
    expected = [average_precision(good, rule) if any(good) else 0.0 for good in goods]
    assert scores.average_precision == pytest.approx(expected, abs=1e-12)
    assert scores.valid.tolist() == [any(good) for good in goods]
    assert scores.first_hit.tolist() == [good.index(True) + 1 if any(good) else 0 for good in goods]
    counted = [any(good) or rule == "official" for good in goods]
    assert scores.mean_ap == pytest.approx(sum(expected) / sum(counted), abs=1e-12)
    reached = [sum(any(good[:r]) for good in goods) / sum(counted) for r in range(1, 16)]
    assert scores.cmc == pytest.approx(reached)


@settings(max_examples=40, deadline=None)
@given(case=cases(), chunks=CHUNKS, top=st.integers(1, 14))
def test_a_ranking_agrees_with_the_definition(case: Case, chunks: Chunks, top: int) -> None:
    ranking = rank(*case, top, chunks=chunks)
    for query in range(len(case.queries)):
        expected = ordered(case, query)[:top]
        n = len(expected)
        assert ranking.rows[query].tolist() == [row for row, _ in expected] + [-1] * (top - n)
        assert ranking.right[query].tolist() == [good for _, good in expected] + [False] * (top - n)
        assert np.isnan(ranking.similarity[query, n:]).all()
        assert (np.diff(ranking.similarity[query, :n]) <= 0).all()


@settings(max_examples=40, deadline=None)
@given(case=cases(), seed=st.integers(0, 99))
def test_the_order_of_the_gallery_matters_only_in_ties(case: Case, seed: int) -> None:
    random = np.random.default_rng(seed)
    case = case._replace(
        queries=random.standard_normal(case.queries.shape), gallery=random.standard_normal(case.gallery.shape)
    )
    mixed = random.permutation(len(case.gallery))
    other = case._replace(
        gallery=case.gallery[mixed],
        gallery_persons=case.gallery_persons[mixed],
        gallery_cameras=case.gallery_cameras[mixed],
    )
    one, two = score(*case), score(*other)
    assert one.average_precision.tolist() == two.average_precision.tolist()
    assert one.cmc.tolist() == two.cmc.tolist()
    scaled = score(*case._replace(gallery=case.gallery * random.uniform(0.1, 9, (len(mixed), 1))))
    assert scaled.first_hit.tolist() == one.first_hit.tolist()


@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_curves_rise_and_numbers_lie_between_0_and_1(case: Case) -> None:
    for rule in ("official", "python"):
        scores = score(*case, rule)
        assert (np.diff(scores.cmc) >= 0).all()
        assert 0 <= scores.cmc[0] <= scores.cmc[-1] <= 1
        assert 0 < scores.mean_ap <= 1 + 1e-12


@settings(max_examples=40, deadline=None)
@given(case=cases(), rule=st.sampled_from(["official", "python"]))
def test_right_answers_first_are_perfect(case: Case, rule: Any) -> None:
    same = case.query_persons[:, None] == case.gallery_persons
    scores = score_distances(np.where(same, 0.0, 1.0), *case[1:3], *case[4:], rule)
    assert scores.average_precision[scores.valid] == pytest.approx(1.0)
    assert (scores.first_hit[scores.valid] == 1).all()


@settings(max_examples=40, deadline=None)
@given(case=cases(), chunks=CHUNKS)
def test_distances_and_features_give_the_same(case: Case, chunks: Chunks) -> None:
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300) for x in (case.queries, case.gallery)]
    distances = -np.round(np.einsum("qd,gd->qg", *unit), 6)
    one, two = score(*case, chunks=chunks), score_distances(distances, *case[1:3], *case[4:], chunks=chunks)
    assert one.average_precision.tolist() == two.average_precision.tolist()
    assert rank(*case).rows.tolist() == rank_distances(distances, *case[1:3], *case[4:]).rows.tolist()


class Reader:
    """Features that can only be read in slices; records the largest slice."""

    def __init__(self, features: Any) -> None:
        self.features, self.largest = features, 0

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: slice) -> Any:
        self.largest = max(self.largest, rows.stop - rows.start)
        return self.features[rows]


def test_a_gallery_is_read_in_blocks(tmp_path: Any) -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((500, 6)).astype(np.float32)
    persons, cameras = random.integers(-1, 9, 500), random.integers(1, 3, 500)
    rows = np.flatnonzero(persons > 0)[:20]
    query = features[rows], persons[rows], cameras[rows]
    expected = score(*query, features, persons, cameras)
    reader = Reader(features)
    seen: list[tuple[int, int]] = []
    parts = score(
        *query, reader, persons, cameras, chunks=Chunks(7, 64), progress=lambda done, total: seen.append((done, total))
    )
    assert reader.largest == 64
    assert seen[0] == (64, 500)
    assert seen[-1] == (500, 500)
    np.save(tmp_path / "features.npy", features)
    mapped = score(*query, np.load(tmp_path / "features.npy", mmap_mode="r"), persons, cameras)
    tensors = score(
        torch.from_numpy(query[0]), *query[1:], torch.from_numpy(features), torch.from_numpy(persons), cameras
    )
    for other in (parts, mapped, tensors):
        assert other.average_precision.tolist() == expected.average_precision.tolist()


def test_a_ranking_needs_a_positive_top_but_no_match() -> None:
    one = np.ones((1, 2))
    with pytest.raises(ValueError, match="top must be 1 or more, not 0"):
        rank(one, [7], [1], one, [7], [2], top=0)
    assert rank(one, [7], [1], one, [5], [2], top=1).right.tolist() == [[False]]
    with pytest.raises(DataError):
        score(one, [7], [1], one, [5], [2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_the_same_scores() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((3000, 64)).astype(np.float32)
    persons, cameras = random.integers(-1, 90, 3000), random.integers(1, 7, 3000)
    rows = np.flatnonzero(persons > 0)[:300]
    case = features[rows], persons[rows], cameras[rows], features, persons, cameras
    assert score(*case, device="cuda").first_hit.tolist() == score(*case).first_hit.tolist()
    assert rank(*case, device="cuda").rows.tolist() == rank(*case).rows.tolist()
