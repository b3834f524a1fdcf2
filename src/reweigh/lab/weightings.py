"""Weightings by name, and what an expression such as `DM(0.5, 8)` builds, without importing the methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import EllipsisType
from typing import Any, cast

from reweigh import weightings
from reweigh.lab.spec.expression import Expression, Value, canonical
from reweigh.weightings import FromCallable, FromLoss, PerClass, Product, Scaled, Sum, Weighting

_WITHOUT_NAME = (Weighting, Sum, Product, Scaled, PerClass, FromCallable, FromLoss)
"""Not written by name: combinations are written with + and *, the others hold functions or tensors."""

WEIGHTINGS: list[type[Weighting]] = [
    cls
    for cls in (getattr(weightings, name) for name in sorted(weightings.__all__, key=str.casefold))
    if isinstance(cls, type) and issubclass(cls, Weighting) and cls not in _WITHOUT_NAME
]
_SUPPLIED = ("context", "reduction", "class_counts")
"""Arguments that come from the run and not from the expression."""


@lru_cache(maxsize=256)
def parameters_of(function: Callable[..., Any]) -> Mapping[str, Value | EllipsisType]:
    """Return the parameters that an expression may set, with their defaults; `...` marks a required one.

    >>> from reweigh import DM, SL
    >>> parameters_of(SL), parameters_of(DM)
    ({'alpha': 0.1, 'b': 9.21}, {'lam': Ellipsis, 'beta': Ellipsis})
    """
    return {
        name: ... if parameter.default is parameter.empty else canonical(parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in _SUPPLIED
    }


def weighting_from(expression: Expression) -> Weighting:
    """Build the weighting that an expression names; schedules must have been replaced by their values.

    >>> from reweigh.lab.spec import parse
    >>> weighting_from(parse("Tapered(DM(1, 16), 5e-7) + 0.5 * MAE"))
    Tapered(weighting=DM(lam=1, beta=16), taper=5e-07) + 0.5 * MAE()
    >>> weighting_from(parse("DMM(1, 2)"))
    Traceback (most recent call last):
        ...
    ValueError: no weighting is named 'DMM'; did you mean 'DM'?
    """
    if expression.name in ("+", "*"):
        factors = [value for value in expression.args if not isinstance(value, Expression)]
        terms = tuple(weighting_from(value) for value in expression.args if isinstance(value, Expression))
        combined = terms[0] if len(terms) == 1 else Sum(terms) if expression.name == "+" else Product(terms)
        for factor in factors:  # numbers: `Expression` accepts nothing else
            combined = Scaled(combined, cast(float, factor))
        return combined
    cls: Callable[..., Any] | None = {each.__name__: each for each in WEIGHTINGS}.get(expression.name)
    if cls is None:
        from reweigh.lab.objectives import class_of  # knows own code, and losses and methods, too, for the hint

        cls = class_of("weighting", expression.name)
    weighting: Weighting = build(cls, expression, check_arguments(cls, expression), weighting_from, {})
    return weighting


def check_arguments(function: Callable[..., Any], expression: Expression) -> dict[str, Value]:
    """Return the arguments of an expression by name; refuse unknown and missing ones."""
    parameters = parameters_of(function)
    arguments = dict(expression.bind(tuple(parameters)).kwargs)
    missing = [name for name, default in parameters.items() if default is ... and name not in arguments]
    if missing:
        raise ValueError(f"{expression}: {expression.name} needs {' and '.join(missing)}")
    return arguments


def build(
    function: Callable[..., Any],
    expression: Expression,
    arguments: Mapping[str, Value],
    convert: Callable[[Expression], Any],
    supplied: Mapping[str, Any],
) -> Any:
    """Call a class with converted arguments of an expression and those of `supplied` that it takes."""
    accepted = inspect.signature(function).parameters
    try:
        values = {key: convert(value) if isinstance(value, Expression) else value for key, value in arguments.items()}
        return function(**{key: value for key, value in supplied.items() if key in accepted}, **values)
    except TypeError as error:  # in an expression, a value of a wrong type is a wrong value
        raise ValueError(f"{expression}: {error}") from error
