"""The parameters of the weightings, so that DM(0.5, 8) and DM(lam=0.5, beta=8), GCE and GCE(0.7), are one run each.

Without torch: a test holds these tables equal to the classes themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from reweigh.lab.spec.expression import Expression, Value
from reweigh.lab.spec.rivals import ARGUMENTS, without_defaults

PARAMETERS: dict[str, tuple[str, ...]] = {
    "DM": ("lam", "beta"),
    "Normal": ("psi", "beta"),
    "Exponential": ("beta",),
    "Beta": ("alpha", "eta"),
    "Uniform": (),
    "IMAE": ("T",),
    "CCE": (),
    "MAE": (),
    "MSE": (),
    "GCE": ("q",),
    "TruncatedGCE": ("q", "k"),
    "SL": ("alpha", "b"),
    "Focal": ("gamma", "detach"),
    "PHuber": ("tau",),
    "AGCE": ("a", "q"),
    "AUL": ("a", "q"),
    "AEL": ("a",),
    "ForwardSymmetric": ("rate", "num_classes"),
    "Curve": ("points",),
    "Tapered": ("weighting", "taper"),
}

DEFAULTS: dict[str, dict[str, Value]] = {
    "IMAE": {"T": 8},
    "GCE": {"q": 0.7},
    "TruncatedGCE": {"q": 0.7, "k": 0.5},
    "SL": {"alpha": 0.1, "b": 9.21},
    "Focal": {"gamma": 2, "detach": False},
    "PHuber": {"tau": 2},
    "AGCE": {"a": 0.6, "q": 0.6},
    "AUL": {"a": 5.5, "q": 3},
    "AEL": {"a": 2.5},
    "Tapered": {"taper": 5e-7},
}


def bound(expression: Expression) -> Expression:
    """The expression with the arguments of every known weighting under their names: all numbers, switches that are on.

    A loss or method has only those that differ from their defaults.

    >>> from reweigh.lab.spec import parse
    >>> print(bound(parse("Tapered(DM(1, 16), 5e-7) + CCE")))
    Tapered(weighting=DM(lam=1, beta=16), taper=5e-07) + CCE
    >>> print(bound(parse("GCE")), bound(parse("Focal(2, detach=False)")))
    GCE(q=0.7) Focal(gamma=2)
    """
    named = expression
    if expression.name in PARAMETERS:
        given = DEFAULTS.get(expression.name, {}) | dict(expression.bind(PARAMETERS[expression.name]).kwargs)
        written = ((key, given[key]) for key in PARAMETERS[expression.name] if given.get(key, False) is not False)
        named = Expression(expression.name, (), tuple(written))
    elif expression.name in ARGUMENTS:
        named = without_defaults(expression)
    kwargs = tuple((key, _inside(value, bound)) for key, value in named.kwargs)
    return Expression(named.name, tuple(_inside(value, bound) for value in named.args), kwargs)


def brief(expression: Expression) -> Expression:
    """The other way round: without the names that the arguments' places already tell.

    >>> from reweigh.lab.spec import parse
    >>> print(brief(parse("DM(beta=8, lam=0.5) + Focal(detach=True)")))
    DM(0.5, 8) + Focal(2, True)
    """
    named = bound(expression)
    places = PARAMETERS.get(named.name, ())
    args, kwargs = [*named.args], list[tuple[str, Value]]()
    for key, value in named.kwargs:
        if not kwargs and places[len(args) : len(args) + 1] == (key,):
            args.append(value)
        else:
            kwargs.append((key, _inside(value, brief)))
    return Expression(named.name, tuple(_inside(value, brief) for value in args), tuple(kwargs))


def _inside(value: Value, change: Callable[[Expression], Expression]) -> Value:
    """A value with every expression in it changed."""
    if isinstance(value, tuple):
        return tuple(_inside(item, change) for item in value)
    return change(value) if isinstance(value, Expression) else value
