"""Choose what a run on data leaves open: net, loss, learning rate, image size, length and evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from reweigh.lab.data.dataset import NOISY_HOLDOUT, Dataset
from reweigh.lab.data.registry import NAMES
from reweigh.lab.features import is_installed, with_features
from reweigh.lab.nets.mlp import flattens
from reweigh.lab.nets.registry import IMAGE_NETS
from reweigh.lab.run.material import FRAMES, gather, load
from reweigh.lab.spec import DATA_FIELDS, Run, parse

EPOCHS = 40
MIN_ITERATIONS, MAX_ITERATIONS = 250, 20_000  # the first not with Auto, whose batches shrink with the data
BATCH_SIZES = 16, 128  # with Auto; the smallest data sets get the first
BATCHES = 10  # in an epoch, at least, if the batch size allows
# learning rates of a multilayer perceptron with Auto, for batches of 128
MAX_RATE, RATE_TIMES_WIDTH, TEXT_RATE = 0.03, 4.0, 0.3
EVALUATIONS = 10
PRETRAINED, FEW_PICTURES = "efficientnet-lite0", 20_000
"""The features that are chosen for a folder of up to so many pictures."""
IMAGE_SIZE = 64  # of the files of a folder
IN_MEMORY = 2**32  # bytes of images
UNBALANCED = 3  # ratio of the largest to the smallest class from which batches are balanced

SHOWN = (
    *("text_column", "features", "net", "weighting", "loss", "method", "image_size", "augment", "inputs"),
    *("sampler", "batch_size", "lr", "iterations"),
)


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

    A table whose only column of use is a text becomes a data set of texts. Texts and tables get a multilayer
    perceptron, images a ResNet-20 with augmentation (the files of a folder at 64 x 64, if they fit in memory and the
    net is not one for large images). The method is `Auto`, with balanced batches if the classes are not balanced:
    otherwise rare classes are learned late and look noisy. With `Auto` batches and learning rate shrink with the data,
    and the rate also with wide inputs, so that nothing is memorised before opinions have settled. There are about 40
    epochs and 10 evaluations.

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
    if dataset.columns is not None and [column.kind for column in dataset.columns] == ["text"]:
        given = {name: value for name, value in given.items() if name not in ("only_columns", "drop_columns")}
        given["text_column"] = dataset.columns[0].name
        choice = choose(data, given | ({} if epochs is None else {"epochs": epochs}), holds_out=holds_out)
        return choice._replace(chosen=(*choice.chosen, "text_column"))
    if "features" not in given and (features := _pretrained(dataset, data, given)) is not None:
        given["features"] = features
        choice = choose(data, given | ({} if epochs is None else {"epochs": epochs}), holds_out=holds_out)
        return choice._replace(chosen=(*choice.chosen, "features"))
    if given.get("features") is not None:
        dataset = with_features(dataset, str(given["features"]), root=given.get("data_root"))
    chosen = _for_inputs(dataset, data, given) | {"record_p": True, "record_margins": True, **given}
    if not {"weighting", "loss", "method"} & given.keys():
        chosen["method"] = "Auto"
        counts = np.bincount(dataset.train.labels)
        if "imbalance" in given or counts.max() >= UNBALANCED * counts[counts > 0].min():
            chosen.setdefault("sampler", "balanced")
    if chosen.get("method") is not None and parse(str(chosen["method"])).name == "Auto":
        chosen.setdefault("batch_size", _batch_size(len(dataset.train)))
        chosen |= _rates(dataset, int(chosen["batch_size"])) | given
    if str(chosen.get("optimiser")).startswith("adam") and "lr" not in given:
        chosen["lr"] = 0.001
    chosen.setdefault("batch_size", 128)
    settings = {"data": data, **chosen}
    examples = len(dataset.train)
    if given.keys() & {"imbalance", "validation", "fold"}:
        examples = len(gather(Run.from_mapping(settings)).train)
    if "iterations" not in settings:
        per_epoch = examples / int(settings["batch_size"])
        usual = min(MAX_ITERATIONS, max(1, int(EPOCHS * per_epoch)))
        if str(settings.get("method", "")).partition("(")[0] != "Auto":
            usual = max(usual, MIN_ITERATIONS)
        settings["iterations"] = usual if epochs is None else max(1, round(epochs * per_epoch))
    settings.setdefault("evaluate_every", max(1, int(settings["iterations"]) // EVALUATIONS))
    run = Run.from_mapping(settings)
    return Choice(run, tuple(name for name in run.to_mapping() if name not in {"data", *given}), examples)


def _pretrained(dataset: Dataset, data: str, given: Mapping[str, Any]) -> str | None:
    """Return the features for a user's own folder of few pictures, if what computes them is installed."""
    own_choice = given.keys() & {"net", "init_file", "image_size", "augment", "inputs"}
    if dataset.kind != "files" or data in NAMES or own_choice or str(given.get("noise", "")) in FRAMES:
        return None
    return PRETRAINED if len(dataset.train) <= FEW_PICTURES and is_installed(PRETRAINED) else None


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


def _batch_size(examples: int) -> int:
    """Return a power of two.

    >>> [_batch_size(n) for n in (100, 400, 1200, 50_000)]
    [16, 32, 64, 128]
    """
    low, high = BATCH_SIZES
    largest: int = 2 ** int(math.log2(max(1.0, examples / BATCHES)))
    return min(high, max(low, largest))


def _rates(dataset: Dataset, batch_size: int) -> dict[str, Any]:
    """Return the learning rate for `Auto`, and the normalisation that goes with it; nothing for images."""
    share = batch_size / BATCH_SIZES[1]
    if dataset.kind == "text":  # rows of length 1: standardised, rare words would be memorised at once
        return {"inputs": "none", "lr": TEXT_RATE * share}
    if dataset.kind == "features":
        width = math.prod(dataset.train.shape or (1,))
        return {"lr": float(f"{min(MAX_RATE, RATE_TIMES_WIDTH / width) * share:.2g}")}
    return {}
