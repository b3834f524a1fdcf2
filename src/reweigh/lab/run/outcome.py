"""The output of a run: its header, the best net, its result and its model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reweigh.lab.nets.registry import needs_large_stem
from reweigh.lab.own import code_of
from reweigh.lab.record import Header, Record
from reweigh.lab.run.material import Material
from reweigh.lab.run.parts import input_shape
from reweigh.lab.spec import Run
from reweigh.lab.train import checkpoint
from reweigh.lab.train.evaluate import ExampleStats
from reweigh.lab.train.model import Card, save_model
from reweigh.metrics import calibration_error, class_scores, collapsed_classes, confusion_matrix, reliability
from reweigh.noise import label_hash

MOST_CLASSES = 200  # with more, a result has no confusion matrix


def finish(run: Run, material: Material, net: nn.Module, best: Best, result: dict[str, Any], record: Record) -> None:
    """Write the model and the result, and remove the checkpoints."""
    card = Card(
        net=run.net,
        class_names=material.dataset.class_names,
        kind=material.dataset.kind,
        shape=input_shape(material),
        normalisation=material.normalisation,
        columns=material.dataset.columns,
        dropout=run.dropout,
        large_stem=needs_large_stem(input_shape(material)),
        run=run,
        code=code_of(run) if ":" in run.net else None,
        temperature=result.get("temperature", 1.0),
        metrics={key: result[key] for key in ("final", "best", "holdout")},
    )
    save_model(record.folder / "model", net, card, best=best.net)
    record.finish(result)
    checkpoint.remove(record.folder / "checkpoint.pt")


@dataclass
class Best:
    """The best net so far, by validation accuracy if there is a validation part, else by test accuracy.

    A net that diverged is never the best, whatever its accuracy.
    """

    score: float = -math.inf
    step: int = -1
    net: dict[str, Tensor] | None = None

    def consider(self, row: dict[str, Any], net: dict[str, Tensor]) -> None:
        """Keep a copy of the net's state dict if its row is better."""
        score = row.get("validation_accuracy", row.get("test_accuracy"))
        if score is not None and score > self.score and not has_diverged(row):
            self.score, self.step = score, row["step"]
            self.net = {name: tensor.detach().cpu().clone() for name, tensor in net.items()}


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with None for numbers that are not finite, which JSON cannot represent."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}


def has_diverged(row: dict[str, Any]) -> bool:
    """Return whether the loss or the outputs were not finite, given a row that `finite` returned.

    >>> has_diverged({"step": 10, "loss": None, "p_mean": 0.5}), has_diverged({"step": 10, "loss": 2.0, "p_mean": 0.5})
    (True, False)
    """
    return row.get("loss") is None or row.get("p_mean") is None


def header_of(run: Run, material: Material) -> Header:
    """Return the header of a run's record."""
    corruption = material.corruption
    details: dict[str, Any] = {
        "name": material.dataset.name,
        "holdout": material.dataset.holdout,
        "class_names": list(material.dataset.class_names),
        "class_counts": np.bincount(material.train.labels, minlength=material.dataset.num_classes).tolist(),
    }
    if corruption is not None:
        details["noise"] = {
            "kind": corruption.kind,
            "rate": corruption.rate,
            "measured": corruption.measured,
            "hash": corruption.hash,
            "counts": corruption.counts.tolist() if corruption.num_classes <= 100 else None,
        }
    if code := code_of(run):
        details["code"] = code
    return Header(run, material.data_hash, label_hash(material.train.labels), len(material.train), details)


def result_of(
    run: Run,
    material: Material,
    rows: list[dict[str, Any]],
    best: Best,
    test: ExampleStats | None,
    scaled: Tensor | None = None,
) -> dict[str, Any]:
    """Return the final and the best evaluation; the best test accuracy, as papers print it, is optimistic.

    `diverged` is the first evaluation at which the loss or the outputs were not finite, or None; `best` is from before
    it, or None. `collapsed_classes` names the classes that the net no longer predicts at the end. With a test part
    there are precision, recall (per_class_accuracy), F1 and count of every class, and the confusion matrix: one row for
    every given label, one column for every predicted class. `scaled` is the confidence of the test predictions after
    temperature scaling.
    """
    final = {key: value for key, value in rows[-1].items() if not isinstance(value, list)}
    before = takewhile(lambda row: not has_diverged(row), rows)
    scored = [row for row in before if row.get("test_accuracy") is not None]
    top = max(scored, key=lambda row: row["test_accuracy"], default=None)
    result: dict[str, Any] = {
        "final": final,
        "best": None if top is None else {"step": top["step"], "test_accuracy": top["test_accuracy"]},
        "holdout": material.dataset.holdout,
        "diverged": next((row["step"] for row in rows if has_diverged(row)), None),
        "collapsed_classes": [
            material.dataset.class_names[c] for c in collapsed_classes(rows[-1].get("p_by_class", []))
        ],
        "kept": {
            "step": best.step,
            "by": "validation" if material.validation is not None else material.dataset.holdout,
        },
    }
    if test is not None:
        target = torch.from_numpy(material.dataset.test.labels.copy())
        right = test.predicted == target
        if scaled is not None:
            final["test_ece_scaled"] = calibration_error(scaled, right)
        result["reliability"] = reliability(test.confidence if scaled is None else scaled, right)
        confusion = confusion_matrix(test.predicted, target, material.dataset.num_classes)
        scores = class_scores(confusion)
        final["test_balanced_accuracy"] = scores.mean("recall")
        final["test_macro_f1"] = scores.mean("f1")
        result["per_class_accuracy"] = scores.recall
        result["per_class_precision"], result["per_class_f1"] = scores.precision, scores.f1
        result["per_class_count"] = scores.count
        if len(confusion) <= MOST_CLASSES:
            result["confusion"] = confusion.tolist()
    return result
