from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import DataError
from reweigh.lab.suspects.decisions import Decision, read_decisions, suggested, to_csv, write_decisions
from reweigh.labels.suspects import Suspects

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
def test_reading_gives_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, made, names) -> None:
    path = tmp_path_factory.mktemp("made") / "new" / "decisions.csv"
    write_decisions(path, reversed(made), names)
    assert read_decisions(path, LABELS, names) == made


def test_people_may_write_it_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('\ufefflabel,note,decision,given,index\r\ncat,why,drop,cat,4\r\n\r\ncat,x,fix,"line\nend",2\r\n')
    found = read_decisions(path, LABELS, NAMES)
    assert found == (Decision(4, 0, "drop", 0), Decision(2, 2, "fix", 0))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("0,cat,maybe,cat\n", "line 2: decision is 'maybe'; expected keep, fix, drop"),
        ("0,cat,keep,cat\n6,cat,drop,cat\n", "line 3: index is '6'; expected 0 to 5"),
        ("-1,cat,keep,cat\n", "line 2: index is '-1'; expected 0 to 5"),
        ("1.0,cat,keep,cat\n", "line 2: index is '1.0'"),
        ("4,line,keep,line\n", "line 2: given is 'line', but example 4 has the label 'cat'"),
        ("0,cat,keep,cat\n4,cat,drop,cat\n0,cat,drop,cat\n", "line 4: index 0 is decided on already, on line 2"),
        ("0,cat,fix,mouse\n", "line 2: label is 'mouse', which is none of the 4 classes: 'cat', 'a \"dog\", large', "),
        ("0,cat,fix,cart\n", r"line 2: label is 'cart', which is none of the 4 classes; did you mean 'cat'\?"),
        ('0,cat,keep,"line\nend"\n', r"line 2: label is 'line\\nend' with keep"),
        ("0,cat,drop\n", "line 2: 3 fields"),
        ("0,cat,drop,\n", "line 2: label is '', which is none of the 4 classes"),
        (",cat,keep,cat\n", "line 2: index is ''; expected 0 to 5"),
        ("", "a header but no rows"),
    ],
)
def test_what_does_not_fit_the_data_is_refused_with_its_line(tmp_path: Path, lines: str, told: str) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(HEADER + lines)
    with pytest.raises(DataError, match=told) as refused:
        read_decisions(path, LABELS, NAMES)
    assert str(path) in str(refused.value)


def test_of_many_classes_only_some_are_named(tmp_path: Path) -> None:
    path = tmp_path / "decisions.csv"
    path.write_text(HEADER + "0,0,fix,mouse\n")
    with pytest.raises(DataError, match=r"none of the 100 classes: '0', '1', .*, '19' and 80 more$"):
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
        method="final p",
        noise=None,
    )


def test_suggestions_as_decisions() -> None:
    issues = suggested(some_suspects())
    assert issues == (Decision(2, 2, "fix", 0, "suspect with score 0.95: final p"),)  # of 1 the model approves
    assert [each.index for each in suggested(some_suspects(), threshold=0.5)] == [2, 0]
    assert [each.index for each in suggested(some_suspects(), threshold=0)] == [2, 0, 3]
    unsure = replace(some_suspects(), p_suggested=np.array([0.9, 1.0, 0.6, 0.3]))
    assert [each.index for each in suggested(unsure, threshold=0, sure=0.6)] == [2, 0]
    assert [each.index for each in suggested(unsure, sure=0.7, drop=True)] == [1]
    with pytest.raises(ValueError, match=r"sure is -1; expected a number from 0 to 1"):
        suggested(unsure, sure=-1)
    dropped = suggested(some_suspects(), drop=True)
    assert [(each.index, each.kind, each.label) for each in dropped] == [(2, "drop", 2), (1, "drop", 1)]
    with pytest.raises(ValueError, match=r"threshold is 1\.5; expected a number from 0 to 1"):
        suggested(some_suspects(), threshold=1.5)
    assert to_csv(issues, NAMES) == HEADER + '2,"line\nend","fix","cat"\n'
