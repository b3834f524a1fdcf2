from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the digits come with scikit-learn (extra demo)")

from reweigh.lab.data import digits


def test_digits_are_a_fixed_stratified_split() -> None:
    data = digits.load()
    assert repr(data) == "Dataset('digits', features 64, 10 classes, 1200 train + 597 test)"
    assert data.class_names == tuple("0123456789")
    assert data.train.inputs.dtype == np.float32
    assert (data.train.inputs.min(), data.train.inputs.max()) == (0, 1)
    everything = np.bincount(data.train.labels) + np.bincount(data.test.labels)
    assert np.abs(np.bincount(data.test.labels) - everything * 597 / 1797).max() <= 1
    assert digits.load().hash == data.hash
    assert data.hash.startswith("175ad70cf33bdc11")
