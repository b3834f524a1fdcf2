"""The training part of a run as people see it: pictures, texts and rows rather than what its net reads."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.data.dataset import Column, Part
from reweigh.lab.run.material import gather, load
from reweigh.lab.spec import Run


class Original(NamedTuple):
    """The examples that a run trains on, in its order, with their labels before any noise; of a table, its columns."""

    part: Part
    columns: tuple[Column, ...] | None


def original(run: Run) -> Original:
    """Files at their full size, images with their own channels, texts as texts, features as they are."""
    dataset = load(replace(run, image_size=None, text_vectors="hashed"))
    part = dataset.train
    if run.imbalance is not None or run.validation > 0 or run.fold is not None:  # it takes only some of them
        part = part.take(cast("NDArray[np.int64]", gather(run).rows))
    return Original(part, dataset.columns)
