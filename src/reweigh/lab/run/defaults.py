"""Choose what a run on data leaves open: net, loss, learning rate, image size, length and evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from reweigh.lab.data.dataset import NOISY_HOLDOUT, Dataset
from reweigh.lab.data.registry import NAMES
from reweigh.lab.nets.mlp import flattens
from reweigh.lab.nets.registry import IMAGE_NETS
from reweigh.lab.run.material import gather, load
from reweigh.lab.spec import DATA_FIELDS, Run
from reweigh.recommendation import MANY_CLASSES, recommend

EPOCHS = 40
MIN_ITERATIONS, MAX_ITERATIONS = 250, 20_000
FEW = 2000  # examples below which the batches of the default loss have 32
EVALUATIONS = 10
IMAGE_SIZE = 64  # of the files of a folder
IN_MEMORY = 2**32  # bytes of images
UNBALANCED = 3  # ratio of the largest to the smallest class from which batches are balanced

SHOWN = ("net", "weighting", "loss", "method", "image_size", "augment", "sampler", "batch_size", "lr", "iterations")


class Choice(NamedTuple):
    """A run, the fields that were chosen for it, and the number of its training examples."""

    run: Run
    chosen: tuple[str, ...]
    examples: int

    def describe(self) -> str:
        """Describe what was chosen, in a line; empty if nothing was.

        >>> run = Run(data="digits", net="mlp-4", weighting="CCE", iterations=90)
        >>> Choice(run, ("net", "iterations"), examples=1200).describe()
        'chosen: net mlp-4, iterations 90 (9.6 epochs)'
        """
        parts = [f"{name.replace('_', ' ')} {getattr(self.run, name)}" for name in SHOWN if name in self.chosen]
        if "iterations" in self.chosen:
            parts[-1] += f" ({self.run.iterations * self.run.batch_size / self.examples:.3g} epochs)"
        return f"chosen: {', '.join(parts)}" if parts else ""


def default_run(data: str, fields: Mapping[str, Any] | None = None) -> Run:
    """Return the run of `choose` that finds suspects: it trains on all labels without a test part of their own."""
    return choose(data, fields, holds_out=False).run


def choose(data: str, fields: Mapping[str, Any] | None = None, *, holds_out: bool = True) -> Choice:
    """Return a run on `data` that resists label noise and records what finding suspects needs.

    Texts and tables get a multilayer perceptron, images a ResNet-20 with augmentation (the files of a folder at 64 x
    64, if they fit in memory and the net is not one for large images). The loss is GCE(0.7), or the recommended DM from
    50 classes on, where GCE learns slowly; with it batches are balanced if the classes are not: otherwise rare classes
    are learned late and look noisy. Below 2,000 examples its batches have 32. There are about 40 epochs and 10
    evaluations.

    Args:
        data: as in `Run`.
        fields: fields of `Run` that replace these defaults, and optionally `epochs` instead of `iterations`.
        holds_out: whether data without a test part lose a fifth of their examples to a hold-out.
    """
    given = dict(fields or {})
    epochs = given.pop("epochs", None)
    if epochs is not None and "iterations" in given:
        raise ValueError("epochs and iterations are both given; omit one of them")
    if epochs is not None and not epochs > 0:
        raise ValueError(f"epochs is {epochs:g}; expected a number above 0")
    data_fields = {name: given[name] for name in DATA_FIELDS if name in given}
    dataset = load(Run(data=data, net="linear", weighting="CCE", **data_fields), check=False)
    if not holds_out and dataset.holdout == NOISY_HOLDOUT and "holdout" not in given:
        data_fields["holdout"] = given["holdout"] = 0.0
        dataset = load(Run(data=data, net="linear", weighting="CCE", **data_fields), check=False)
    chosen = _for_inputs(dataset, data, given) | {"record_p": True, "record_margins": True, **given}
    if not {"weighting", "loss", "method"} & given.keys():
        chosen |= _objective(dataset.num_classes)
        if len(dataset.train) < FEW and dataset.num_classes < MANY_CLASSES:  # DM needs large batches
            chosen.setdefault("batch_size", 32)
        counts = np.bincount(dataset.train.labels)
        if "imbalance" in given or counts.max() >= UNBALANCED * counts[counts > 0].min():
            chosen.setdefault("sampler", "balanced")
    if str(chosen.get("optimiser")).startswith("adam") and "lr" not in given:
        chosen["lr"] = 0.001
    chosen.setdefault("batch_size", 128)
    settings = {"data": data, **chosen}
    examples = len(dataset.train)
    if given.keys() & {"imbalance", "validation", "fold"}:
        examples = len(gather(Run.from_mapping(settings)).train)
    if "iterations" not in settings:
        per_epoch = examples / int(settings["batch_size"])
        usual = min(MAX_ITERATIONS, max(MIN_ITERATIONS, int(EPOCHS * per_epoch)))
        settings["iterations"] = usual if epochs is None else max(1, round(epochs * per_epoch))
    settings.setdefault("evaluate_every", max(1, int(settings["iterations"]) // EVALUATIONS))
    run = Run.from_mapping(settings)
    return Choice(run, tuple(name for name in run.to_mapping() if name not in {"data", *given}), examples)


def _for_inputs(dataset: Dataset, data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return net, learning rate, augmentation and image size for the inputs of a data set."""
    if dataset.kind in ("text", "features"):
        return {"net": "mlp-256", "lr": 0.03}
    net = str(given.get("net", "resnet20"))
    chosen: dict[str, Any] = {"net": net, "lr": 0.1}
    if not flattens(net):
        chosen["augment"] = "pad-crop-flip"
    is_for_large = net in IMAGE_NETS and IMAGE_NETS[net].images == "large"
    fits = len(dataset.train) * 3 * IMAGE_SIZE**2 < IN_MEMORY
    if dataset.kind == "files" and fits and not (is_for_large or (data in NAMES and "net" in given)):
        chosen["image_size"] = IMAGE_SIZE
    return chosen


def _objective(num_classes: int) -> dict[str, str]:
    """Return the loss or method for labels of unknown quality."""
    if num_classes >= MANY_CLASSES:
        return {"weighting": repr(recommend(num_classes).weighting)}
    return {"weighting": "GCE(0.7)"}
