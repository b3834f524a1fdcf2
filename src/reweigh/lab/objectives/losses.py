"""Losses from expressions: "BootstrapHard(0.8)", "Forward(symmetric(0.4))"."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from reweigh.checks import flag, nearest
from reweigh.lab.spec.expression import Expression, Value
from reweigh.losses.clip import LogitClip
from reweigh.losses.correction import Backward, Forward
from reweigh.losses.full import Brier, FullMAE
from reweigh.losses.loss import Loss
from reweigh.losses.normalised import ANL_CE, NCE_AGCE, NCE_RCE
from reweigh.losses.prior import BalancedSoftmax, LogitAdjustment
from reweigh.losses.smoothing import BootstrapHard, BootstrapSoft, LabelSmoothing
from reweigh.noise.arrays import read_array
from reweigh.noise.transition import map_matrix, symmetric_matrix

NAMES: Mapping[str, type[Loss]] = {
    kind.__name__: kind
    for kind in (
        *(LabelSmoothing, BootstrapSoft, BootstrapHard, Forward, Backward, LogitAdjustment, BalancedSoftmax),
        *(NCE_RCE, NCE_AGCE, ANL_CE, LogitClip, FullMAE, Brier),
    )
}
"""Every loss that an expression can name."""


def loss_from(expression: Expression, num_classes: int, class_counts: npt.ArrayLike | Tensor) -> Loss:
    """The loss that an expression names; its schedules must have their values already.

    Args:
        expression: such as `parse("Forward(symmetric(0.4))")`.
        num_classes: C.
        class_counts: (C,) how often each given label occurs in training.

    >>> from reweigh.lab.spec import parse
    >>> loss_from(parse("BootstrapHard(0.7)"), 10, [1] * 10)
    BootstrapHard(beta=0.7)
    >>> loss_from(parse("BootstrapHart(0.7)"), 10, [1] * 10)
    Traceback (most recent call last):
        ...
    ValueError: no loss is called 'BootstrapHart'; did you mean 'BootstrapHard'?
    """
    if expression.name not in NAMES:
        raise ValueError(f"no loss is called {expression.name!r}; {nearest(expression.name, list(NAMES))}")
    kind = NAMES[expression.name]
    given: dict[str, Any] = {"reduction": "mean"}
    if issubclass(kind, LogitAdjustment):
        given["class_counts"] = class_counts
    loss: Loss = call(kind, expression, given, num_classes)
    return loss


def call(kind: Callable[..., Any], expression: Expression, given: Mapping[str, Any], num_classes: int) -> Any:
    """`kind` with the arguments of an expression and `given` ones, which the expression may not name.

    Named matrices become matrices; any other name or schedule in a value is refused.
    """
    shared = {name: value for name, value in given.items() if name in inspect.signature(kind).parameters}
    try:
        arguments = {
            key: named_matrix(value, num_classes) if isinstance(value, Expression) else value
            for key, value in arguments_of(kind, expression, given).items()
        }
        return kind(**shared, **arguments)
    except TypeError as error:  # a value of the wrong type is a wrong value, in an expression
        raise ValueError(f"{expression}: {error}") from error


def arguments_of(kind: Callable[..., Any], expression: Expression, given: Collection[str]) -> dict[str, Value]:
    """The arguments of an expression by name, as far as they can be checked before `given` ones are known.

    Unknown and missing ones are refused, and names and schedules, but for a matrix T.
    """
    parameters = inspect.signature(kind).parameters
    names = [name for name in parameters if name not in given]
    arguments = dict(expression.bind(names).kwargs)
    missing = [name for name in names if parameters[name].default is Parameter.empty and name not in arguments]
    if missing:
        raise ValueError(f"{expression}: {expression.name} needs {' and '.join(missing)}")
    for key, value in arguments.items():
        if isinstance(value, Expression) and key != "T":
            bare = not value.args and not value.kwargs
            spelling = f"; write {key}={value.name!r} for a text" if bare else ""
            raise ValueError(f"{expression}: {key} must be a plain value, not {value}{spelling}")
    return arguments


_KINDS = {"symmetric": ("rate", "include_true"), "map": ("targets", "rate"), "file": ("path", "hash")}


def named_matrix(expression: Expression, num_classes: int) -> npt.NDArray[np.float64]:
    """`symmetric(rate, include_true=False)`, `map(targets, rate)` or `file(path, hash=None)` as a matrix.

    >>> from reweigh.lab.spec import parse
    >>> named_matrix(parse("map([1, 1], 0.25)"), 2).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    if expression.name not in _KINDS:
        raise ValueError(
            f"no transition matrix is called {expression.name!r}; {nearest(expression.name, list(_KINDS))}"
        )
    wanted = _KINDS[expression.name]
    values = dict(expression.bind(wanted).kwargs)
    if expression.name == "file":
        path, digest = values.get("path"), values.get("hash")
        if not isinstance(path, str) or not isinstance(digest, str | None):
            raise ValueError(f"{expression} needs a path, and may have a hash, both as texts")
        return read_array(path, (num_classes, num_classes), hash=digest)
    rate = values.get("rate")
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise ValueError(f"{expression} needs a number as its rate")
    if expression.name == "symmetric":
        include_true = flag(f"{expression}: include_true", values.get("include_true", False))
        return symmetric_matrix(num_classes, rate, include_true)
    targets = values.get("targets")
    if not isinstance(targets, tuple) or len(targets) != num_classes:
        raise ValueError(f"{expression} needs {num_classes} targets, one for every class")
    return map_matrix(np.asarray(targets), rate)
