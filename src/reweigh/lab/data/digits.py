"""scikit-learn's 8 x 8 digits: 1,797 examples without a download, for tests and examples."""

from __future__ import annotations

import numpy as np

from reweigh.errors import require
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.lab.data.split import stratified_split


def load() -> Dataset:
    """Return the digits as 64 features in [0, 1], 1,200 for training and 597 for testing.

    The split is stratified and fixed, so that runs on different machines are comparable.
    """
    bunch = require("sklearn.datasets", extra="lab").load_digits()
    labels = bunch.target.astype(np.int64)
    examples = Part((bunch.data / 16.0).astype(np.float32), labels)
    train, test = stratified_split(labels, fraction=597 / 1797, seed=0)
    return Dataset("digits", examples.take(train), examples.take(test), tuple("0123456789"))


def as_images(part: Part) -> Part:
    """Return digits as images of 8 x 8, black on white, for people."""
    pixels = 255 - 255 * np.asarray(part.inputs, dtype=np.float32).reshape(-1, 8, 8, 1)
    return Part(pixels.round().astype(np.uint8), part.labels)
