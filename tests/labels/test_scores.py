"""Scores are in [0, 1], rise with suspicion, and find flipped labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reweigh.labels.scores import area_under_margin, final_p, margin_score, mean_p, mean_pairwise_p, mixture
from reweigh.metrics import auroc


@given(hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(-1e4, 1e4)), st.floats(-10, 10))
def test_a_margin_score_falls_strictly_and_never_saturates(area: np.ndarray, threshold: float) -> None:
    score = margin_score(np.sort(area), threshold)
    assert ((score > 0) & (score < 1)).all()
    assert (np.diff(score) <= 0).all()
    apart = np.abs(np.sort(area) - threshold) > 1e-9
    np.testing.assert_array_equal((score > 0.5)[apart], (np.sort(area) < threshold)[apart])
    far = margin_score(np.array([-9999.0, -9998.0]))
    assert far[0] > far[1]


def test_a_mixture_is_monotone_and_separates_two_modes() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.beta(2, 20, 700), rng.beta(20, 2, 300)])
    posterior = mixture(x)
    assert ((posterior >= 0) & (posterior <= 1)).all()
    assert (np.diff(posterior[np.argsort(x)]) >= 0).all()
    assert (posterior > 0.5).sum() == pytest.approx(300, abs=5)


def test_pairwise_p_sums_to_one_and_includes_early_evaluations() -> None:
    labels = np.array([0, 1])
    margins = np.array([[-3.0, -3.0, 9.0], [4.0, 4.0, 4.0]], np.float16)
    rivals = np.array([[2, 2, 1], [0, 0, 0]], np.uint16)
    p = mean_pairwise_p(labels, margins, rivals, num_classes=3)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert p.argmax(axis=1).tolist() == [2, 1], "memorised at the end only"
    extreme = mean_pairwise_p(np.array([0]), np.array([[-65504.0, 65504.0]], np.float16), np.array([[1, 1]]), 2)
    np.testing.assert_array_equal(extreme, [[0.5, 0.5]])


def test_half_precision_is_averaged_in_double() -> None:
    history = np.full((3, 5000), 0.1, np.float16)
    np.testing.assert_allclose(mean_p(history), 1 - np.float64(np.float16(0.1)))
    np.testing.assert_allclose(area_under_margin(np.full((2, 5000), 60000, np.float16)), 60000, rtol=1e-3)


def test_all_scores_find_flipped_labels() -> None:
    rng = np.random.default_rng(1)
    truth, wrong = rng.integers(0, 4, 500), rng.random(500) < 0.3
    given = np.where(wrong, (truth + 1) % 4, truth)
    logits = 3.0 * (np.arange(4) == truth[:, None]) + rng.normal(size=(500, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = logits[np.arange(500), given]
    others = np.where(np.arange(4) == given[:, None], -np.inf, logits)
    margins, rivals = (own - others.max(axis=1))[:, None], others.argmax(axis=1)[:, None]
    scores = {
        "final p": final_p(given, p),
        "mean p": mean_p(p[np.arange(500), given][:, None]),
        "aum": margin_score(area_under_margin(margins)),
        "duel": final_p(given, mean_pairwise_p(given, margins, rivals, 4)),
        "mixture": mixture(final_p(given, p)),
    }
    for name, score in scores.items():
        assert ((score >= 0) & (score <= 1)).all(), name
        assert auroc(torch.from_numpy(score), torch.from_numpy(wrong)) > 0.95, name
