"""scikit-learn's 8 x 8 digits: 1,797 examples that need no download, for tests and first steps."""

from __future__ import annotations

import numpy as np

from reweigh.errors import require
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.lab.data.split import stratified_split


def load() -> Dataset:
    """The digits as 64 features in [0, 1], 1,200 for training and 597 for testing (extra `demo`).

    The split is stratified and fixed, so that runs on different machines can be compared.
    """
    bunch = require("sklearn.datasets", extra="lab").load_digits()
    labels = bunch.target.astype(np.int64)
    whole = Part((bunch.data / 16.0).astype(np.float32), labels)
    train, test = stratified_split(labels, fraction=597 / 1797, seed=0)
    return Dataset("digits", whole.take(train), whole.take(test), tuple("0123456789"))
