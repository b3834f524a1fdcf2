"""The parameters of the weightings, by name, so that DM(0.5, 8) and DM(lam=0.5, beta=8) are one run without torch.

A test holds this table equal to the classes themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from reweigh.spec.expression import Expression, Value

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


def bound(expression: Expression) -> Expression:
    """The expression with the arguments of every known weighting under their names.

    >>> from reweigh.spec import parse
    >>> print(bound(parse("Tapered(DM(1, 16), 5e-7) + CCE")))
    Tapered(weighting=DM(lam=1, beta=16), taper=5e-07) + CCE
    """
    named = expression.bind(PARAMETERS[expression.name]) if expression.name in PARAMETERS else expression
    kwargs = tuple((key, _inside(value, bound)) for key, value in named.kwargs)
    return Expression(named.name, tuple(_inside(value, bound) for value in named.args), kwargs)


def brief(expression: Expression) -> Expression:
    """The other way round: without the names that the arguments' places already tell.

    >>> from reweigh.spec import parse
    >>> print(brief(parse("DM(beta=8, lam=0.5) + Focal(detach=True)")))
    DM(0.5, 8) + Focal(detach=True)
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
