"""w(p) of whatever holds numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reweigh import CCE, DM, Weighting


@pytest.mark.parametrize("weighting", [DM(0.5, 8), CCE()])
@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_lists_and_arrays_give_tensors(weighting: Weighting, kind: Any) -> None:
    found = weighting(kind([0.1, 0.2]))
    assert found.tolist() == pytest.approx([weighting(0.1), weighting(0.2)])
    assert found.dtype == torch.float64
    assert isinstance(weighting(np.float64(0.1)), float)


@pytest.mark.parametrize(
    ("p", "error", "told"),
    [
        (2, ValueError, r"p must be in \[0, 1\], got 2"),
        ([0.1, -1], ValueError, r"p must be in \[0, 1\], got \[0.1, -1\]"),
        ("a", TypeError, "p must be a number, a tensor, or a list or array of numbers, got 'a'"),
        (None, TypeError, "got None"),
        ([[1], [1, 2]], TypeError, "or a list or array of numbers"),
    ],
)
def test_what_is_no_probability_is_refused(p: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        DM(0.5, 8)(p)


def test_no_weight_at_all_has_no_mode() -> None:
    assert (0 * CCE()).mode is None
