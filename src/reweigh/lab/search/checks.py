"""Checks on the data before the first trial: every loss and method can be built, and a trusted set is separate."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from reweigh.errors import DataError
from reweigh.lab.data.dataset import Dataset, Part
from reweigh.lab.data.source.images import Files
from reweigh.lab.run.material import Material, gather
from reweigh.lab.run.parts import net_of, objective_of, parts_of
from reweigh.lab.search.plan import Plan, invalid_run
from reweigh.lab.spec import Run

NOT_DATA = ("loss", "method", "lr", "schedule", "momentum", "weight_decay", "batch_size")
"""Fields that do not change the data a run is trained on."""


def check_buildable(plan: Plan, where: Mapping[str, Any]) -> None:
    """Raise ValueError if a loss or method of the plan cannot be built on the data; runs with equal data share them.

    Args:
        plan: the plan of a search.
        where: fields of `Run` that do not change its result, such as data_root.
    """
    loaded: tuple[dict[str, Any], Material] | None = None
    for run in _distinct_runs(plan, where):
        fields = {name: value for name, value in run.to_mapping().items() if name not in NOT_DATA}
        if loaded is None or loaded[0] != fields:
            loaded = fields, gather(run)
        material = loaded[1]
        try:
            _build(run, material)
        except (TypeError, ValueError) as error:
            raise invalid_run(plan, error) from error


def _distinct_runs(plan: Plan, where: Mapping[str, Any]) -> Iterator[Run]:
    """Yield the runs at the corners of the space that can fail differently; weightings need no data."""
    seen = set()
    for corner in plan.space.corners():
        run = plan.run_of(corner, {**where, "device": "cpu"})
        key = run.loss, run.method, run.net, run.batch_size, run.sampler
        if run.weighting is None and key not in seen:
            seen.add(key)
            yield run


def _build(run: Run, material: Material) -> None:
    device = torch.device("cpu")
    parts = parts_of(run, material, device)
    objective_of(run, material, parts.train, parts.trusted, net_of(run, material, device))


def check_trusted(run: Run, what: str) -> None:
    """Raise DataError if the test part of a run, which is the trusted set, shares examples with its training part.

    Args:
        run: one of the trials.
        what: the name of the trusted set.
    """
    from reweigh.lab.run.material import load

    dataset = load(run)
    if not len(dataset.test):
        raise DataError(f"{what}: is empty")
    if dataset.holdout != "test":
        raise DataError(
            f"{what}: {run.data} has no test set, and the labels of its hold-out are unverified. "
            "Pass a file of trusted examples, or omit the trusted set"
        )
    if pairs := overlap(dataset):
        train, held = pairs[0]
        raise DataError(
            f"{what}: {len(pairs)} of its {len(dataset.test)} examples are also training examples "
            f"(number {held + 1} is training example {train + 1}); remove them from one of the two"
        )


def overlap(dataset: Dataset) -> list[tuple[int, int]]:
    """Return (index in train, index in test) of every test example that is also a training example.

    >>> train = Part(np.array([[0.0], [1.0]], np.float32), np.array([0, 1]))
    >>> overlap(Dataset("toy", train, train.take([1]), ("a", "b")))
    [(1, 0)]
    """
    (train_key, train_digest), (test_key, test_digest) = _keys(dataset.train), _keys(dataset.test)
    by_key: dict[object, list[int]] = defaultdict(list)
    for i in range(len(dataset.train)):
        by_key[train_key(i)].append(i)
    digests: dict[object, dict[bytes, int]] = {}
    pairs = []
    for j in range(len(dataset.test)):
        key = test_key(j)
        if key in by_key and key not in digests:
            digests[key] = {train_digest(i): i for i in reversed(by_key[key])}
        twin = digests.get(key, {}).get(test_digest(j)) if key in by_key else None
        if twin is not None:
            pairs.append((twin, j))
    return pairs


def _keys(part: Part) -> tuple[Callable[[int], object], Callable[[int], bytes]]:
    """Return a cheap key of an example and its digest; only files of equal size are read."""
    inputs = part.inputs
    if isinstance(inputs, np.ndarray):
        array = np.ascontiguousarray(inputs)
        return lambda i: 0, lambda i: hashlib.sha256(array[i].tobytes()).digest()
    if isinstance(inputs, Files):
        files = inputs
        return lambda i: files.path(i).stat().st_size, lambda i: hashlib.sha256(files.path(i).read_bytes()).digest()
    texts = inputs
    return lambda i: len(texts[i]), lambda i: hashlib.sha256(texts[i].encode("utf-8", "surrogatepass")).digest()
