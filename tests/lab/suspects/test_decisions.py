"""decisions.csv: reading, writing and errors; suggestions turned into decisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import DataError
from reweigh.lab.suspects.decisions import (
    Decision,
    accept_suggestions,
    decisions_to_csv,
    read_decisions,
    write_decisions,
)
from reweigh.labels import Suspects

NAMES = ("cat", 'a "dog", large', "line\nend", "  blanks ")
LABELS = np.array([0, 1, 2, 3, 0, 1])
HEADER = "index,given,decision,label\n"


@st.composite
def decision_lists(draw: st.DrawFn) -> tuple[Decision, ...]:
    chosen = draw(st.lists(st.integers(0, len(LABELS) - 1), unique=True, min_size=1))
    made = []
    for index in sorted(chosen):
        before, kind = int(LABELS[index]), draw(st.sampled_from(["keep", "fix", "drop"]))
        made.append(Decision(index, before, kind, draw(st.integers(0, 3)) if kind == "fix" else before))
    return tuple(made)


@given(decision_lists(), st.sampled_from([NAMES, ("", " ", "\t", "\n")]))
def test_reading_returns_what_was_written(tmp_path_factory: pytest.TempPathFactory, made, names) -> None:
    path = tmp_path_factory.mktemp("made") / "new" / "decisions.csv"
    write_decisions(path, reversed(made), names)
    assert read_decisions(path, LABELS, names) == made


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('\ufefflabel,note,decision,given,index\r\ncat,why,drop,cat,4\r\n\r\ncat,x,fix,"line\nend",2\r\n')
    decisions = read_decisions(path, LABELS, NAMES)
    assert decisions == (Decision(4, 0, "drop", 0), Decision(2, 2, "fix", 0))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0,cat,maybe,cat\n", "line 2: decision is 'maybe'; expected keep, fix, drop"),
        ("0,cat,keep,cat\n6,cat,drop,cat\n", "line 3: index is '6'; expected 0 to 5"),
        ("-1,cat,keep,cat\n", "line 2: index is '-1'; expected 0 to 5"),
        ("1.0,cat,keep,cat\n", "line 2: index is '1.0'"),
        ("4,line,keep,line\n", "line 2: given is 'line', but example 4 has the label 'cat'"),
        ("0,cat,keep,cat\n4,cat,drop,cat\n0,cat,drop,cat\n", "line 4: index 0 already occurs on line 2"),
        ("0,cat,fix,mouse\n", "line 2: label is 'mouse'; expected one of 'cat', 'a \"dog\", large', "),
        ("0,cat,fix,cart\n", r"line 2: label is 'cart'; did you mean 'cat'\?"),
        ('0,cat,keep,"line\nend"\n', r"line 2: label is 'line\\nend', but keep requires the given label, 'cat'"),
        ("0,cat,drop\n", r"not line 2 \(3 fields\)"),
        ("0,cat,drop,\n", "line 2: label is ''; expected one of"),
        (",cat,keep,cat\n", "line 2: index is ''; expected 0 to 5"),
        ("", "a header but no rows"),
    ],
)
def test_a_file_that_does_not_fit_the_data_is_refused_with_its_line(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(HEADER + lines)
    with pytest.raises(DataError, match=message) as refused:
        read_decisions(path, LABELS, NAMES)
    assert str(path) in str(refused.value)


def test_an_error_names_only_some_of_many_classes(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(HEADER + "0,0,fix,mouse\n")
    with pytest.raises(DataError, match=r"expected one of '0', '1', .*, '19' and 80 more$"):
        read_decisions(path, LABELS, [str(k) for k in range(100)])


def test_a_missing_column_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    with pytest.raises(DataError, match="no such file"):
        read_decisions(path, LABELS, NAMES)
    path.write_text("index,given,choice,label\n0,cat,keep,cat\n")
    with pytest.raises(DataError, match="no column 'decision'; there are 'index', 'given', 'choice', 'label'"):
        read_decisions(path, LABELS, NAMES)


def some_suspects() -> Suspects:
    return Suspects(
        index=np.arange(4),
        given=np.array([0, 1, 2, 3]),
        suggested=np.array([1, 1, 0, 0]),
        score=np.array([0.5, 0.9, 0.95, 0.2]),
        issue=np.array([False, True, True, False]),
        p_given=np.zeros(4),
        p_suggested=np.ones(4),
        class_names=NAMES,
        sources=("a", "b", "c", "d"),
        description="final p",
        noise=None,
    )


def test_suggestions_as_decisions() -> None:
    issues = accept_suggestions(some_suspects())
    assert issues == (Decision(2, 2, "fix", 0, "suspect with score 0.95: final p"),)  # 1 is no disagreement
    assert [each.index for each in accept_suggestions(some_suspects(), threshold=0.5)] == [2, 0]
    assert [each.index for each in accept_suggestions(some_suspects(), threshold=0)] == [2, 0, 3]
    uncertain = replace(some_suspects(), p_suggested=np.array([0.9, 1.0, 0.6, 0.3]))
    assert [each.index for each in accept_suggestions(uncertain, threshold=0, sure=0.6)] == [2, 0, 3]
    kinds = [each.kind for each in accept_suggestions(uncertain, threshold=0, sure=0.6)]
    assert kinds == ["fix", "fix", "drop"], "a label that the model is not sure of is dropped"
    with pytest.raises(ValueError, match=r"sure is -1; expected a number from 0 to 1"):
        accept_suggestions(uncertain, sure=-1)
    dropped = accept_suggestions(some_suspects(), drop=True)
    assert [(each.index, each.kind, each.label) for each in dropped] == [(2, "drop", 2), (1, "drop", 1)]
    with pytest.raises(ValueError, match=r"threshold is 1\.5; expected a number from 0 to 1"):
        accept_suggestions(some_suspects(), threshold=1.5)
    assert decisions_to_csv(issues, NAMES) == HEADER + '2,"line\nend","fix","cat"\n'
