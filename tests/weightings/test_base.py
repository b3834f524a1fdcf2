"""Evaluating a weighting on numbers, lists and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reweigh import CCE, DM, Weighting


@pytest.mark.parametrize("weighting", [DM(0.5, 8), CCE()])
@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_lists_and_arrays_give_tensors(weighting: Weighting, kind: Any) -> None:
    w = weighting(kind([0.1, 0.2]))
    assert w.tolist() == pytest.approx([weighting(0.1), weighting(0.2)])
    assert w.dtype == torch.float64
    assert isinstance(weighting(np.float64(0.1)), float)


@pytest.mark.parametrize(
    ("p", "error", "message"),
    [
        (2, ValueError, r"p must be in \[0, 1\], got 2"),
        ([0.1, -1], ValueError, r"p must be in \[0, 1\], got \[0.1, -1\]"),
        ("a", TypeError, "p must be a number, a tensor, or a list or array of numbers, got 'a'"),
        (None, TypeError, "got None"),
        ([[1], [1, 2]], TypeError, "or a list or array of numbers"),
    ],
)
def test_values_that_are_not_probabilities_raise(p: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        DM(0.5, 8)(p)


def test_mode_of_a_zero_weight_is_none() -> None:
    assert (0 * CCE()).mode is None
