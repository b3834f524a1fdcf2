"""Noise by name, for records and the command line."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from reweigh.checks import nearest
from reweigh.noise.class_noise import (
    asymmetric_cifar10,
    block_cycle,
    pair,
    sl_block_pair,
    superclass_cycle,
    superclass_pair,
    symmetric,
    transition,
)
from reweigh.noise.corruption import Corruption, Count, Labels, Seed
from reweigh.noise.given import given
from reweigh.noise.instance import instance_dependent

_FUNCTIONS: dict[str, Callable[..., Corruption]] = {
    function.__name__: function
    for function in (
        *(symmetric, pair, asymmetric_cifar10, superclass_pair, sl_block_pair, superclass_cycle, block_cycle),
        *(transition, instance_dependent, given),
    )
}
KINDS = tuple(_FUNCTIONS)


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
    """Apply a kind of noise by name; arguments that the kind does not have are ignored.

    Args:
        kind: one of `KINDS`.
        labels: N class ids, clean.
        rate: from 0 to 1.
        seed: of the draw, or a generator.
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
    ValueError: no noise is named 'symetric'; did you mean 'symmetric'?
    """
    if kind not in _FUNCTIONS:
        raise ValueError(f"no noise is named {kind!r}; {nearest(kind, KINDS)}")
    if kind == "given":
        if file is None:
            raise ValueError("file is not given; given noise needs it")
        return given(file, labels if truth else np.full(np.shape(labels), -1), num_classes=num_classes, key=key)
    values = {
        "rate": rate,
        "seed": seed,
        "num_classes": num_classes,
        "groups": groups,
        "features": features,
        "matrix": matrix,
        "include_true": include_true,
        "count": count,
    }
    parameters = inspect.signature(_FUNCTIONS[kind]).parameters
    accepted = {name: value for name, value in values.items() if name in parameters}
    for name, value in accepted.items():
        if value is None and parameters[name].default is inspect.Parameter.empty:
            raise ValueError(f"{name} is not given; {kind} noise needs it")
    return _FUNCTIONS[kind](labels, **accepted)
