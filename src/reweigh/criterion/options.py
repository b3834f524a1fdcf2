"""The settings that a criterion takes, checked once and resolved from "auto"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from reweigh.emphasis import log_integral, unit_weighting
from reweigh.emphasis.quadrature import parameter_device
from reweigh.ops import Repeat
from reweigh.ops.forms import Form, form_of
from reweigh.weightings import Weighting, as_weighting
from reweigh.weightings.compose import has_classes, has_examples, is_tapered
from reweigh.weightings.parameter import Parameter, check, holds

Reduction: TypeAlias = Literal["none", "mean", "sum"]
Normalise: TypeAlias = Literal["auto", "batch", "class", "unit"] | None
Taper: TypeAlias = "Parameter | Literal['auto']"
Value: TypeAlias = Literal["cross_entropy", "objective"]

# The paper's authors divided by 2 (1 - p) + 1e-6: a taper of 5e-7, after normalisation.
PUBLISHED_TAPER = 5e-7


@dataclass(frozen=True)
class Options:
    """How a call's weights become its gradient, with nothing left to "auto"; unit DN is in the weighting by now."""

    weighting: Weighting
    reduction: Reduction
    normalise: Literal["batch", "class", "unit"] | None
    taper: Parameter
    value: Value
    process_group: Any

    @property
    def batch(self) -> bool:
        return self.normalise == "batch"

    @property
    def shares(self) -> bool:
        """Whether what a label gets is a share of a whole."""
        return self.normalise in ("batch", "class")

    def __getstate__(self) -> dict[str, Any]:
        """For a copy or a file: all but what was worked out for this process."""
        return {name: value for name, value in vars(self).items() if name != "repeats"}

    @cached_property
    def repeats(self) -> dict[torch.Size, Repeat]:
        """What kernels have worked out for calls of a module with these settings, by the shape of the logits."""
        return {}

    @cached_property
    def form(self) -> Form | None:
        """The weighting as a few numbers, where it is one that kernels know."""
        return form_of(self.weighting)

    @cached_property
    def by_label(self) -> bool:
        """Whether the weighting has parameters by class or by example."""
        return has_classes(self.weighting) or has_examples(self.weighting)


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
    one_of("normalise", normalise, ("auto", "batch", "class", "unit", None))
    one_of("value", value, ("cross_entropy", "objective"))
    if normalise == "auto":
        normalise = "batch" if weighting.kind == "density" else None
    if normalise in ("batch", "class") and reduction == "sum":
        raise ValueError(
            f"reduction='sum' does not go with normalise={normalise!r}, which is its own divisor; "
            "use reduction='mean' or 'none', or normalise='unit' or None"
        )
    if isinstance(taper, str):
        one_of("taper", taper, ("auto", "a number >= 0"))
        taper = 0.0 if weighting.kind == "loss" or is_tapered(weighting) else PUBLISHED_TAPER
    check("criterion", "taper", taper, low=0)
    scaled = unit_weighting(weighting) if normalise == "unit" else weighting
    return Options(scaled, reduction, normalise, taper, value, process_group)


class WithOptions(nn.Module):
    """A module with a weighting and settings, resolved anew whenever it is given another weighting.

    A weighting that is a module itself becomes a part of this one: its parameters are saved and moved with it.
    """

    weighting: Weighting | Callable[..., Tensor]

    def __init__(
        self,
        weighting: Weighting | Callable[..., Tensor],
        reduction: Reduction,
        normalise: Normalise,
        taper: Taper,
        value: Value,
        process_group: Any,
    ) -> None:
        super().__init__()
        self._settings = (reduction, normalise, taper, value, process_group)
        self.weighting = weighting

    # not a property: nn.Module would pass it by for a weighting that is a module
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weighting":
            options = resolve(value, *self._settings)
            self._check_options(options)
            self._options = None if options.normalise == "unit" and _may_move(as_weighting(value)) else options
            self._modules.pop(name, None)  # or nothing but a module could take its place
        elif name not in ("training", "_options") and self.__dict__.get("_options") is not None:
            self._options = replace(self.options)  # without `repeats`: they hold for a module as it was
        super().__setattr__(name, value)

    def _check_options(self, options: Options) -> None:
        """Refuse what this module cannot do, before anything has changed."""

    @property
    def options(self) -> Options:
        """The settings of a call; under unit normalisation the integral over tensors is taken anew: they may move."""
        return resolve(self.weighting, *self._settings) if self._options is None else self._options

    def extra_repr(self) -> str:
        options = self.options
        return f"{as_weighting(self.weighting)!r}, normalise={options.normalise!r}, taper={options.taper!r}"


@torch.enable_grad()
def _may_move(weighting: Weighting) -> bool:
    """Whether an integral may change, or have a graph, which serves once: of tensors, or of what a function learns."""
    return parameter_device(weighting) is not None or log_integral(weighting).requires_grad


def check_call(options: Options, log_normaliser: Tensor | float | None, factors: Mapping[str, Tensor | None]) -> None:
    """Refuse what does not go with the normalisation: a normaliser without it, negative factors with it."""
    if log_normaliser is not None and not options.batch:
        raise ValueError(
            "log_normaliser is the divisor of normalise='batch'; this criterion does not normalise over the batch"
        )
    if not options.shares:
        return
    for name, factor in factors.items():
        if factor is not None and not holds(factor.detach() >= 0):
            raise ValueError(f"{name} must be >= 0 under normalise={options.normalise!r}, got {factor.min().item():g}")


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse a value that is not among the allowed ones.

    >>> one_of("reduction", "avg", ("none", "mean", "sum"))
    Traceback (most recent call last):
        ...
    ValueError: reduction must be one of 'none', 'mean', 'sum', got 'avg'
    """
    if isinstance(value, Tensor) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
