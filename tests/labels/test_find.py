"""find_suspects: what it takes, what it calls an issue, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reweigh.labels import METHODS, find_suspects


@pytest.fixture
def problem() -> dict[str, Any]:
    """600 examples of 3 classes, 20 % flipped, and what a good model recorded in 4 evaluations."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600)
    given = np.where(rng.random(600) < 0.2, (truth + rng.integers(1, 3, 600)) % 3, truth)
    logits = 6.0 * (np.arange(3) == truth[:, None])[:, None] + rng.normal(size=(600, 4, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    rows = np.arange(600)
    others = logits.copy()
    others[rows, :, given] = -np.inf
    return {
        "truth": truth,
        "labels": given,
        "pred_probs": p[:, -1],
        "history": p[rows, :, given].astype(np.float16),
        "margins": (logits[rows, :, given] - others.max(axis=2)).astype(np.float16),
        "rivals": others.argmax(axis=2).astype(np.uint16),
    }


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_what_was_flipped(problem: dict[str, Any], method: Any) -> None:
    truth = problem.pop("truth")
    found = find_suspects(**problem, method=method, bootstrap=20)
    wrong = problem["labels"] != truth
    assert wrong[found.issue].mean() > 0.95
    assert found.issue[wrong].mean() > 0.9
    assert (found.suggested[found.issue] == truth[found.issue]).mean() > 0.95
    assert (found.suggested != found.given)[found.issue].all()
    assert found.noise is not None
    assert found.noise.rate == pytest.approx(wrong.mean(), abs=0.03)
    assert ((found.score >= 0) & (found.score <= 1)).all()
    worst = found.ranked()[: int(wrong.sum())]
    assert wrong[worst].mean() > 0.95
    assert set(found.ranked_issues()) == set(np.flatnonzero(found.issue))


def test_auto_takes_the_best_there_is(problem: dict[str, Any]) -> None:
    labels, p = problem["labels"], problem["pred_probs"]
    assert find_suspects(labels, p, bootstrap=1).method == "final-p"
    assert find_suspects(labels, p, history=problem["history"], bootstrap=1).method == "mean-p"
    dynamics = {name: problem[name] for name in ("history", "margins", "rivals")}
    assert find_suspects(labels, p, **dynamics, bootstrap=1).method == "duel"
    told = find_suspects(labels, p, how="by hand", class_names=["a", "b", "c"], bootstrap=1)
    assert (told.method, told.class_names, told.sources[5]) == ("by hand", ("a", "b", "c"), "5")


def test_a_threshold_draws_the_line(problem: dict[str, Any]) -> None:
    arguments = {name: problem[name] for name in ("labels", "pred_probs", "margins")}
    area = problem["margins"].mean(axis=1, dtype=np.float64)
    for threshold in (-3.0, 0.0):
        found = find_suspects(**arguments, method="aum", threshold=threshold, bootstrap=1)
        np.testing.assert_array_equal(found.issue, (area < threshold) & (found.suggested != found.given))
        np.testing.assert_array_equal(found.score > 0.5, area < threshold)


def test_margins_without_bound_are_ranked_at_the_ends() -> None:
    labels, p = np.zeros(6, int), np.tile([0.4, 0.6], (6, 1))
    margins = np.array([[2.0, 2], [-np.inf, 3], [-9e4, -9e4], [np.inf, -2], [np.inf, -np.inf], [-np.inf, -np.inf]])
    found = find_suspects(labels, p, margins=margins, method="aum", bootstrap=1)
    assert found.ranked().tolist() == [1, 5, 2, 4, 0, 3]
    assert ((found.score >= 0) & (found.score <= 1)).all()


def test_agreement_is_no_issue_however_low_p_is() -> None:
    labels = np.array([0, 0, 1, 1])
    p = np.array([[0.5, 0.5], [0.51, 0.49], [0.5, 0.5], [0.0, 1.0]])
    found = find_suspects(labels, p, bootstrap=1)
    assert not found.issue.any()
    np.testing.assert_array_equal(found.suggested, labels)


def test_a_rare_class_has_its_own_measure() -> None:
    """Common examples that are surely right, a rare class the model is unsure of: none is called wrong for that."""
    labels = np.repeat([0, 1], [300, 20])
    p = np.where(labels == 0, 0.01, 0.6) + np.linspace(-0.005, 0.005, 320)
    found = find_suspects(labels, np.column_stack([1 - p, p]), bootstrap=1)
    assert not found.issue.any()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labels": [0.5, 1.0]}, r"labels must be \(N,\) integers, not \(2,\) of float64"),
        ({"labels": [[0, 1]]}, r"labels must be \(N,\) integers"),
        ({"labels": [0, 2]}, "labels must be from 0 to 1; row 1 is not"),
        ({"labels": [0, -1]}, "labels must be from 0 to 1; row 1 is not"),
        ({"labels": [0]}, "1 labels but 2 rows of pred_probs"),
        ({"labels": np.zeros(0, int), "pred_probs": np.zeros((0, 2))}, "0 labels but 0 rows of pred_probs"),
        ({"pred_probs": [0.1, 0.9]}, r"pred_probs must be \(N, C\) floats"),
        ({"pred_probs": [[1.0], [1.0]]}, r"pred_probs must be \(N, C\) floats, not \(2, 1\)"),
        ({"pred_probs": [[0.5, 0.5], [1.5, -0.5]]}, "pred_probs must be between 0 and 1; row 1 is not"),
        ({"pred_probs": [[0.5, 0.5], [np.nan, 0.5]]}, "pred_probs must be between 0 and 1; row 1 is not"),
        ({"pred_probs": [[0.5, 0.5], [0.5, 0.1]]}, "pred_probs must be rows that sum to 1; row 1 is not"),
        ({"history": [[0.5]]}, r"history must be \(2, E\) floats, a column for each evaluation, not \(1, 1\)"),
        ({"history": [[0.5], [1.5]]}, "history must be between 0 and 1; row 1 is not"),
        ({"margins": [[0.5], [np.nan]]}, "margins must be numbers; row 1 is not"),
        ({"margins": [[0.5], [0.1]], "rivals": [[1], [5]]}, "rivals must be from 0 to 1; row 1 is not"),
        ({"margins": [[0.5], [0.1]], "rivals": [[1, 0]]}, r"rivals must be \(2, 1\) integers, as margins"),
        ({"rivals": [[1], [0]]}, "rivals are given without margins"),
        ({"method": "mean-p"}, "method 'mean-p' needs history"),
        ({"method": "duel", "margins": [[0.5], [0.1]]}, "method 'duel' needs rivals"),
        ({"method": "best"}, "method is 'best'; expected one of auto, final-p"),
        ({"threshold": 0.0}, "threshold is 0, which only method 'aum' looks at; this is 'final-p'"),
        ({"threshold": 0.0, "method": "mixture", "margins": [[0.5], [0.1]]}, "this is 'mixture'"),
        ({"class_names": ["one"]}, "1 class_names for 2"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change: dict[str, Any], told: str) -> None:
    arguments: dict[str, Any] = {"labels": [0, 1], "pred_probs": [[0.9, 0.1], [0.2, 0.8]]}
    with pytest.raises(ValueError, match=told):
        find_suspects(**(arguments | change))
