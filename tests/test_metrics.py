"""AUROC and average precision agree with scikit-learn, including ties."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from reweigh.metrics import auroc, average_precision

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
