"""The file of posteriors: written, read, damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reweigh.errors import DataError
from reweigh.lab.record.posteriors import FILE, read_posteriors, write_posteriors


def test_posteriors_are_read_back(tmp_path: Path) -> None:
    final, mean, opinion = torch.rand(3, 5, 4).softmax(dim=2)
    write_posteriors(tmp_path, final, mean, opinion)
    found = read_posteriors(tmp_path, 5, 4)
    assert found is not None
    for array, tensor in zip(found, (final, mean, opinion), strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), atol=1e-3)
        np.testing.assert_allclose(array.sum(axis=1), 1.0)
    labels = np.array([0, 1, 2, 3, 0])
    expected = torch.stack([final, mean, opinion]).mean(0).numpy()[np.arange(5), labels]
    np.testing.assert_allclose(found.of(labels), expected, atol=1e-3)


def test_damage_is_one_message(tmp_path: Path) -> None:
    assert read_posteriors(tmp_path, 5, 4) is None
    write_posteriors(tmp_path, *torch.rand(3, 5, 4))
    with pytest.raises(DataError, match="final is not 6 x 4 probabilities; train again"):
        read_posteriors(tmp_path, 6, 4)
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:40])
    with pytest.raises(DataError, match="cannot be read"):
        read_posteriors(tmp_path, 5, 4)
