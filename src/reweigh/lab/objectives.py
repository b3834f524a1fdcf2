"""The registry of objectives: the weightings, losses and methods that an expression can name.

An expression such as `ELR(beta=0.9)` names a class of one of the three lists below. Its parameters and their defaults
are read from the signature of the class. To add a loss or a method, write the class and add it to its list; a weighting
needs only to be exported by `reweigh.weightings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from reweigh.checks import flag, nearest
from reweigh.lab.methods import Context, Method
from reweigh.lab.methods.active_bias import ActiveBias
from reweigh.lab.methods.anl import ANL
from reweigh.lab.methods.auto import Auto
from reweigh.lab.methods.class_imbalance import LDAM, ClassBalanced
from reweigh.lab.methods.curriculum import Curriculum
from reweigh.lab.methods.d2l import D2L
from reweigh.lab.methods.dynamic_bootstrap import MDDYRSH, MDYRH
from reweigh.lab.methods.elr import ELR
from reweigh.lab.methods.learned_weights import LearningToReweight, MetaWeightNet
from reweigh.lab.methods.masking import Masking
from reweigh.lab.methods.mentor_net import MentorNetDD, MentorNetPD
from reweigh.lab.methods.osm_caa import OSMCAA
from reweigh.lab.methods.pro_self_lc import ProSelfLC
from reweigh.lab.methods.pruned_gce import PrunedGCE
from reweigh.lab.methods.s_adaptation import SAdaptation
from reweigh.lab.methods.selc import SELC
from reweigh.lab.methods.selection import OHEM, SIGUA, SIGUABC, CoTeaching, Decoupling
from reweigh.lab.methods.self_paced import SPCL, SelfPaced
from reweigh.lab.methods.soft_labels import JointLabels, SoftLabels
from reweigh.lab.methods.video import CAE, DRSA
from reweigh.lab.spec.expression import Expression, Value
from reweigh.lab.spec.schedule import rescale_schedules
from reweigh.lab.weightings import WEIGHTINGS, build, check_arguments, parameters_of
from reweigh.losses import (
    ANL_CE,
    NCE_AGCE,
    NCE_RCE,
    Backward,
    BalancedSoftmax,
    BootstrapHard,
    BootstrapSoft,
    Brier,
    Forward,
    FullMAE,
    LabelSmoothing,
    LogitAdjustment,
    LogitClip,
    Loss,
)
from reweigh.noise import map_matrix, symmetric_matrix
from reweigh.noise.files import read_array

LOSSES: list[type[Loss]] = [
    *(LabelSmoothing, BootstrapSoft, BootstrapHard, Forward, Backward, LogitAdjustment, BalancedSoftmax),
    *(NCE_RCE, NCE_AGCE, ANL_CE, LogitClip, FullMAE, Brier),
]
METHODS: list[Callable[..., Method]] = [
    Auto,
    *(ClassBalanced, LDAM, OHEM, SelfPaced, SPCL, ActiveBias, PrunedGCE, LearningToReweight, MetaWeightNet),
    *(D2L, MentorNetPD, MentorNetDD, SAdaptation, Masking, MDYRH, MDDYRSH),
    *(CoTeaching, Decoupling, SIGUA, SIGUABC, ProSelfLC, ELR, SELC, ANL),
    *(OSMCAA, DRSA, CAE),
    *(SoftLabels, JointLabels, Curriculum),  # steps of procedures: each reads or writes a file
]
KINDS: dict[str, Sequence[Callable[..., Any]]] = {"weighting": WEIGHTINGS, "loss": LOSSES, "method": METHODS}
"""Field of `Run` -> the classes that it can name."""


def kind_of(name: str) -> str | None:
    """Return the field of `Run` that a name belongs to, or None if no list has it.

    >>> kind_of("DM"), kind_of("ELR"), kind_of("symmetric")
    ('weighting', 'method', None)
    """
    return next((kind for kind, classes in KINDS.items() if any(each.__name__ == name for each in classes)), None)


def class_of(kind: str, name: str) -> Callable[..., Any]:
    """Return the class of that name, or the factory of an own one; `kind` is weighting, loss or method."""
    if ":" in name:
        from reweigh.lab.own import own_class

        return own_class(kind, name)
    named = {each.__name__: each for each in KINDS[kind]}
    if name not in named:
        other = kind_of(name)
        hint = nearest(name, list(named)) if other is None else f"it is a {other}: use --{other}"
        raise ValueError(f"no {kind} is named {name!r}; {hint}")
    return named[name]


def bound(expression: Expression) -> Expression:
    """Return the canonical form, which is what a run's hash is computed from.

    A weighting has all its arguments under their names, except flags that are off. A loss or method has only the
    arguments that differ from their defaults, so that a new argument with a default renames no run.

    >>> from reweigh.lab.spec import parse
    >>> print(bound(parse("Tapered(DM(1, 16), 5e-7) + CCE")))
    Tapered(weighting=DM(lam=1, beta=16), taper=5e-07) + CCE
    >>> print(bound(parse("GCE")), bound(parse("Focal(2, detach=False)")), bound(parse("ELR(lam=3, beta=0.9)")))
    GCE(q=0.7) Focal(gamma=2) ELR(beta=0.9)
    """
    named, kind = expression, kind_of(expression.name)
    if kind == "weighting":
        defaults = parameters_of(class_of(kind, expression.name))
        values = {**defaults, **dict(expression.bind(tuple(defaults)).kwargs)}
        kwargs = tuple((key, value) for key, value in values.items() if value is not False and value is not ...)
        named = Expression(expression.name, (), kwargs)
    elif kind is not None:
        named = _without_defaults(expression, parameters_of(class_of(kind, expression.name)))
    return _map_inner(named, bound)


def brief(expression: Expression) -> Expression:
    """Return the canonical form with leading arguments positional, as in folder names and tables.

    >>> from reweigh.lab.spec import parse
    >>> print(brief(parse("DM(beta=8, lam=0.5) + Focal(detach=True)")))
    DM(0.5, 8) + Focal(2, True)
    """
    named, kind = bound(expression), kind_of(expression.name)
    parameters = () if kind is None else tuple(parameters_of(class_of(kind, expression.name)))
    args, kwargs = [*named.args], list[tuple[str, Value]]()
    for key, value in named.kwargs:
        if not kwargs and parameters[len(args) : len(args) + 1] == (key,):
            args.append(value)
        else:
            kwargs.append((key, value))
    return _map_inner(Expression(named.name, tuple(args), tuple(kwargs)), brief)


def rescale_objective(expression: Expression, share: float) -> Expression:
    """Adapt a weighting, loss or method to a run with a `share` of the iterations.

    Times in its schedules, and arguments of methods that count epochs or iterations (`times` of the class), shrink in
    proportion, rounded down; so what begins within the full run also begins within the short one.

    >>> from reweigh.lab.spec import parse
    >>> print(rescale_objective(parse("D2L(start=34)"), 0.25), rescale_objective(parse("ELR(lam=1)"), 0.25))
    D2L(8, 2) ELR(lam=1)
    """
    expression = rescale_schedules(expression, share)
    kind = kind_of(expression.name)
    cls = None if kind is None else class_of(kind, expression.name)
    times: Mapping[str, int] = getattr(cls, "times", {})
    if cls is None or not times:
        return expression
    parameters = parameters_of(cls)
    values = dict(expression.bind(tuple(parameters)).kwargs)
    for key, least in times.items():
        time = values.get(key, cast(Value, parameters[key]))
        if isinstance(time, int) and time > least:
            values[key] = max(least, int(time * share + 1e-9))  # 100 * 0.29 is slightly less than 29
    return _without_defaults(Expression(expression.name, (), tuple(values.items())), parameters)


def loss_from(expression: Expression, num_classes: int, class_counts: npt.ArrayLike | Tensor) -> Loss:
    """Build the loss that an expression names; schedules must have been replaced by their values.

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
    ValueError: no loss is named 'BootstrapHart'; did you mean 'BootstrapHard'?
    """
    cls = class_of("loss", expression.name)
    arguments = check_plain_arguments(cls, expression)
    supplied = {"reduction": "mean", "class_counts": class_counts}
    loss: Loss = build(cls, expression, arguments, partial(named_matrix, num_classes=num_classes), supplied)
    return loss


def method_from(expression: Expression, context: Context) -> Method:
    """Build the method that an expression names, ready for the first iteration.

    Some methods change the net (`LDAM` replaces its classifier), so build the optimiser over `method.trainable`
    afterwards.
    """
    cls = class_of("method", expression.name)
    arguments = check_plain_arguments(cls, expression)
    matrix = partial(named_matrix, num_classes=context.num_classes)
    method: Method = build(cls, expression, arguments, matrix, {"context": context})
    return method


def check_plain_arguments(function: Callable[..., Any], expression: Expression) -> dict[str, Value]:
    """Like `check_arguments`; also refuse names and schedules as values, except for a transition matrix T."""
    arguments = check_arguments(function, expression)
    for key, value in arguments.items():
        if isinstance(value, Expression) and key != "T":
            bare = not value.args and not value.kwargs
            spelling = f"; write {key}={value.name!r} for a text" if bare else ""
            raise ValueError(f"{expression}: {key} must be a plain value, not {value}{spelling}")
    return arguments


_MATRICES = {"symmetric": ("rate", "include_true"), "map": ("targets", "rate"), "file": ("path", "hash")}


def named_matrix(expression: Expression, num_classes: int) -> npt.NDArray[np.float64]:
    """Return the matrix of `symmetric(rate, include_true=False)`, `map(targets, rate)` or `file(path, hash=None)`.

    >>> from reweigh.lab.spec import parse
    >>> named_matrix(parse("map([1, 1], 0.25)"), 2).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    """
    if expression.name not in _MATRICES:
        hint = nearest(expression.name, list(_MATRICES))
        raise ValueError(f"no transition matrix is named {expression.name!r}; {hint}")
    values = dict(expression.bind(_MATRICES[expression.name]).kwargs)
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


def _without_defaults(expression: Expression, parameters: Mapping[str, Value | EllipsisType]) -> Expression:
    """Leave out the arguments that have their defaults; leading ones become positional."""
    values = dict(expression.bind(tuple(parameters)).kwargs)
    args, kwargs = list[Value](), list[tuple[str, Value]]()
    for place, (key, default) in enumerate(parameters.items()):
        if key not in values or _same(values[key], default):
            continue
        if len(args) == place:
            args.append(values[key])
        else:
            kwargs.append((key, values[key]))
    return Expression(expression.name, tuple(args), tuple(kwargs))


def _same(value: Value, default: Value | EllipsisType) -> bool:
    return value == default and isinstance(value, bool) == isinstance(default, bool)  # 0 is not False


def _map_inner(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Apply `change` to every expression among the arguments."""

    def changed(value: Value) -> Value:
        if isinstance(value, tuple):
            return tuple(changed(item) for item in value)
        return change(value) if isinstance(value, Expression) else value

    kwargs = tuple((key, changed(value)) for key, value in expression.kwargs)
    return Expression(expression.name, tuple(changed(value) for value in expression.args), kwargs)
