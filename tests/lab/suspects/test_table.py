"""suspects.csv: reading returns what was written, for any text; errors name the line."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import DataError
from reweigh.lab.suspects import read_csv, write_csv
from reweigh.lab.suspects.table import COLUMNS, suspects_to_csv
from reweigh.labels import Suspects

NAMES = ("cat", 'dog, "big"', "fish\nor not")
FORMULAS = ("=1+1", "'@x", "-1")  # the last one is a number
ARRAYS = ("index", "given", "suggested", "score", "issue", "p_given", "p_suggested")


def some(scores: list[float], sources: list[str] | None = None) -> Suspects:
    n = len(scores)
    return Suspects(
        index=np.arange(n) * 3,
        given=np.arange(n) % 3,
        suggested=(np.arange(n) + 1) % 3,
        score=np.array(scores),
        issue=np.array(scores) > 0.5,
        p_given=1 - np.array(scores),
        p_suggested=np.array(scores) / 3,
        class_names=NAMES,
        sources=tuple(sources or (f"row {i}" for i in range(n))),
        description="1 - p, run abc",
        noise=None,
    )


ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
FIRST = st.sampled_from(["=", "+", "-", "@", "\t", "\r", "'="])
TEXTS = st.one_of(ANY, st.builds("{}{}".format, FIRST, ANY)).filter(str.strip)


@given(
    st.lists(st.tuples(st.floats(0, 1), TEXTS), min_size=1, max_size=5),
    st.sampled_from([NAMES, FORMULAS, ("", " ", "\n")]),  # class names may be empty
)
def test_reading_returns_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list, names: tuple[str, ...]
) -> None:
    path = tmp_path_factory.mktemp("suspects") / "new" / "suspects.csv"
    written = replace(some([score for score, _ in rows], [text for _, text in rows]), class_names=names)
    write_csv(path, written)
    suspects, expected = read_csv(path, names), written.take(written.ranked())
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(suspects, name), getattr(expected, name))
    assert (suspects.sources, suspects.class_names) == (expected.sources, names)
    assert suspects.description == written.description
    assert suspects.noise is None


def test_the_most_suspicious_come_first_and_ties_go_by_index() -> None:
    suspects = some([0.2, 0.9, 0.2, 0.9])
    assert suspects.ranked().tolist() == [1, 3, 0, 2]
    assert suspects.ranked_issues().tolist() == [1, 3]
    np.testing.assert_allclose(suspects.label_quality, [0.8, 0.1, 0.8, 0.1])
    table = list(csv.reader(io.StringIO(suspects_to_csv(suspects), newline="")))
    assert table[0] == list(COLUMNS)
    assert [row[0] for row in table[1:]] == ["3", "9", "0", "6"]
    assert "4 examples, 2 issues" in repr(suspects)


def test_class_names_default_to_those_of_the_file(tmp_path: Path) -> None:
    write_csv(tmp_path / "s.csv", some([0.1, 0.2, 0.3]))
    suspects = read_csv(tmp_path / "s.csv")
    assert suspects.class_names == tuple(sorted(NAMES))
    assert [suspects.class_names[k] for k in suspects.given] == [NAMES[2], NAMES[1], NAMES[0]]


GOOD = {
    "index": "0",
    "source": "x",
    "given": "cat",
    "suggested": "dog",
    "score": "0.5",
    "issue": "true",
    "p_given": "0.1",
    "p_suggested": "0.9",
    "how": "x",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": "0.5"}, "line 2: index must be an integer, 0 or more, not '0.5'"),
        ({"index": "-1"}, "line 2: index must be an integer"),
        ({"score": "1.5"}, "line 2: score must be a number from 0 to 1, not '1.5'"),
        ({"score": "high"}, "column 'score' must hold finite numbers: line 2"),
        ({"p_given": "-0.1"}, "line 2: p_given must be"),
        ({"issue": "perhaps"}, "line 2: issue must be true or false, not 'perhaps'"),
        ({"given": "cow"}, "line 2: given must be one of 2 class names, not 'cow'"),
        ({"how": None}, "no column 'how'; there are 'index', "),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, change: dict, message: str) -> None:
    row = {name: value for name, value in (GOOD | change).items() if value is not None}
    (tmp_path / "s.csv").write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        read_csv(tmp_path / "s.csv", ("cat", "dog"))


def test_an_example_cannot_occur_twice(tmp_path: Path) -> None:
    line = ",".join(GOOD.values())
    (tmp_path / "s.csv").write_text(f"{','.join(GOOD)}\n{line}\n{line}\n")
    with pytest.raises(DataError, match="line 3: index must be unique, not '0'"):
        read_csv(tmp_path / "s.csv")


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="sources has 1 entries; index has 2"):
        some([0.1, 0.2], ["one"])
