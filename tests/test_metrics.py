"""AUROC and average precision agree with scikit-learn, including ties."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score, precision_score, roc_auc_score
from sklearn.metrics import confusion_matrix as expected_confusion

from reweigh.metrics import auroc, average_precision, class_scores, confusion_matrix, fit_temperature

SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]) | st.floats(-1, 1)
EXAMPLES = st.lists(st.tuples(SCORES, st.booleans()), min_size=2)


@given(EXAMPLES.filter(lambda rows: len({positive for _, positive in rows}) == 2))
def test_both_agree_with_scikit_learn(rows: list[tuple[float, bool]]) -> None:
    score, positive = (np.array(column) for column in zip(*rows, strict=True))
    inputs = torch.from_numpy(score), torch.from_numpy(positive)
    np.testing.assert_allclose(auroc(*inputs), roc_auc_score(positive, score), atol=1e-12)
    np.testing.assert_allclose(average_precision(*inputs), average_precision_score(positive, score), atol=1e-12)


def test_without_positives_or_negatives_the_score_is_nan() -> None:
    score = torch.tensor([0.1, 0.2])
    assert math.isnan(auroc(score, torch.tensor([True, True])))
    assert math.isnan(auroc(score, torch.tensor([False, False])))
    assert math.isnan(average_precision(score, torch.tensor([False, False])))
    assert average_precision(score, torch.tensor([True, True])) == 1


def test_nan_scores_give_nan() -> None:
    score, positive = torch.tensor([0.1, math.nan, 0.3]), torch.tensor([False, True, False])
    assert math.isnan(auroc(score, positive))
    assert math.isnan(average_precision(score, positive))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_class_scores_agree_with_scikit_learn(rows: list[tuple[int, int]]) -> None:
    predicted, target = (torch.tensor(column) for column in zip(*rows, strict=True))
    confusion = confusion_matrix(predicted, target, 4)
    assert confusion.tolist() == expected_confusion(target, predicted, labels=range(4)).tolist()
    scores = class_scores(confusion)
    present = target.unique().tolist()
    options = {"labels": present, "average": "macro", "zero_division": 0}
    np.testing.assert_allclose(scores.mean("precision"), precision_score(target, predicted, **options))
    np.testing.assert_allclose(scores.mean("f1"), f1_score(target, predicted, **options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that are only predicted
        np.testing.assert_allclose(scores.mean("recall"), balanced_accuracy_score(target, predicted))


def test_the_temperature_of_scaled_logits_is_the_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 5, generator=generator)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    assert fit_temperature(logits, target) == pytest.approx(1, abs=0.05)
    assert fit_temperature(3 * logits, target) == pytest.approx(3 * fit_temperature(logits, target))
