"""Which weightings a kernel can weigh by itself, as a few numbers each. No triton here."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from reweigh.weightings import (
    CCE,
    DM,
    GCE,
    IMAE,
    MAE,
    MSE,
    Beta,
    Exponential,
    Focal,
    Normal,
    Scaled,
    Tapered,
    Uniform,
    Weighting,
)

LOG2 = math.log(2)
POWERS, EMPHASIS, BELL, FOCUS, GIVEN = 0, 1, 2, 3, 4


class Form(NamedTuple):
    """log w by family, with log(q / (q + inner)) beside it for a taper inside the normalisation.

    POWERS     a log p + b log q + c                           CCE, MAE, MSE, GCE, Beta, Uniform
    EMPHASIS   b exp(a log p + log q) + c                      DM, IMAE, Exponential
    BELL       b p (a + q) + c                                 Normal
    FOCUS      (a + 1) log q + log(1 + a (-p log p) / q) + c   Focal
    GIVEN      from plain torch                                any other
    """

    family: int
    a: float
    b: float
    c: float = 0.0
    inner: float = 0.0


OTHER = Form(GIVEN, 0.0, 0.0)
# By exact type: a subclass may weigh differently.
FORMS: dict[type, Callable[[Any], Form]] = {
    CCE: lambda w: Form(POWERS, 0.0, 1.0, LOG2),
    MAE: lambda w: Form(POWERS, 1.0, 1.0, LOG2),
    MSE: lambda w: Form(POWERS, 1.0, 2.0, 2 * LOG2),
    GCE: lambda w: Form(POWERS, w.q, 1.0, LOG2),
    Beta: lambda w: Form(POWERS, w.alpha - 1, w.eta - 1),
    Uniform: lambda w: Form(POWERS, 0.0, 0.0),
    DM: lambda w: Form(EMPHASIS, w.lam, w.beta),
    IMAE: lambda w: Form(EMPHASIS, 1.0, w.T),
    Exponential: lambda w: Form(EMPHASIS, 0.0, w.beta),
    Normal: lambda w: Form(BELL, 2 * w.psi - 1, w.beta),
    Focal: lambda w: Form(POWERS, 0.0, w.gamma + 1, LOG2) if w.detach else Form(FOCUS, w.gamma, 0.0, LOG2),
}


def form_of(weighting: Weighting) -> Form | None:
    """The form of a weighting whose parameters are plain numbers; None where it has none.

    >>> form_of(3 * GCE(0.7))
    Form(family=0, a=0.7, b=1.0, c=1.791759469228055, inner=0.0)
    """
    innermost = weighting
    while type(innermost) in (Scaled, Tapered):
        innermost = innermost.weighting  # type: ignore[attr-defined]
    # before it is looked up: one of another type may hold what no cache can
    return _form(weighting) if type(innermost) in FORMS else None


@lru_cache(maxsize=16)
def _form(weighting: Weighting) -> Form | None:
    if any(isinstance(value, Tensor) for value in vars(weighting).values()):
        return None
    if isinstance(weighting, Scaled):
        form = _form(weighting.weighting)
        return form._replace(c=form.c + math.log(weighting.factor)) if form and weighting.factor > 0 else None
    if isinstance(weighting, Tapered):
        form = _form(weighting.weighting)
        return form._replace(inner=float(weighting.taper)) if form and form.inner == 0 else None
    return FORMS[type(weighting)](weighting)
