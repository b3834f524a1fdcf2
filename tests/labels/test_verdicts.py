"""verdicts and apply: what becomes of suspects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reweigh.labels import Suspects, apply, find_suspects, verdicts

LABELS = ["cat"] * 4 + ["dog"] * 4
PROBABILITIES = np.array([[0.9, 0.1]] * 3 + [[0.05, 0.95]] + [[0.1, 0.9]] * 3 + [[0.7, 0.3]])


@pytest.fixture
def suspects() -> Suspects:
    """The fourth label is surely wrong, the last one probably."""
    found = find_suspects(LABELS, PROBABILITIES, bootstrap=1)
    return replace(found, issue=np.array([False] * 3 + [True] + [False] * 3 + [True]))


def test_sure_suggestions_are_fixed_and_unsure_ones_dropped(suspects: Suspects) -> None:
    assert verdicts(suspects).tolist() == ["keep"] * 3 + ["fix"] + ["keep"] * 3 + ["drop"]
    assert verdicts(suspects, sure=0.0).tolist().count("fix") == 2
    assert verdicts(suspects, sure=1.1).tolist().count("drop") == 2
    assert verdicts(suspects, threshold=0.8).tolist().count("keep") == 7


def test_labels_keep_their_form(suspects: Suspects) -> None:
    words = apply(LABELS, suspects)
    assert words.labels.tolist() == ["cat"] * 3 + ["dog"] * 5
    assert words.keep.tolist() == [True] * 7 + [False]
    numbers = apply(np.array([0] * 4 + [1] * 4, dtype=np.int8), suspects)
    assert numbers.labels.dtype == np.int8
    assert numbers.labels.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_some_of_the_examples_suffice(suspects: Suspects) -> None:
    some = apply(LABELS, suspects.take(np.array([3])))
    assert some.labels.tolist() == ["cat"] * 3 + ["dog"] * 5
    assert some.keep.all()


def test_other_labels_are_refused(suspects: Suspects) -> None:
    with pytest.raises(ValueError, match="example 0 has another label than in suspects"):
        apply(["dog"] * 8, suspects)
    with pytest.raises(ValueError, match="index 7 is out of range for 3 labels"):
        apply(LABELS[:3], suspects)
