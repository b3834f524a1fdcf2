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
from reweigh.lab.run.parts import method_of, net_of, parts_of
from reweigh.lab.search.plan import Plan, cannot_be
from reweigh.lab.spec import Run

BESIDE = ("loss", "method", "lr", "schedule", "momentum", "weight_decay", "batch_size")
"""Fields that make no difference to what a run trains on."""


def check_buildable(plan: Plan, where: Mapping[str, Any]) -> None:
    """Refuse a plan some of whose losses or methods cannot be built; the data are loaded once for runs that share them.

    Args:
        plan: of a search.
        where: fields of `Run` that say where or how fast, such as data_root.
    """
    loaded: tuple[dict[str, Any], Material] | None = None
    for run in _different(plan, where):
        read = {name: value for name, value in run.to_mapping().items() if name not in BESIDE}
        if loaded is None or loaded[0] != read:
            loaded = read, gather(run)
        material = loaded[1]
        try:
            _build(run, material)
        except (TypeError, ValueError) as error:
            raise cannot_be(plan, error) from error


def _different(plan: Plan, where: Mapping[str, Any]) -> Iterator[Run]:
    """The runs at the corners of the space that differ in what can be refused here; weightings need no data."""
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
    method_of(run, material, parts.train, parts.trusted, net_of(run, material, device))


def check_apart(run: Run, what: str) -> None:
    """Refuse a run whose test part, the trusted set, shares examples with its training part.

    Args:
        run: one of the trials.
        what: what the trusted set is called.
    """
    from reweigh.lab.run.material import load

    dataset = load(run)
    if not len(dataset.test):
        raise DataError(f"{what}: is empty")
    if dataset.holdout != "test":
        raise DataError(
            f"{what}: {run.data} has no test part of its own; what is held out has labels that nobody has checked. "
            "Give a file of trusted examples, or leave the trusted set out"
        )
    if pairs := overlap(dataset):
        train, held = pairs[0]
        raise DataError(
            f"{what}: {len(pairs)} of its {len(dataset.test)} examples are in the training part, too "
            f"(number {held + 1} is training example {train + 1}); take them out of one of the two"
        )


def overlap(dataset: Dataset) -> list[tuple[int, int]]:
    """(index in train, index in test) of every test example that is also trained on, whatever their labels.

    >>> train = Part(np.array([[0.0], [1.0]], np.float32), np.array([0, 1]))
    >>> overlap(Dataset("toy", train, train.take([1]), ("a", "b")))
    [(1, 0)]
    """
    (train_key, train_digest), (test_key, test_digest) = _keys(dataset.train), _keys(dataset.test)
    alike: dict[object, list[int]] = defaultdict(list)
    for i in range(len(dataset.train)):
        alike[train_key(i)].append(i)
    seen: dict[object, dict[bytes, int]] = {}
    found = []
    for j in range(len(dataset.test)):
        key = test_key(j)
        if key in alike and key not in seen:
            seen[key] = {train_digest(i): i for i in reversed(alike[key])}
        twin = seen.get(key, {}).get(test_digest(j)) if key in alike else None
        if twin is not None:
            found.append((twin, j))
    return found


def _keys(part: Part) -> tuple[Callable[[int], object], Callable[[int], bytes]]:
    """A cheap key of an example, and one that tells it from every other: a million files are not all read."""
    inputs = part.inputs
    if isinstance(inputs, np.ndarray):
        array = np.ascontiguousarray(inputs)
        return lambda i: 0, lambda i: hashlib.sha256(array[i].tobytes()).digest()
    if isinstance(inputs, Files):
        files = inputs
        return lambda i: files.path(i).stat().st_size, lambda i: hashlib.sha256(files.path(i).read_bytes()).digest()
    texts = inputs
    return lambda i: len(texts[i]), lambda i: hashlib.sha256(texts[i].encode("utf-8", "surrogatepass")).digest()
