"""Load the data of a `Run`: parts, labels, noise, normalisation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reweigh import imbalance
from reweigh.errors import DataError
from reweigh.lab.batches import Normalisation, channel_statistics, feature_statistics
from reweigh.lab.data import registry
from reweigh.lab.data.dataset import NOISY_HOLDOUT, Dataset, Part
from reweigh.lab.data.split import HOLDOUT, validation_split
from reweigh.lab.features import digest_of, with_features
from reweigh.lab.nets.mlp import flattens
from reweigh.lab.record import read_header
from reweigh.lab.spec import Expression, Run, parse
from reweigh.lab.spec.checks import height_and_width
from reweigh.noise import Corruption, corrupt, label_hash
from reweigh.streams import numpy_generator

FRAMES = ("frames", "background", "stranger", "identity")
"""Kinds of noise in the frames of videos, which may also change images: see `reweigh.lab.retrieval.corrupt`."""


@dataclass(frozen=True)
class Material:
    """The data on which a run trains and tests.

    Attributes:
        dataset: the data set, with texts as vectors and images as the net reads them.
        train: the training part with its given labels.
        clean: its true labels, or None if unknown.
        corruption: the noise, measured over the training part before any validation split.
        validation: the held-out part, with true or given labels, or None.
        normalisation: measured on `train`.
        data_hash: of the data set on disk.
        rows: (N,), the rows of the data set's training part that are in `train`; None without a data set.
    """

    dataset: Dataset
    train: Part
    clean: NDArray[np.int64] | None
    corruption: Corruption | None
    validation: Part | None
    normalisation: Normalisation | None
    data_hash: str
    rows: NDArray[np.int64] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input of the net: (C, H, W) or (F,); empty for files, which are cropped later."""
        shape = self.train.shape or ()
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape


def gather(run: Run) -> Material:
    """Load, unbalance, corrupt and split the data, in this order, each from its own stream of the seed."""
    dataset = load(run)
    data_hash = dataset.hash
    if run.features is not None:
        dataset = with_features(dataset, run.features, root=run.data_root)
        data_hash = hashlib.sha256(f"{data_hash} {digest_of(run.features, run.data_root)}".encode()).hexdigest()
    if run.data_hash is not None and not data_hash.startswith(run.data_hash):
        raise DataError(f"{run.data}: the data's hash is {data_hash[:12]}..., but the run requires {run.data_hash}")
    loaded, dataset = dataset, readable(dataset, run)
    part, rows = dataset.train, np.arange(len(dataset.train))
    if run.imbalance is not None:
        rows = unbalance(parse(run.imbalance), part.labels, run.seed, dataset.num_classes).indices
        part = part.take(rows)
    clean, corruption = part.labels, None
    if run.noise is not None:
        if parse(run.noise).name in FRAMES:
            part, corruption = add_frame_noise(parse(run.noise), run, part, dataset)
            clean = corruption.clean
        else:
            # noise depends on the data as loaded, not on the net's inputs; only texts are always used as vectors
            corruption = add_noise(parse(run.noise), run, dataset if loaded.kind == "text" else loaded, rows)
            part = replace(part, labels=corruption.labels)
            if np.isnan(corruption.measured):  # given(..., truth=False): the true labels are unknown
                clean, corruption = part.labels, None
    validation = None
    if run.validation > 0 or run.fold is not None:
        if run.fold is None:
            kept, held = validation_split(part.labels, run.validation, run.seed)
        else:
            kept, held = fold_split(part.labels, run.fold, run.seed)
        if not len(held):
            raise ValueError(
                f"validation is {run.validation:g}, which is less than one of {len(part)} examples; use a larger value"
            )
        validation = part.take(held)
        if run.fold is None and run.validation_labels == "clean":
            validation = replace(validation, labels=clean[held])
        part, clean, rows = part.take(kept), clean[kept], rows[kept]
    if run.threshold_set is not None:
        dataset, part = with_threshold_set(dataset, part, run.threshold_set, run.seed)
    truth = clean if corruption is not None else None
    return Material(dataset, part, truth, corruption, validation, normalisation(run, part), data_hash, rows)


def check_same_data(folder: Path, material: Material) -> None:
    """Raise DataError unless the run in `folder` was trained on the same data and labels."""
    header = read_header(folder)
    if header.data_hash != material.data_hash:
        raise DataError(
            f"{folder}: trained on data with the hash {header.data_hash[:12]}..., but {header.run.data} has "
            f"{material.data_hash[:12]}... now: it has changed since; remove that run or use another folder of runs, "
            "and train again"
        )
    if (header.label_hash, header.examples) != (label_hash(material.train.labels), len(material.train)):
        raise DataError(
            f"{folder}: trained on other labels than {header.run.noise or header.run.data} gives now; remove that run "
            "or use another folder of runs, and train again"
        )


