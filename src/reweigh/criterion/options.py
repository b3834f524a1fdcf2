"""The settings that a criterion takes, checked once and resolved from "auto"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import Tensor

from reweigh.density import unit
from reweigh.weighting import Weighting, as_weighting
from reweigh.weighting.compose import is_tapered
from reweigh.weighting.parameter import Parameter, check, holds

Reduction: TypeAlias = Literal["none", "mean", "sum"]
Normalise: TypeAlias = Literal["auto", "batch", "unit"] | None
Taper: TypeAlias = "Parameter | Literal['auto']"
Value: TypeAlias = Literal["cross_entropy", "objective"]

# The paper's authors divided by 2 (1 - p) + 1e-6: a taper of 5e-7, after normalisation.
PUBLISHED_TAPER = 5e-7


@dataclass(frozen=True)
class Options:
    """How a call's weights become its gradient, with nothing left to "auto"; unit DN is in the weighting by now."""

    weighting: Weighting
    reduction: Reduction
    batch: bool
    taper: Parameter
    value: Value
    process_group: Any


def resolve(
    weighting: Weighting | Callable[..., Tensor],
    reduction: Reduction,
    normalise: Normalise,
    taper: Taper,
    value: Value,
    process_group: Any,
) -> Options:
    """Check the settings; "auto" is what was published for that kind of weighting.

    A weighting that comes from a loss keeps its own scale (no normalisation, no taper); a density is normalised over
    the batch and tapered by 5e-7, unless it is `Tapered` already, also as a part.
    """
    weighting = as_weighting(weighting)
    one_of("reduction", reduction, ("none", "mean", "sum"))
    one_of("normalise", normalise, ("auto", "batch", "unit", None))
    one_of("value", value, ("cross_entropy", "objective"))
    if normalise == "auto":
        normalise = "batch" if weighting.kind == "density" else None
    if normalise == "batch" and reduction == "sum":
        raise ValueError(
            "reduction='sum' does not go with normalise='batch', which is its own divisor; "
            "use reduction='mean' or 'none', or normalise='unit' or None"
        )
    if isinstance(taper, str):
        one_of("taper", taper, ("auto", "a number >= 0"))
        taper = 0.0 if weighting.kind == "loss" or is_tapered(weighting) else PUBLISHED_TAPER
    check("criterion", "taper", taper, low=0)
    scaled = unit(weighting) if normalise == "unit" else weighting
    return Options(scaled, reduction, normalise == "batch", taper, value, process_group)


def check_call(options: Options, log_normaliser: Tensor | float | None, factors: Mapping[str, Tensor | None]) -> None:
    """Refuse what does not go with the normalisation: a normaliser without it, negative factors with it."""
    if not options.batch:
        if log_normaliser is not None:
            raise ValueError(
                "log_normaliser is the divisor of normalise='batch'; this criterion does not normalise over the batch"
            )
        return
    for name, factor in factors.items():
        if factor is not None and not holds(factor.detach() >= 0):
            raise ValueError(f"{name} must be >= 0 under normalise='batch', got {factor.min().item():g}")


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse a value that is not among the allowed ones.

    >>> one_of("reduction", "avg", ("none", "mean", "sum"))
    Traceback (most recent call last):
        ...
    ValueError: reduction must be one of 'none', 'mean', 'sum', got 'avg'
    """
    if isinstance(value, Tensor) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
