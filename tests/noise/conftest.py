"""Labels to corrupt: small balanced ones, and CIFAR-100's real ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest


class Real(NamedTuple):
    labels: np.ndarray
    groups: np.ndarray


@pytest.fixture(scope="session")
def cifar100() -> Real:
    """The 50,000 real training labels of CIFAR-100 and the superclass of every class."""
    if not os.environ.get("REWEIGH_DATA"):
        pytest.skip("REWEIGH_DATA is not set: no real labels to corrupt")
    path = Path(os.environ["REWEIGH_DATA"]) / "cifar100_labels.npz"
    if not path.is_file():
        pytest.skip(f"{path} is missing: no real labels to corrupt")
    with np.load(path) as arrays:
        labels, coarse = arrays["y_train_fine"].astype(np.int64), arrays["y_train_coarse"].astype(np.int64)
    groups = np.zeros(100, dtype=np.int64)
    groups[labels] = coarse
    return Real(labels, groups)
