"""A run to find suspects with, for data of which nothing is known but what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reweigh.lab.data.dataset import Dataset
from reweigh.lab.nets.mlp import flattens
from reweigh.lab.run.material import load
from reweigh.lab.spec import Run
from reweigh.recommendation import MANY, recommend

EPOCHS = 40
FEWEST, MOST = 800, 20_000  # iterations
EVALUATIONS = 10
SIDE = 64  # of images from files
UNBALANCED = 3  # the largest class has so many times the smallest's examples

_DATA = ("data_root", "data_hash", "label_column", "text_column", "test_data", "text_vectors", "image_size")


def default_run(data: str, fields: Mapping[str, Any] | None = None) -> Run:
    """A robust run on `data` that records what suspects are found by; `fields` of `Run` take precedence.

    A multilayer perceptron for texts and tables, a ResNet-20 with augmentation for images (files at 64 x 64), the
    GCE(0.7), or from 50 classes on, which it learns slowly, the recommended DM; about 40 epochs, 10 evaluations. Where
    classes are unbalanced batches are balanced, or the rare ones are learned late and look like noise.
    """
    given = dict(fields or {})
    look = {name: given[name] for name in _DATA if name in given}
    dataset = load(Run(data=data, net="linear", weighting="CCE", **look))
    chosen = _for(dataset) | {"record_p": True, "record_margins": True} | given
    if flattens(str(chosen["net"])) and "augment" not in given:
        chosen["augment"] = "none"
    counts = np.bincount(dataset.train.labels)
    if "imbalance" in given or counts.max() >= UNBALANCED * counts[counts > 0].min():
        chosen.setdefault("sampler", "balanced")
    if not {"weighting", "loss", "method"} & given.keys():
        many = dataset.num_classes >= MANY
        chosen["weighting"] = repr(recommend(dataset.num_classes).weighting) if many else "GCE(0.7)"
    batch_size = int(chosen.setdefault("batch_size", 128))
    passes = EPOCHS * len(dataset.train) // batch_size
    iterations = int(chosen.setdefault("iterations", min(MOST, max(FEWEST, passes))))
    chosen.setdefault("evaluate_every", max(1, iterations // EVALUATIONS))
    return Run.from_mapping({"data": data, **chosen})


def _for(dataset: Dataset) -> dict[str, Any]:
    if dataset.kind in ("text", "features"):
        return {"net": "mlp-256", "lr": 0.03}
    images: dict[str, Any] = {"net": "resnet20", "lr": 0.1, "augment": "pad-crop-flip"}
    return images | ({"image_size": SIDE} if dataset.kind == "files" else {})
