"""MARS as it was released: every count of its index, and a small real copy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from reweigh.lab.data import mars


@pytest.fixture
def real(real_data: Path) -> Path:
    if not (real_data / "mini_mars").is_dir():
        pytest.skip("no mini_mars below REWEIGH_DATA")
    return real_data / "mini_mars"


def test_the_real_full_index(real: Path) -> None:
    """Every count of the specification's table."""
    index = mars.read_index(real)
    train, test = index.train, index.test
    assert (len(train), len(test)) == (8298, 12_180)
    assert (train.lengths.sum(), test.lengths.sum()) == (509_914, 681_089)
    assert (test.junk.sum(), test.distractor.sum(), (test.persons > 0).sum()) == (870, 3248, 8062)
    assert (test.lengths[test.junk].sum(), test.lengths[test.distractor].sum()) == (23_380, 147_743)

    learnt, tested = np.unique(train.persons), np.unique(test.persons)
    assert (len(learnt), len(tested)) == (625, 636)
    assert (learnt % 2 == 1).all()
    assert (learnt.min(), learnt.max()) == (1, 1499)
    assert (tested[tested > 0] % 2 == 0).all()
    assert (tested > 0).sum() == 634
    assert set(np.unique(train.cameras)) == set(range(1, 7))

    assert (train.lengths.min(), train.lengths.max(), np.median(train.lengths)) == (5, 900, 36)
    assert (test.lengths.min(), test.lengths.max()) == (2, 920)
    assert (round(train.lengths.mean(), 1), round(test.lengths.mean(), 1)) == (61.5, 55.9)
    per_person = np.bincount(train.persons)[learnt], np.bincount(test.persons[test.persons > 0])[2::2]
    assert (per_person[0].min(), per_person[0].max()) == (1, 271)
    assert (per_person[1][per_person[1] > 0].min(), per_person[1].max()) == (1, 209)


def test_the_real_queries(real: Path) -> None:
    index = mars.read_index(real)
    test, queries = index.test, index.queries
    seen = {(p, c) for p, c in zip(test.persons.tolist(), test.cameras.tolist(), strict=True) if p > 0}
    cameras = Counter(person for person, _ in seen)
    assert sum(count > 1 for count in cameras.values()) == 626
    asked = list(zip(test.persons[queries].tolist(), test.cameras[queries].tolist(), strict=True))
    assert len(asked) == len(set(asked)) == 1980
    assert set(asked) == {(p, c) for p, c in seen if cameras[p] > 1}

    person = test.persons[queries][:, None] == test.persons
    camera = test.cameras[queries][:, None] == test.cameras
    matches = (person & ~camera).sum(axis=1)
    assert (matches.min(), matches.max(), round(matches.mean(), 1)) == (1, 207, 11.0)
    assert ((matches == 1).sum(), (matches > 1).sum()) == (106, 1874)
    assert round((person & camera).sum(axis=1).mean(), 2) == 4.06

    gallery = np.setdiff1d(np.flatnonzero(~test.junk), queries)
    left = (person & ~camera)[:, gallery].sum(axis=1)
    assert (len(gallery), (left == 0).sum()) == (9330, 140)
    assert round(left.mean(), 1) == 8.5


def test_the_real_small_copy(real: Path) -> None:
    index = mars.scan(real)
    assert (len(index.train), index.train.lengths.sum()) == (32, 1719)
    assert (len(index.test), index.test.lengths.sum()) == (64, 3853)
    assert len(np.unique(index.train.persons)) == len(np.unique(index.test.persons)) == 16
    assert set(index.test.cameras.tolist()) | set(index.train.cameras.tolist()) == set(range(1, 7))
    assert len(index.queries) == 32
    data = mars.load(real)
    assert (len(data.train), data.num_classes) == (1719, 16)
    assert data.train.inputs[0].shape == data.train.inputs[1718].shape == (256, 128, 3)
