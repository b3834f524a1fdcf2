"""Noise by name, for records and the command line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reweigh.noise.arguments import Count, Labels, Seed
from reweigh.noise.corruption import Corruption
from reweigh.noise.flips import asymmetric_cifar10, pair, symmetric
from reweigh.noise.given import given
from reweigh.noise.groups import block_cycle, sl_block_pair, superclass_cycle, superclass_pair
from reweigh.noise.instance import instance_dependent
from reweigh.noise.transition import transition

KINDS = (
    "symmetric",
    "pair",
    "asymmetric_cifar10",
    "superclass_pair",
    "sl_block_pair",
    "superclass_cycle",
    "block_cycle",
    "transition",
    "instance_dependent",
    "given",
)


def corrupt(
    kind: str,
    labels: npt.ArrayLike,
    rate: float | None = None,
    seed: Seed = 0,
    num_classes: int | None = None,
    groups: Sequence[int] | Labels | None = None,
    features: npt.ArrayLike | None = None,
    *,
    matrix: npt.ArrayLike | None = None,
    file: str | os.PathLike[str] | None = None,
    key: str | None = None,
    truth: bool = True,
    include_true: bool = False,
    count: Count = "per_class",
) -> Corruption:
    """The Corruption of that kind; what the kind does not use is not looked at, what it needs is asked for.

    Args:
        kind: one of `KINDS`.
        labels: N class ids, clean.
        rate: from 0 to 1.
        seed: of the draw, or the caller's generator.
        num_classes: C; by default the largest label + 1.
        groups: the group of every class, for superclass_pair and superclass_cycle.
        features: one row per example, for instance_dependent.
        matrix: P[true, given], for transition, in place of a rate.
        file: for given, in place of a rate; `labels` is then the truth.
        key: the array or column of `file`.
        truth: for given; False where `labels` are not the truth either, as when the file corrects them.
        include_true: for symmetric.
        count: "per_class", "overall" or "independent".

    >>> corrupt("pair", [0, 1], 1.0).labels.tolist()
    [1, 0]
    >>> corrupt("symetric", [0, 1], 1.0)
    Traceback (most recent call last):
        ...
    ValueError: no noise called 'symetric'; did you mean 'symmetric'?
    """

    def needed(name: str, value: Any) -> Any:
        if value is None:
            raise ValueError(f"{name} is not given; {kind} noise needs it")
        return value

    makers: dict[str, Callable[[], Corruption]] = {
        "symmetric": lambda: symmetric(
            labels,
            needed("rate", rate),
            num_classes=num_classes,
            seed=seed,
            include_true=include_true,
            count=count,
        ),
        "pair": lambda: pair(labels, needed("rate", rate), num_classes=num_classes, seed=seed, count=count),
        "asymmetric_cifar10": lambda: asymmetric_cifar10(labels, needed("rate", rate), seed=seed, count=count),
        "superclass_pair": lambda: superclass_pair(
            labels, needed("rate", rate), needed("groups", groups), seed=seed, count=count
        ),
        "sl_block_pair": lambda: sl_block_pair(labels, needed("rate", rate), num_classes=num_classes, seed=seed),
        "superclass_cycle": lambda: superclass_cycle(
            labels, needed("rate", rate), needed("groups", groups), seed=seed, count=count
        ),
        "block_cycle": lambda: block_cycle(
            labels, needed("rate", rate), num_classes=num_classes, seed=seed, count=count
        ),
        "transition": lambda: transition(labels, needed("matrix", matrix), seed=seed),
        "instance_dependent": lambda: instance_dependent(
            labels, needed("rate", rate), needed("features", features), num_classes=num_classes, seed=seed
        ),
        "given": lambda: given(
            needed("file", file), labels if truth else np.full(np.shape(labels), -1), num_classes=num_classes, key=key
        ),
    }
    if kind not in makers:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(KINDS)}"
        raise ValueError(f"no noise called {kind!r}; {hint}")
    return makers[kind]()
