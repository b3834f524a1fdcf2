"""Arguments of a wrong type raise an error that names the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reweigh import CCE, DM, BinaryCriterion, Criterion, LinearCriterion, batch_stats
from reweigh.functional import derivative_manipulation

LOGITS, TARGET = torch.zeros(2, 3), torch.tensor([0, 2])


@pytest.mark.parametrize("extra", [{}, {"label_smoothing": 0.1}, {"weight": torch.ones(3)}])
@pytest.mark.parametrize(
    ("logits", "target", "sample_weight", "message"),
    [
        (LOGITS.numpy(), TARGET, None, "logits must be a tensor, got a ndarray"),
        (LOGITS, [0, 2], None, "target must be a tensor, got a list"),
        (LOGITS, np.array([0, 2]), None, "target must be a tensor, got a ndarray"),
        (LOGITS, None, None, "target must be a tensor, got a NoneType"),
        (LOGITS, TARGET, [1.0, 2.0], "sample_weight must be a tensor, got a list"),
    ],
)
def test_call_requires_tensors(
    logits: Any, target: Any, sample_weight: Any, message: str, extra: dict[str, Any]
) -> None:
    criterion = Criterion(DM(0.5, 8), **extra)
    with pytest.raises(TypeError, match=message):
        criterion(logits, target, sample_weight=sample_weight)
    with pytest.raises(TypeError, match=message):
        criterion.log_normaliser(logits, target, sample_weight)
    with pytest.raises(TypeError, match=message):
        batch_stats(logits, target, DM(0.5, 8), sample_weight=sample_weight, **extra)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden": [[0.0]]}, "hidden must be a tensor, got a list"),
        ({"weight": None}, "weight must be a tensor, got a NoneType"),
        ({"weight": np.zeros((3, 4))}, "weight must be a tensor, got a ndarray"),
        ({"target": [0, 2]}, "target must be a tensor, got a list"),
        ({"bias": [0.0] * 3}, "bias must be a tensor, got a list"),
        ({"sample_weight": [1.0, 1.0]}, "sample_weight must be a tensor, got a list"),
    ],
)
def test_linear_criterion_requires_tensors(wrong: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"hidden": torch.zeros(2, 4), "weight": torch.zeros(3, 4), "target": TARGET} | wrong
    criterion = LinearCriterion(DM(0.5, 8))
    for call in (criterion, criterion.log_normaliser):
        with pytest.raises(TypeError, match=message):
            call(**arguments)


def test_functional_and_binary_forms_require_tensors() -> None:
    with pytest.raises(TypeError, match="weight must be a tensor, got a list"):
        derivative_manipulation(LOGITS, TARGET, DM(0.5, 8), weight=[1.0, 1.0, 1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="target must be a tensor, got a list"):
        BinaryCriterion(CCE())(LOGITS, [[0.0] * 3] * 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="target must be a tensor, got a list"):
        BinaryCriterion(DM(0.5, 8)).log_normaliser(LOGITS, [[0.0] * 3] * 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"weight": [1.0, 2.0]}, r"weight must be a tensor, got \[1.0, 2.0\]"),
        ({"ignore_index": 2.5}, "ignore_index must be a whole number, got 2.5"),
        ({"ignore_index": "a"}, "ignore_index must be a whole number, got 'a'"),
        ({"label_smoothing": 2}, r"label_smoothing must be a number in \[0, 1\], got 2"),
        ({"label_smoothing": "a"}, "label_smoothing must be a number in"),
    ],
)
def test_bad_settings_raise(setting: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Criterion(CCE(), **setting)
    assert Criterion(CCE(), ignore_index=np.int64(2), label_smoothing=np.float32(0.5)).ignore_index == 2


def test_string_as_weighting_raises() -> None:
    with pytest.raises(
        TypeError, match=r"got the text 'CCE'; pass the weighting itself, such as reweigh\.DM\(0\.5, 8\)"
    ):
        Criterion("CCE")  # type: ignore[arg-type]
