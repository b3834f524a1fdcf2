"""From the words of a `Run` to what is trained on: parts, labels, noise, normalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reweigh import imbalance
from reweigh.batches import Normalisation, channel_statistics, feature_statistics
from reweigh.data import registry
from reweigh.data.dataset import Dataset, Part
from reweigh.data.split import validation_split
from reweigh.errors import DataError
from reweigh.noise import Corruption, corrupt
from reweigh.noise.corruption import measure
from reweigh.spec import Expression, Run, parse


@dataclass(frozen=True)
class Material:
    """What a run trains and tests on.

    Attributes:
        dataset: as loaded, texts as vectors and images as its net reads them.
        train: the training part with its given labels.
        clean: its true labels, or None where no noise was added and they are all there is.
        corruption: the noise, measured over the whole training part before any validation split.
        validation: the held-out part, with clean or given labels as the run says, or None.
        normalisation: measured on `train`.
        data_hash: of the data set as it lies on disk.
    """

    dataset: Dataset
    train: Part
    clean: NDArray[np.int64] | None
    corruption: Corruption | None
    validation: Part | None
    normalisation: Normalisation | None
    data_hash: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example as a net reads it: (C, H, W), or (F,); empty for files, which are cropped later."""
        shape = self.train.shape or ()
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape


def gather(run: Run) -> Material:
    """Load, make unbalanced, corrupt, split: in that order, each from its own stream of the seed."""
    dataset = load(run)
    data_hash = dataset.hash
    if run.data_hash is not None and not data_hash.startswith(run.data_hash):
        raise DataError(f"{run.data}: the data's hash is {data_hash[:12]}..., the run asks for {run.data_hash}")
    dataset = readable(dataset, run)
    part = dataset.train
    if run.imbalance is not None:
        part = part.take(unbalance(parse(run.imbalance), part.labels, run.seed, dataset.num_classes).indices)
    clean, corruption = part.labels, None
    if run.noise is not None:
        corruption = add_noise(parse(run.noise), run, part, dataset)
        part = replace(part, labels=corruption.labels)
    validation = None
    if run.validation > 0:
        kept, held = validation_split(part.labels, run.validation, run.seed)
        validation = part.take(held)
        if run.validation_labels == "clean":
            validation = replace(validation, labels=clean[held])
        part, clean = part.take(kept), clean[kept]
    truth = clean if corruption is not None else None
    return Material(dataset, part, truth, corruption, validation, normalisation(run, part), data_hash)


def load(run: Run) -> Dataset:
    """The data set a run names, as it lies on disk."""
    if run.data == "imdb" and run.text_vectors == "pv-dbow":
        from reweigh.data import vectors

        return vectors.load(registry.folder_of("imdb", run.data_root), workers=max(1, run.workers))
    size = None if run.image_size is None else (run.image_size, run.image_size)
    return registry.load(
        run.data, run.data_root, label=run.label_column, text=run.text_column, test=run.test_data, size=size
    )


def readable(dataset: Dataset, run: Run) -> Dataset:
    """The data set as the run's net can read it: texts as hashed vectors, grey images as RGB, flat for an MLP."""
    if dataset.kind == "text":
        from reweigh.data.hashing import hashed

        return _with_inputs(dataset, lambda part: hashed(cast("tuple[str, ...]", part.inputs)))
    flat = run.net == "linear" or run.net.startswith("mlp")
    if dataset.kind == "images":
        if flat:
            return _with_inputs(dataset, lambda part: _array(part).reshape(len(part), -1).astype(np.float32) / 255)
        if (dataset.train.shape or (0,))[-1] == 1:
            return _with_inputs(dataset, lambda part: _array(part).repeat(3, axis=-1))
    if dataset.kind == "files" and flat:
        raise ValueError(f"net {run.net!r} reads feature vectors; give image_size, or a net for images")
    return dataset


def unbalance(expression: Expression, labels: NDArray[np.int64], seed: int, num_classes: int) -> imbalance.Subset:
    """The subset that an expression such as ratio(10, minority=0) or long_tail(100) keeps."""
    kinds = {"ratio": ("ratio", "minority"), "long_tail": ("factor",), "step": ("factor", "fraction")}
    if expression.name not in kinds:
        raise ValueError(f"imbalance is {expression}; expected one of {', '.join(kinds)}")
    arguments: dict[str, Any] = dict(expression.bind(kinds[expression.name]).kwargs)
    try:
        subset: imbalance.Subset = getattr(imbalance, expression.name)(
            labels, seed=seed, num_classes=num_classes, **arguments
        )
    except TypeError as error:
        raise ValueError(f"imbalance is {expression}: {error}") from error
    return subset


def add_noise(expression: Expression, run: Run, part: Part, dataset: Dataset) -> Corruption:
    """The corruption that an expression such as symmetric, given('labels.npy') or cifar_n('worse') makes."""
    extra = {"transition": ("matrix",), "given": ("file", "key"), "cifar_n": ("key",)}.get(expression.name, ())
    arguments: dict[str, Any] = dict(expression.bind(extra).kwargs)
    seed = run.seed if run.noise_seed is None else run.noise_seed
    if expression.name == "cifar_n":
        from reweigh.data import cifar_n

        root = registry.folder_of(run.data, run.data_root)
        labels = cifar_n.load(root, cast(Any, run.data), arguments.get("key", "worse"), part.labels)
        return measure(labels, part.labels, dataset.num_classes, str(expression), 0.0, None)
    return corrupt(
        expression.name,
        part.labels,
        run.rate,
        seed,
        dataset.num_classes,
        dataset.groups,
        _features(part) if expression.name == "instance_dependent" else None,
        matrix=arguments.get("matrix"),
        file=arguments.get("file"),
        key=arguments.get("key"),
        include_true=run.include_true,
        count=run.noise_count,
    )


def normalisation(run: Run, part: Part) -> Normalisation | None:
    """Mean and standard deviation of the training inputs, or only the mean, or nothing."""
    if run.inputs == "none":
        return None
    if isinstance(part.inputs, np.ndarray) and part.inputs.ndim == 2:
        found = feature_statistics(part.inputs.astype(np.float32, copy=False))
    else:
        found = channel_statistics(cast(Any, part.inputs))
    return found.mean_only() if run.inputs == "mean" else found


def _array(part: Part) -> NDArray[Any]:
    return cast("NDArray[Any]", part.inputs)


def _features(part: Part) -> NDArray[np.float32]:
    if not isinstance(part.inputs, np.ndarray):
        raise ValueError("instance_dependent noise needs images or features in memory; give image_size")
    return part.inputs.reshape(len(part), -1).astype(np.float32)


def _with_inputs(dataset: Dataset, change: Callable[[Part], NDArray[Any]]) -> Dataset:
    train, test = (replace(part, inputs=change(part)) for part in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)