def fold_split(labels: NDArray[np.int64], fold: str, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (kept, held out), both ascending, for a fold such as 2/5; folds are disjoint and stratified by class.

    >>> [fold_split(np.array([0, 0, 1, 1]), fold, seed=0)[1].tolist() for fold in ("1/2", "2/2")]
    [[1, 2], [0, 3]]
    """
    number, count = map(int, fold.split("/"))
    if count > len(labels):
        raise ValueError(f"fold is {fold}: there are only {len(labels)} training examples")
    rng, turn = numpy_generator(seed, "folds"), np.empty(len(labels), np.int64)
    shuffled = rng.permutation(len(labels))
    turn[shuffled[np.argsort(labels[shuffled], kind="stable")]] = np.arange(len(labels)) % count
    held = turn == number - 1
    return np.flatnonzero(~held), np.flatnonzero(held)


def threshold_rows(examples: int, num_classes: int, number: int, seed: int) -> NDArray[np.int64]:
    """Return the N / (C + 1) rows of a threshold set, ascending; sets 0 to C are disjoint.

    >>> threshold_rows(8, num_classes=3, number=0, seed=0), threshold_rows(8, num_classes=3, number=1, seed=0)
    (array([5, 6]), array([3, 7]))
    """
    size = examples // (num_classes + 1)
    if number > num_classes or size == 0:
        raise ValueError(
            f"threshold_set is {number}: {examples} examples of {num_classes} classes have "
            f"{f'sets 0 to {num_classes}' if size else 'none'}"
        )
    shuffled = numpy_generator(seed, "threshold").permutation(examples)
    return np.sort(shuffled[number * size : (number + 1) * size])


def with_threshold_set(dataset: Dataset, part: Part, number: int, seed: int) -> tuple[Dataset, Part]:
    """Add a class, and assign a threshold set to it, to measure how examples with a wrong label are fitted."""
    extra = dataset.num_classes
    labels = part.labels.copy()
    labels[threshold_rows(len(part), extra, number, seed)] = extra
    groups = None if dataset.groups is None else (*dataset.groups, max(dataset.groups) + 1)
    names = (*dataset.class_names, "(threshold sample)")
    return replace(dataset, class_names=names, groups=groups), replace(part, labels=labels)


def load(run: Run, check: bool = True) -> Dataset:
    """Load the data set of a run from disk; with `check`, decode every image of a folder once."""
    if run.data == "imdb" and run.text_vectors == "pv-dbow":
        from reweigh.lab.data import vectors

        return vectors.load(registry.folder_of("imdb", run.data_root), workers=max(1, run.workers))
    size = None if run.image_size is None else height_and_width(run.image_size)
    dataset = registry.load(
        run.data,
        run.data_root,
        label=run.label_column,
        text=run.text_column,
        only=None if run.only_columns is None else run.only_columns.split(","),
        drop=None if run.drop_columns is None else run.drop_columns.split(","),
        test=run.test_data,
        size=size,
        labels=run.labels,
        holdout=run.holdout,
        check=check,
    )
    if run.holdout != HOLDOUT and dataset.holdout != NOISY_HOLDOUT:
        raise ValueError(f"holdout is {run.holdout:g}, which has no effect: {run.data} has its own test part")
    return dataset


def readable(dataset: Dataset, run: Run) -> Dataset:
    """Convert the data set for the run's net: texts to hashed vectors, grey images to RGB, flat for an MLP."""
    if dataset.kind == "text":
        from reweigh.lab.data.vectors import hash_texts

        return _with_inputs(dataset, lambda part: hash_texts(cast("tuple[str, ...]", part.inputs)))
    flat = flattens(run.net)
    if dataset.kind == "images":
        if flat:
            width = math.prod(_array(dataset.train).shape[1:])  # not -1, which fails for an empty test part
            return _with_inputs(dataset, lambda part: _array(part).reshape(len(part), width).astype(np.float32) / 255)
        if (dataset.train.shape or (0,))[-1] == 1:
            return _with_inputs(dataset, lambda part: _array(part).repeat(3, axis=-1))
    if dataset.kind == "files" and flat:
        raise ValueError(f"net {run.net!r} reads feature vectors; set image_size, or use a net for images")
    return dataset


def unbalance(expression: Expression, labels: NDArray[np.int64], seed: int, num_classes: int) -> imbalance.Subset:
    """Return the subset of an expression such as ratio(10, minority=0), long_tail(100) or kept('kept.npy')."""
    kinds = {
        "ratio": ("ratio", "minority"),
        "long_tail": ("factor",),
        "step": ("factor", "fraction"),
        "kept": ("file", "hash"),
    }
    if expression.name not in kinds:
        raise ValueError(f"imbalance is {expression}; expected one of {', '.join(kinds)}")
    arguments: dict[str, Any] = dict(expression.bind(kinds[expression.name]).kwargs)
    if expression.name != "kept":  # the others are random
        arguments["seed"] = seed
    try:
        subset: imbalance.Subset = getattr(imbalance, expression.name)(labels, num_classes=num_classes, **arguments)
    except TypeError as error:
        raise ValueError(f"imbalance is {expression}: {error}") from error
    return subset


def add_noise(expression: Expression, run: Run, dataset: Dataset, rows: NDArray[np.int64]) -> Corruption:
    """Corrupt the labels of these rows by an expression such as symmetric, given('labels.npy') or cifar_n('worse')."""
    arguments, clean = noise_arguments(expression), dataset.train.labels[rows]
    seed = run.seed if run.noise_seed is None else run.noise_seed
    truth = arguments.get("truth", True)
    if not isinstance(truth, bool):
        raise ValueError(f"noise is {expression}: truth is {truth!r}; expected True or False")
    if expression.name == "cifar_n":
        from reweigh.lab.data import cifar_n

        root = registry.folder_of(run.data, run.data_root)
        labels = cifar_n.load(root, cast(Any, run.data), arguments.get("key", "worse"), dataset.train.labels)
        found = Corruption.from_labels(labels[rows], clean, dataset.num_classes, str(expression), 0.0, None)
        return replace(found, rate=found.measured)
    return corrupt(
        expression.name,
        clean,
        run.rate,
        seed,
        dataset.num_classes,
        dataset.groups,
        _features(dataset.train, rows) if expression.name == "instance_dependent" else None,
        matrix=arguments.get("matrix"),
        file=arguments.get("file"),
        key=arguments.get("key"),
        truth=truth,
        include_true=run.include_true,
        count=run.noise_count,
    )


def noise_arguments(expression: Expression) -> dict[str, Any]:
    """Return the arguments of a kind of noise by name."""
    names = {"transition": ("matrix",), "given": ("file", "key", "truth"), "cifar_n": ("key",)}
    return dict(expression.bind(names.get(expression.name, ())).kwargs)


def truth_known(noise: str | None) -> bool:
    """Return whether a run with that noise knows the true labels.

    >>> truth_known("symmetric"), truth_known(None), truth_known("given('corrected.npy', truth=False)")
    (True, False, False)
    """
    return noise is not None and noise_arguments(parse(noise)).get("truth", True) is not False


def add_frame_noise(expression: Expression, run: Run, part: Part, dataset: Dataset) -> tuple[Part, Corruption]:
    """Corrupt some frames; `clean` of the corruption is -1 for frames that show nobody."""
    from reweigh.lab.retrieval.corrupt import KINDS, corrupt_frames

    expression.bind(())
    if run.noise_count != "per_class":
        raise ValueError(f"noise_count is {run.noise_count!r}, which has no effect on {expression.name} noise")
    seed = run.seed if run.noise_seed is None else run.noise_seed
    rate = cast(float, run.rate)
    found = corrupt_frames(part, rate, seed, KINDS if expression.name == "frames" else (expression.name,))
    nobody = found.clean < 0
    if nobody.any() and run.validation > 0 and run.validation_labels == "clean":
        raise ValueError("validation_labels is 'clean', but backgrounds show nobody; expected 'noisy'")
    kind = f"{expression.name}(rate={rate:g})"
    corruption = Corruption.from_labels(found.part.labels, found.clean, dataset.num_classes, kind, rate, seed)
    return found.part, replace(corruption, measured=float(found.is_noisy.mean()))


def normalisation(run: Run, part: Part) -> Normalisation | None:
    """Return mean and standard deviation of the training inputs, only the mean, or None."""
    if run.inputs == "none":
        return None
    if isinstance(part.inputs, np.ndarray) and part.inputs.ndim == 2:
        found = feature_statistics(part.inputs.astype(np.float32, copy=False))
    else:
        found = channel_statistics(cast(Any, part.inputs))
    return found.mean_only() if run.inputs == "mean" else found


def _array(part: Part) -> NDArray[Any]:
    return cast("NDArray[Any]", part.inputs)


def _features(part: Part, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    if not isinstance(part.inputs, np.ndarray):
        raise ValueError("instance_dependent noise needs images or features in memory; set image_size")
    return part.inputs[rows].reshape(len(rows), -1).astype(np.float32)


def _with_inputs(dataset: Dataset, change: Callable[[Part], NDArray[Any]]) -> Dataset:
    train, test = (replace(part, inputs=change(part)) for part in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)
