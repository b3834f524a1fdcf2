"""find_suspects: its arguments, its issues, and its errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from reweigh.labels import METHODS, find_suspects, suggested


@pytest.fixture
def problem() -> dict[str, Any]:
    """600 examples of 3 classes, 20 % flipped, and the record of a good model in 4 evaluations."""
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
        "logit_gaps": (logits[rows, :, given] - others.max(axis=2)).astype(np.float16),
        "rivals": others.argmax(axis=2).astype(np.uint16),
    }


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_flipped_labels(problem: dict[str, Any], method: Any) -> None:
    truth = problem.pop("truth")
    suspects = find_suspects(**problem, method=method, bootstrap=20)
    wrong = problem["labels"] != truth
    assert wrong[suspects.issue].mean() > 0.95
    assert suspects.issue[wrong].mean() > 0.9
    assert (suspects.suggested[suspects.issue] == truth[suspects.issue]).mean() > 0.95
    assert (suspects.suggested != suspects.given)[suspects.issue].all()
    assert suspects.noise is not None
    assert suspects.noise.rate == pytest.approx(wrong.mean(), abs=0.03)
    assert ((suspects.score >= 0) & (suspects.score <= 1)).all()
    worst = suspects.ranked()[: int(wrong.sum())]
    assert wrong[worst].mean() > 0.95
    assert set(suspects.ranked_issues()) == set(np.flatnonzero(suspects.issue))


def test_auto_takes_the_best_available(problem: dict[str, Any]) -> None:
    labels, p = problem["labels"], problem["pred_probs"]
    assert find_suspects(labels, p, bootstrap=1).description == "final-p"
    assert find_suspects(labels, p, history=problem["history"], bootstrap=1).description == "mean-p"
    dynamics = {name: problem[name] for name in ("history", "logit_gaps", "rivals")}
    assert find_suspects(labels, p, **dynamics, bootstrap=1).description == "duel"
    named = find_suspects(labels, p, description="by hand", class_names=["a", "b", "c"], bootstrap=1)
    assert (named.description, named.class_names, named.sources[5]) == ("by hand", ("a", "b", "c"), "5")


def test_a_threshold_separates_issues(problem: dict[str, Any]) -> None:
    arguments = {name: problem[name] for name in ("labels", "pred_probs", "logit_gaps")}
    area = problem["logit_gaps"].mean(axis=1, dtype=np.float64)
    for threshold in (-3.0, 0.0):
        suspects = find_suspects(**arguments, method="aum", threshold=threshold, bootstrap=1)
        np.testing.assert_array_equal(suspects.issue, (area < threshold) & (suspects.suggested != suspects.given))
        np.testing.assert_array_equal(suspects.score > 0.5, area < threshold)


def test_infinite_margins_are_ranked_at_the_ends() -> None:
    labels, p = np.zeros(6, int), np.tile([0.4, 0.6], (6, 1))
    gaps = np.array([[2.0, 2], [-np.inf, 3], [-9e4, -9e4], [np.inf, -2], [np.inf, -np.inf], [-np.inf, -np.inf]])
    suspects = find_suspects(labels, p, logit_gaps=gaps, method="aum", bootstrap=1)
    assert suspects.ranked().tolist() == [1, 5, 2, 4, 0, 3]
    assert ((suspects.score >= 0) & (suspects.score <= 1)).all()


def test_agreement_is_no_issue_however_low_p_is() -> None:
    labels = np.array([0, 0, 1, 1])
    p = np.array([[0.5, 0.5], [0.51, 0.49], [0.5, 0.5], [0.0, 1.0]])
    suspects = find_suspects(labels, p, bootstrap=1)
    assert not suspects.issue.any()
    np.testing.assert_array_equal(suspects.suggested, labels)


def test_a_rare_class_is_judged_on_its_own() -> None:
    """The model is certain of a frequent class and uncertain of a rare one: neither has issues."""
    labels = np.repeat([0, 1], [300, 20])
    p = np.where(labels == 0, 0.01, 0.6) + np.linspace(-0.005, 0.005, 320)
    suspects = find_suspects(labels, np.column_stack([1 - p, p]), bootstrap=1)
    assert not suspects.issue.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0.5, 1.0]}, r"labels must be \(N,\) integers or strings, not \(2,\) of float64"),
        ({"labels": [[0, 1]]}, r"labels must be \(N,\) integers"),
        ({"labels": [0, 2]}, "labels must be from 0 to 1; row 1 is not"),
        ({"labels": [0, -1]}, "labels must be from 0 to 1; row 1 is not"),
        ({"labels": [0]}, "labels has 1 entries and pred_probs 2 rows; expected the same number"),
        (
            {"labels": np.zeros(0, int), "pred_probs": np.zeros((0, 2))},
            "labels has 0 entries; expected 1 or more",
        ),
        ({"pred_probs": [0.1, 0.9]}, r"pred_probs must be \(N, C\) floats"),
        ({"pred_probs": [[1.0], [1.0]]}, r"pred_probs must be \(N, C\) floats, not \(2, 1\)"),
        ({"pred_probs": [[0.5, 0.5], [1.5, -0.5]]}, "pred_probs must be between 0 and 1; row 1 is not"),
        ({"pred_probs": [[0.5, 0.5], [np.nan, 0.5]]}, "pred_probs must be between 0 and 1; row 1 is not"),
        ({"pred_probs": [[0.5, 0.5], [0.5, 0.1]]}, "pred_probs must be rows that sum to 1; row 1 is not"),
        ({"history": [[0.5]]}, r"history must be \(2, E\) floats for E evaluations, not \(1, 1\)"),
        ({"history": [[0.5], [1.5]]}, "history must be between 0 and 1; row 1 is not"),
        ({"logit_gaps": [[0.5], [np.nan]]}, "logit_gaps must be numbers; row 1 is not"),
        ({"logit_gaps": [[0.5], [0.1]], "rivals": [[1], [5]]}, "rivals must be from 0 to 1; row 1 is not"),
        (
            {"logit_gaps": [[0.5], [0.1]], "rivals": [[1, 0]]},
            r"rivals must be \(2, 1\) integers, like logit_gaps",
        ),
        ({"rivals": [[1], [0]]}, "rivals needs logit_gaps; pass both"),
        ({"method": "mean-p"}, "method 'mean-p' needs history"),
        ({"method": "duel", "logit_gaps": [[0.5], [0.1]]}, "method 'duel' needs rivals"),
        ({"method": "best"}, "method is 'best'; expected one of auto, final-p"),
        ({"threshold": 0.0}, "threshold is 0, but method is 'final-p'; only 'aum' uses a threshold"),
        ({"threshold": 0.0, "method": "mixture", "logit_gaps": [[0.5], [0.1]]}, "method is 'mixture'; only"),
        ({"class_names": ["one"]}, "class_names has 1 entries for 2 classes"),
        ({"labels": ["a", None]}, "labels must be all strings or all integers; row 1 is not"),
        ({"labels": ["a", "a"]}, "there are 1 distinct labels for 2 classes; pass class_names, one per class"),
        ({"labels": ["a", "c"], "class_names": ["a", "b"]}, "labels must be among class_names; row 1 is not"),
        ({"embeddings": [[1.0], [2.0]]}, "embeddings replaces pred_probs; pass one of them"),
        ({"pred_probs": None}, "method 'auto' needs pred_probs or embeddings"),
        ({"pred_probs": None, "embeddings": [[1.0]]}, r"embeddings must be \(2, D\) numbers, not \(1, 1\)"),
        ({"pred_probs": None, "embeddings": [[1.0], [np.inf]]}, "embeddings must be finite; row 1 is not"),
        ({"pred_probs": None, "embeddings": [[1.0], [2.0]]}, "embeddings has 2 rows; expected 4 or more"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"labels": [0, 1], "pred_probs": [[0.9, 0.1], [0.2, 0.8]]}
    with pytest.raises(ValueError, match=message):
        find_suspects(**(arguments | change))


def test_it_imports_neither_the_bench_nor_torch() -> None:
    code = "import sys; from reweigh import find_suspects; find_suspects([0, 1], [[0.9, 0.1], [0.2, 0.8]])\n"
    code += "print(*(name for name in sys.modules if name == 'torch' or name.startswith('reweigh.lab.')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_embeddings_alone_find_flipped_labels() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 4, 800)
    embeddings = 4.0 * rng.normal(size=(4, 16))[truth] + rng.normal(size=(800, 16))
    labels = np.where(rng.random(800) < 0.2, (truth + rng.integers(1, 4, 800)) % 4, truth)
    suspects = find_suspects(labels, embeddings=embeddings, bootstrap=20)
    wrong = labels != truth
    assert wrong[suspects.issue].mean() > 0.95
    assert suspects.issue[wrong].mean() > 0.95
    assert (suspects.suggested[wrong] == truth[wrong]).mean() > 0.95
    again = find_suspects(labels, embeddings=embeddings, bootstrap=20)
    np.testing.assert_array_equal(suspects.score, again.score)


@pytest.mark.parametrize("rows", [4, 7, 40])
def test_few_embeddings_and_absent_classes_are_judged(rows: int) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(rows) % 3
    suspects = find_suspects(labels, embeddings=np.zeros((rows, 2)), class_names=list("abcde"), bootstrap=1)
    assert np.isfinite(suspects.score).all()
    noise = find_suspects(labels, embeddings=rng.normal(size=(rows, 90)), class_names=list("abcde"), bootstrap=1)
    assert ((noise.score >= 0) & (noise.score <= 1)).all()


def test_the_record_of_a_training_is_enough(problem: dict[str, Any]) -> None:
    wrong = problem["labels"] != problem["truth"]
    gaps = {name: problem[name] for name in ("logit_gaps", "rivals")}
    suspects = find_suspects(problem["labels"], **gaps, bootstrap=1)
    assert suspects.description == "duel"
    assert wrong[suspects.issue].mean() > 0.95
    p_only = find_suspects(problem["labels"], history=problem["history"])
    assert p_only.noise is None
    assert wrong[p_only.issue].mean() > 0.95
    np.testing.assert_array_equal(p_only.suggested, p_only.given)


def test_a_history_of_all_classes_is_averaged() -> None:
    history = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.1, 0.9]]])
    suspects = find_suspects([0, 0], history=history, bootstrap=1)
    np.testing.assert_allclose(suspects.score, [0.5, 0.7])
    assert suspects.suggested.tolist() == [0, 1]
    assert suspects.description == "mean-p"


def test_gaps_that_were_not_evaluated_are_left_out() -> None:
    labels, rivals = [0, 1], [[1, 1, 1], [0, 0, 0]]
    gaps = np.array([[1.0, np.nan, 1.0], [np.nan, -2.0, np.nan]])
    some = find_suspects(labels, logit_gaps=gaps, rivals=rivals, bootstrap=1)
    all_ = find_suspects(labels, logit_gaps=[[1.0], [-2.0]], rivals=[[1], [0]], bootstrap=1)
    np.testing.assert_allclose(some.score, all_.score)


def test_labels_may_be_strings_columns_and_tensors(problem: dict[str, Any]) -> None:
    import pandas
    import torch

    names = np.array(["ant", "bee", "cat"])
    numbers = find_suspects(problem["labels"], problem["pred_probs"], bootstrap=5)
    words = names[problem["labels"]]
    for labels in (words, words.tolist(), pandas.Series(words), pandas.Series(words, dtype="category")):
        suspects = find_suspects(labels, pandas.DataFrame(problem["pred_probs"]), bootstrap=5)
        np.testing.assert_array_equal(suspects.score, numbers.score)
        assert suspects.class_names == ("ant", "bee", "cat")
    column = pandas.Series(problem["labels"], dtype="Int64")
    tensor = torch.tensor(problem["pred_probs"], dtype=torch.bfloat16, requires_grad=True)
    rough = find_suspects(column, tensor, bootstrap=5)
    np.testing.assert_allclose(rough.score, numbers.score, atol=0.01)
    assert find_suspects([True, False, True], [[0.1, 0.9]] * 3, bootstrap=1).given.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="row 2 is not"):
        find_suspects(pandas.Series(["a", "b", None]), [[0.5, 0.5]] * 3)


def test_suggested_is_the_most_probable_class() -> None:
    probabilities = np.array([[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]])
    assert suggested(np.array([0, 1]), probabilities).tolist() == [2, 1]
