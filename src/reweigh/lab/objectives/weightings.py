"""Weightings from expressions: "DM(lam=0.5, beta=8)", "CCE + 0.5 * MAE"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from reweigh.checks import nearest
from reweigh.lab.spec.expression import Expression, Value
from reweigh.weightings.base import Weighting
from reweigh.weightings.compose import Product, Scaled, Sum, Tapered
from reweigh.weightings.curve import Curve
from reweigh.weightings.dm import DM, IMAE, Beta, Exponential, Normal, Uniform
from reweigh.weightings.losses import (
    AEL,
    AGCE,
    AUL,
    CCE,
    GCE,
    MAE,
    MSE,
    SL,
    Focal,
    ForwardSymmetric,
    PHuber,
    TruncatedGCE,
)

NAMES: Mapping[str, type[Weighting]] = {
    kind.__name__: kind
    for kind in (
        *(DM, Normal, Exponential, Beta, Uniform, IMAE),
        *(CCE, MAE, MSE, GCE, TruncatedGCE, SL, Focal),
        *(PHuber, AGCE, AUL, AEL, ForwardSymmetric),
        *(Curve, Tapered),
    )
}
"""Every weighting that an expression can name."""


def weighting_from(expression: Expression) -> Weighting:
    """The weighting that an expression names; its schedules must have their values already.

    >>> from reweigh.lab.spec import parse
    >>> weighting_from(parse("Tapered(DM(1, 16), 5e-7) + 0.5 * MAE"))
    Tapered(weighting=DM(lam=1, beta=16), taper=5e-07) + 0.5 * MAE()
    >>> weighting_from(parse("DMM(1, 2)"))
    Traceback (most recent call last):
        ...
    ValueError: no weighting is called 'DMM'; did you mean 'DM'?
    """
    if expression.name == "+":
        return Sum(tuple(_term(term, expression) for term in expression.args))
    if expression.name == "*":
        return _product(expression)
    if expression.name not in NAMES:
        raise ValueError(f"no weighting is called {expression.name!r}; {nearest(expression.name, list(NAMES))}")
    kind: Callable[..., Weighting] = NAMES[expression.name]
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # every weighting is a dataclass
    arguments = {name: _argument(value) for name, value in expression.bind(names).kwargs}
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(f"{expression}: {str(error).partition('.__init__() ')[2] or error}") from error


def _product(expression: Expression) -> Weighting:
    factors = [factor for factor in expression.args if not isinstance(factor, Expression)]
    terms = tuple(_term(term, expression) for term in expression.args if isinstance(term, Expression))
    product = terms[0] if len(terms) == 1 else Product(terms)
    for factor in factors:
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise ValueError(f"{expression}: {factor!r} is not a number")
        product = Scaled(product, factor)
    return product


def _term(value: Value, whole: Expression) -> Weighting:
    if not isinstance(value, Expression):
        raise ValueError(f"{whole}: {value!r} is not a weighting")
    return weighting_from(value)


def _argument(value: Value) -> Any:
    return weighting_from(value) if isinstance(value, Expression) else value
