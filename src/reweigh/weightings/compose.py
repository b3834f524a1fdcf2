"""Compositions of weightings: sum, product, scale, taper and per-class parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from reweigh.weightings.base import Form, Kind, Weighting
from reweigh.weightings.parameter import Parameter, check, clamp_log, log_add, log_parameter, log_sum, take_rows


@dataclass(frozen=True, repr=False)
class Sum(Weighting):
    """w = w_1 + w_2 + ...: the weighting of a sum of losses.

    >>> from reweigh.weightings import CCE, MAE
    >>> CCE() + 9.21 * MAE()
    CCE() + 9.21 * MAE()
    """

    terms: tuple[Weighting, ...]

    @property
    def kind(self) -> Kind:
        return "loss" if all(term.kind == "loss" for term in self.terms) else "density"

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        total = self.terms[0].log_weight(log_p, log_q)
        for term in self.terms[1:]:
            total = log_add(total, term.log_weight(log_p, log_q))
        return total

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return _merge_breakpoints(self.terms)

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.terms))


@dataclass(frozen=True, repr=False)
class Product(Weighting):
    """w = w_1 w_2 ...

    >>> from reweigh.weightings import DM, MAE
    >>> (DM(0.5, 8) * MAE())(1.0)
    0.0
    """

    terms: tuple[Weighting, ...]

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        total = self.terms[0].log_weight(log_p, log_q)
        for term in self.terms[1:]:
            total = total + term.log_weight(log_p, log_q)
        return total

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return _merge_breakpoints(self.terms)

    def __repr__(self) -> str:
        return " * ".join(f"({term!r})" if isinstance(term, Sum) else repr(term) for term in self.terms)


@dataclass(frozen=True, repr=False)
class Scaled(Weighting):
    """w = factor * w_1, where the factor is a number or a tensor with one entry per example.

    For dense prediction, (N, d1, ...), the tensor has one entry per example or one per position.

    >>> from reweigh.weightings import CCE
    >>> (3 * CCE())(0.0)
    6.0
    """

    weighting: Weighting
    factor: Parameter

    def __post_init__(self) -> None:
        check(self, "factor", self.factor, low=0)

    @property
    def kind(self) -> Kind:
        return self.weighting.kind

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return self.weighting.log_weight(log_p, log_q) + log_parameter(self.factor, log_p)

    @property
    def form(self) -> Form | None:
        return (
            form._replace(c=form.c + math.log(self.factor))
            if (form := form_of(self.weighting)) and self.factor > 0
            else None
        )

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints

    def __repr__(self) -> str:
        inner = f"({self.weighting!r})" if isinstance(self.weighting, Sum) else repr(self.weighting)
        return f"{self.factor!r} * {inner}"


@dataclass(frozen=True)
class Tapered(Weighting):
    """w = w_1 q / (q + taper): a taper applied *inside* the normalisation (the criterion's is applied after it).

    >>> from reweigh.weightings import DM
    >>> Tapered(DM(0.5, 8), 5e-7)(1.0)
    0.0
    """

    weighting: Weighting
    taper: Parameter = 5e-7

    def __post_init__(self) -> None:
        check(self, "taper", self.taper, low=0)

    @property
    def kind(self) -> Kind:
        return self.weighting.kind

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return self.weighting.log_weight(log_p, log_q) + log_taper(log_q, self.taper)

    @property
    def form(self) -> Form | None:
        form = form_of(self.weighting)
        return form._replace(inner=float(self.taper)) if form is not None and form.inner == 0 else None

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints


@dataclass(frozen=True)
class PerClass(Weighting):
    """A weighting whose tensor parameters have one entry per class; each example uses the entries of its label.

    >>> import torch
    >>> from reweigh.weightings import CCE, DM
    >>> PerClass(CCE() * torch.tensor([1.0, 2.0]))          # a factor per class
    PerClass(weighting=tensor([1., 2.]) * CCE())
    >>> by_class = PerClass(DM(lam=torch.tensor([0.5, 1.0]), beta=8))   # a mode per class
    """

    weighting: Weighting

    @property
    def kind(self) -> Kind:
        return self.weighting.kind

    def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        """Return log w, taking the last dimension as the class; a criterion calls `select_parameters` first."""
        return self.weighting.log_weight(log_p, log_q)

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch's
def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of a weighting's fields; none if the class is not a dataclass.

    torch 2.6 compiles neither vars() nor is_dataclass() nor dataclasses.replace().
    """
    return tuple([field.name for field in fields(kind)]) if is_dataclass(kind) else ()


def field_values(weighting: Weighting) -> tuple[Any, ...]:
    """Return the values of a weighting's fields: its parameters and nested weightings.

    >>> from reweigh.weightings import DM
    >>> field_values(DM(0.5, 8))
    (0.5, 8)
    """
    return tuple([getattr(weighting, name) for name in field_names(type(weighting))])


def tensors_in(part: Any, by_class: bool = False) -> list[tuple[Tensor, bool]]:
    """Return every tensor in a weighting, and whether its entries are per class (inside a `PerClass`)."""
    if isinstance(part, Tensor):
        return [(part, by_class)]
    if isinstance(part, Weighting):
        by_class, part = by_class or isinstance(part, PerClass), field_values(part)
    return [pair for each in part for pair in tensors_in(each, by_class)] if isinstance(part, tuple) else []


def map_tensors(part: Any, change: Callable[[Tensor, bool], Any], by_class: bool = False) -> Any:
    """Return the weighting with every tensor replaced by `change(tensor, by_class)`, in the order of `tensors_in`."""
    if isinstance(part, Tensor):
        return change(part, by_class)
    if isinstance(part, tuple):
        return tuple([map_tensors(each, change, by_class) for each in part])
    if isinstance(part, Weighting):
        by_class = by_class or isinstance(part, PerClass)
        changed = {name: map_tensors(getattr(part, name), change, by_class) for name in field_names(type(part))}
        return type(part)(**changed) if changed else part
    return part


def form_of(weighting: Weighting) -> Form | None:
    """Return the form of a weighting, or None if it has none or a tensor parameter.

    >>> from reweigh.weightings import GCE
    >>> form_of(3 * GCE(0.7))
    Form(family=0, a=0.7, b=1.0, c=1.791759469228055, inner=0.0)
    """
    for kind in type(weighting).__mro__:  # a subclass that overrides log_weight does not inherit the form
        if "form" in vars(kind):
            return None if tensors_in(weighting) else weighting.form
        if "log_weight" in vars(kind):
            return None
    return None


def has_class_parameters(weighting: Weighting) -> bool:
    """Return whether a weighting has per-class parameters."""
    return isinstance(weighting, PerClass) or any(by_class for _, by_class in tensors_in(weighting))


def has_example_parameters(part: Any) -> bool:
    """Return whether a weighting or taper has per-example parameters: tensors with entries outside a `PerClass`."""
    return any(x.ndim > 0 and not by_class for x, by_class in tensors_in(part))


def is_tapered(weighting: Weighting) -> bool:
    """Return whether a `Tapered`, here or in a nested weighting, makes w fall to 0 at p = 1.

    >>> from reweigh.weightings import DM, MAE
    >>> is_tapered(2 * Tapered(DM(0.5, 8)) + MAE()), is_tapered(Tapered(DM(0.5, 8)) + DM(0.5, 8))
    (True, False)
    """
    if isinstance(weighting, (Scaled, PerClass)):
        return is_tapered(weighting.weighting)
    if isinstance(weighting, Product):
        return any(map(is_tapered, weighting.terms))
    if isinstance(weighting, Sum):  # the weight of a loss is 0 at p = 1 anyway
        return all(term.kind == "loss" or is_tapered(term) for term in weighting.terms)
    return isinstance(weighting, Tapered)


def align_leading(x: Tensor, positions: Sequence[int], name: str) -> Tensor:
    """Return x aligned with the leading dimensions of `positions`, where size 1 broadcasts: (N) becomes (N, 1, ...).

    >>> align_leading(torch.ones(2), (2, 5, 7), "sample_weight").shape
    torch.Size([2, 1, 1])
    """
    missing, along = len(positions) - x.ndim, positions[: x.ndim]  # sliced because torch 2.6 compiles zip() as strict
    if missing < 0 or any(size not in (1, expected) for size, expected in zip(x.shape, along, strict=True)):
        raise ValueError(
            f"{name} must be shaped {tuple(positions)} or a leading part of that, such as one entry per example, "
            f"got {tuple(x.shape)}"
        )
    return x.reshape(x.shape + (1,) * missing)


def select_parameters(part: Any, index: Tensor, num_classes: int, positions: Sequence[int]) -> Any:
    """Return a weighting or taper with its tensors aligned with the labels.

    Args:
        index: the labels; a tensor inside a `PerClass` is indexed by them.
        num_classes: C, the required number of entries of such a tensor.
        positions: the shape of the labels; any other tensor is aligned with its leading dimensions.
    """

    def align(x: Tensor, by_class: bool) -> Tensor:
        if x.ndim == 0:
            return x
        if not by_class:  # with one dimension of positions the first is the last
            return x if len(positions) < 2 else align_leading(x, positions, "a tensor in a weighting or as taper")
        if x.shape[0] != num_classes:
            raise ValueError(
                f"PerClass: a tensor must have one entry for each of the {num_classes} classes, "
                f"got shape {tuple(x.shape)}"
            )
        return take_rows(x, index)

    return map_tensors(part, align) if tensors_in(part) else part


def log_taper(log_q: Tensor, taper: Parameter) -> Tensor:
    """Return log(q / (q + taper)), which is -inf at p = 1; 0 everywhere if the taper is 0."""
    if isinstance(taper, Tensor):
        log_q = clamp_log(log_q)  # avoids -inf - (-inf) at taper = 0
        return log_q - log_sum(taper, log_q)
    return logsigmoid(log_q - math.log(taper)) if taper > 0 else torch.zeros_like(log_q)


def _merge_breakpoints(terms: tuple[Weighting, ...]) -> tuple[float, ...]:
    return tuple(sorted({point for term in terms for point in term.breakpoints}))
