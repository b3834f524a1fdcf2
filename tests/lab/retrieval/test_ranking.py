"""Scores: golden numbers, a small MARS by hand, torchmetrics, the real index, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reweigh.errors import DataError
from reweigh.lab.data import mars
from reweigh.lab.retrieval import Chunks, gallery_rows, score, score_distances

GOOD, JUNK, WRONG = (7, 2), (-1, 3), (5, 2)


def ranked(order: list[int], junk: tuple[int, int] = JUNK, rule: Any = "official") -> Any:
    """Score one query, person 7 from camera 1, whose ranking has this order: 1-3 are good, 9 is junk."""
    kinds = {1: GOOD, 2: GOOD, 3: GOOD, 9: junk}
    persons, cameras = np.array([kinds.get(item, WRONG) for item in order]).T
    return score_distances(np.arange(1.0, len(order) + 1)[None], [7], [1], persons, cameras, rule)


@pytest.mark.parametrize("junk", [(-1, 3), (7, 1)], ids=["nobody", "same camera"])
@pytest.mark.parametrize(
    ("order", "official", "step", "first"),
    [([9, 3, 8, 1, 5, 2], 0.711111, 0.755556, 1), ([9, 8, 1, 5, 2, 3], 0.405556, 0.533333, 2)],
)
def test_golden_rankings(order: list[int], official: float, step: float, first: int, junk: tuple[int, int]) -> None:
    trapezoid, steps = ranked(order, junk), ranked(order, junk, "python")
    assert trapezoid.mean_ap == pytest.approx(official, abs=5e-7)
    assert steps.mean_ap == pytest.approx(step, abs=5e-7)
    assert trapezoid.first_hit.tolist() == steps.first_hit.tolist() == [first]
    assert trapezoid.cmc.tolist() == [0.0] * (first - 1) + [1.0] * (51 - first)


@pytest.mark.parametrize("rule", ["official", "python"])
def test_perfect_and_hopeless_rankings(rule: Any) -> None:
    perfect = ranked([1, 2, 9, 3, 5, 8], rule=rule)
    assert perfect.mean_ap == perfect.cmc[0] == 1.0
    n = 200
    persons, cameras = [0] * n + [7], [2] * (n + 1)
    hopeless = score_distances(np.arange(n + 1.0)[None], [7], [1], persons, cameras, rule, ranks=n + 1)
    assert hopeless.mean_ap == pytest.approx(1 / (n + 1) / (2 if rule == "official" else 1))
    assert hopeless.cmc[0] == hopeless.cmc[n - 1] == 0.0
    assert hopeless.cmc[n] == 1.0


def test_the_small_mars_by_hand(small_mars: Path) -> None:
    index = mars.read_index(small_mars)
    test, queries = index.test, index.queries
    angles = np.radians([0, 12, 0, 10, 30, 59, 33, 90, 25])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.arange(1, 10)[:, None]
    query = features[queries], test.persons[queries], test.cameras[queries]

    every = gallery_rows(test.persons, queries, "official")
    official = score(*query, features[every], test.persons[every], test.cameras[every], "official", ranks=5)
    assert official.average_precision == pytest.approx([0.791667, 0.416667, 0.1, 0.25], abs=5e-7)
    assert official.mean_ap == pytest.approx(1.558333 / 4, abs=5e-7)
    assert official.first_hit.tolist() == [1, 2, 5, 2]
    assert official.cmc.tolist() == [0.25, 0.75, 0.75, 0.75, 1.0]
    assert official.matches.tolist() == [2, 2, 1, 1]

    rows = gallery_rows(test.persons, queries, "python")
    assert rows.tolist() == [1, 6, 7, 8]
    python = score(*query, features[rows], test.persons[rows], test.cameras[rows], "python", ranks=3)
    assert python.valid.tolist() == [True, True, False, False]
    assert python.average_precision.tolist() == [0.5, 0.5, 0.0, 0.0]
    assert (python.mean_ap, python.cmc.tolist()) == (0.5, [0.0, 1.0, 1.0])


def test_a_query_without_a_match_counts_as_zero_or_is_excluded() -> None:
    features = np.eye(3)
    arguments = (features[:2], [7, 8], [1, 1], features, [7, 7, 5], [1, 2, 2])
    official, python = score(*arguments, "official"), score(*arguments, "python")
    assert official.valid.tolist() == python.valid.tolist() == [True, False]
    assert official.first_hit.tolist() == python.first_hit.tolist() == [1, 0]
    assert (official.mean_ap, official.cmc[49]) == (0.5, 0.5)
    assert (python.mean_ap, python.cmc[49]) == (1.0, 1.0)


@pytest.mark.parametrize("rule", ["official", "python"])
def test_ties_are_ordered_by_gallery_row(rule: Any) -> None:
    features = np.tile(np.random.default_rng(0).standard_normal(64), (6, 1))
    for chunks in (Chunks(), Chunks(1, 1), Chunks(1, 4)):
        early = score(features[:1], [7], [1], features, [5, 7, 5, 5, 5, 5], [2] * 6, rule, chunks=chunks)
        late = score(features[:1], [7], [1], features, [5, 5, 5, 5, 7, 5], [2] * 6, rule, chunks=chunks)
        assert (early.first_hit[0], late.first_hit[0]) == (2, 5)


def test_the_python_rule_agrees_with_torchmetrics() -> None:
    retrieval = pytest.importorskip("torchmetrics.retrieval", reason="torchmetrics is not installed")
    random = np.random.default_rng(3)
    gallery, queries = random.standard_normal((400, 8)), random.standard_normal((40, 8))
    persons, cameras = random.integers(-1, 12, 400), random.integers(1, 4, 400)
    query_persons, query_cameras = random.integers(1, 14, 40), random.integers(1, 4, 40)
    scores = score(queries, query_persons, query_cameras, gallery, persons, cameras, "python", ranks=20)
    assert not scores.valid.all()

    unit = [torch.nn.functional.normalize(torch.from_numpy(x)) for x in (queries, gallery)]
    same, camera = query_persons[:, None] == persons, query_cameras[:, None] == cameras
    kept = torch.from_numpy(~(same & camera) & (persons != -1))
    near, good = (unit[0] @ unit[1].T)[kept] + 2, torch.from_numpy(same)[kept]  # torchmetrics requires positive scores
    which = torch.arange(40)[:, None].expand(kept.shape)[kept]
    theirs = retrieval.RetrievalMAP(empty_target_action="skip")(near, good, indexes=which)
    assert scores.mean_ap == pytest.approx(float(theirs), abs=1e-6)
    for rank in (1, 5, 20):
        hits = retrieval.RetrievalHitRate(empty_target_action="skip", top_k=rank)(near, good, indexes=which)
        assert scores.cmc[rank - 1] == pytest.approx(float(hits), abs=1e-6)


def test_the_real_index_has_the_published_numbers_of_valid_queries(real_mars: Path) -> None:
    index = mars.read_index(real_mars)
    test, queries = index.test, index.queries
    features = np.random.default_rng(0).standard_normal((len(test), 4))
    query = features[queries], test.persons[queries], test.cameras[queries]
    for rule, size, valid, mean in (("official", 12_180, 1980, 11.0), ("python", 9330, 1840, 8.5)):
        rows = gallery_rows(test.persons, queries, rule)
        scores = score(*query, features[rows], test.persons[rows], test.cameras[rows], rule)
        assert (len(rows), scores.valid.sum(), round(scores.matches.mean(), 1)) == (size, valid, mean)
        assert 0 < scores.mean_ap < 0.02


ONE = np.ones((1, 2))
TWO = np.ones((2, 2))
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "rule": ((ONE, [7], [1], ONE, [7], [2]), {"rule": "matlab"}, "rule must be 'official' or 'python', not 'matlab'"),
    "ranks": ((ONE, [7], [1], ONE, [7], [2]), {"ranks": 0}, "ranks must be 1 or more"),
    "junk query": ((TWO, [7, -1], [1, 1], ONE, [7], [2]), {}, "query 1 is -1; expected a person, 1 or more"),
    "distractor query": ((ONE, [0], [1], ONE, [7], [2]), {}, "query 0 is 0"),
    "too few cameras": ((TWO, [7, 7], [1], ONE, [7], [2]), {}, "query_persons has 2 ids, but query_cameras has 1"),
    "too few persons": ((TWO, [7], [1], ONE, [7], [2]), {}, "query_persons has 1 ids, but there are 2"),
    "too many items": ((ONE, [7], [1], TWO, [7], [2]), {}, "gallery_persons has 1 ids, but there are 2"),
    "no gallery": ((ONE, [7], [1], ONE[:0], [], []), {}, "gallery_persons is empty"),
    "persons as names": ((ONE, ["a"], [1], ONE, [7], [2]), {}, "query_persons must be"),
    "other width": ((ONE, [7], [1], np.ones((1, 3)), [7], [2]), {}, r"is \(1, 3\); expected \(1, 2\)"),
    "integers": ((ONE.astype(int), [7], [1], ONE, [7], [2]), {}, r"query_features must be \(N, D\) floats"),
    "NaN": ((ONE, [7], [1], TWO * [[1], [np.nan]], [7, 7], [2, 2]), {}, "gallery_features: row 1 is not finite"),
    "chunks": ((ONE, [7], [1], ONE, [7], [2]), {"chunks": (0, 4)}, "chunks must be 1 or more"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_invalid_arguments_are_refused_by_name(what: str) -> None:
    arguments, options, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        score(*arguments, **{k: Chunks(*v) if k == "chunks" else v for k, v in options.items()})


def test_no_match_at_all_is_a_data_error() -> None:
    with pytest.raises(DataError, match="no query has a match"):
        score(ONE, [7], [1], ONE, [7], [1])


def test_invalid_distances_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN at query 0, gallery row 1"):
        score_distances(np.array([[0.0, np.nan]]), [7], [1], [7, 7], [2, 2])
    with pytest.raises(ValueError, match=r"distances must be \(Q, G\)"):
        score_distances(np.zeros(3), [7], [1], [7], [2])
