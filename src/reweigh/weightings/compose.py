"""Weightings out of weightings: sum, product, scale, taper, and parameters by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from reweigh.weightings.base import Kind, Weighting
from reweigh.weightings.parameter import Parameter, check, entries, floored, log_add, log_parameter, log_sum


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
        return _merge(self.terms)

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
        return _merge(self.terms)

    def __repr__(self) -> str:
        return " * ".join(f"({term!r})" if isinstance(term, Sum) else repr(term) for term in self.terms)


@dataclass(frozen=True, repr=False)
class Scaled(Weighting):
    """w = factor * w_1, where the factor is a number or a tensor with one entry per example.

    For dense prediction, (N, d1, ...), a tensor has one entry per example (N), or one per position.

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
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints

    def __repr__(self) -> str:
        inner = f"({self.weighting!r})" if isinstance(self.weighting, Sum) else repr(self.weighting)
        return f"{self.factor!r} * {inner}"


@dataclass(frozen=True)
class Tapered(Weighting):
    """w = w_1 q / (q + taper): the taper *inside* the normalisation (the criterion's own comes after it).

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
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints


@dataclass(frozen=True)
class PerClass(Weighting):
    """A weighting whose tensor parameters have one entry per class: each example uses those of its label.

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
        """Reads the last dimension as the class; a criterion picks by label instead, through `select`."""
        return self.weighting.log_weight(log_p, log_q)

    @property
    def breakpoints(self) -> tuple[float, ...]:
        return self.weighting.breakpoints


def inner(weighting: Weighting) -> tuple[Any, ...]:
    """The parameters of a weighting and the weightings in it, in the order of its fields.

    torch 2.6 compiles neither vars() nor is_dataclass() nor dataclasses.replace(), so a compiled step meets none.

    >>> from reweigh.weightings import DM
    >>> inner(DM(0.5, 8))
    (0.5, 8)
    """
    return tuple([getattr(weighting, name) for name in names_of(type(weighting))])


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch's
def names_of(kind: type) -> tuple[str, ...]:
    """The names of a weighting's fields; one that is no dataclass has none."""
    return tuple([field.name for field in fields(kind)]) if is_dataclass(kind) else ()


def has_classes(part: Any) -> bool:
    """Whether a `PerClass` stands anywhere in a weighting: only then does a criterion look for its parameters."""
    if isinstance(part, tuple):
        return any(map(has_classes, part))
    if not isinstance(part, Weighting):
        return False
    return isinstance(part, PerClass) or has_classes(inner(part))


def has_examples(part: Any) -> bool:
    """Whether a tensor with entries stands outside every `PerClass`: they belong to examples."""
    if isinstance(part, Tensor):
        return part.ndim > 0
    if isinstance(part, tuple):
        return any(map(has_examples, part))
    if not isinstance(part, Weighting) or isinstance(part, PerClass):
        return False
    return has_examples(inner(part))


def may_learn(part: Any) -> bool:
    """Whether something in a weighting may have a gradient of its own: a tensor that requires one, or any function."""
    if isinstance(part, Tensor):
        return part.requires_grad
    if isinstance(part, tuple):
        return any(map(may_learn, part))
    if isinstance(part, Weighting):
        return may_learn(inner(part))
    return callable(part)


def is_tapered(weighting: Weighting) -> bool:
    """Whether w already lets go of an example that is right: `Tapered` itself, or made of what is.

    >>> from reweigh.weightings import DM, MAE
    >>> is_tapered(2 * Tapered(DM(0.5, 8)) + MAE()), is_tapered(Tapered(DM(0.5, 8)) + DM(0.5, 8))
    (True, False)
    """
    if isinstance(weighting, (Scaled, PerClass)):
        return is_tapered(weighting.weighting)
    if isinstance(weighting, Product):
        return any(map(is_tapered, weighting.terms))
    if isinstance(weighting, Sum):  # a loss lets go by itself
        return all(term.kind == "loss" or is_tapered(term) for term in weighting.terms)
    return isinstance(weighting, Tapered)


def select(part: Any, target: Tensor, num_classes: int | None = None, *, inside: bool = False) -> Any:
    """The weighting with every tensor below a `PerClass` replaced by its entries at `target`.

    Refused where a tensor has not one entry for each of `num_classes`, unless that is None.
    """
    if isinstance(part, PerClass):
        return select(part.weighting, target, num_classes, inside=True)
    if inside and isinstance(part, Tensor) and part.ndim > 0:
        if num_classes is not None and part.shape[0] != num_classes:
            raise ValueError(
                f"PerClass: a tensor must have one entry for each of the {num_classes} classes, "
                f"got shape {tuple(part.shape)}"
            )
        return entries(part, target)
    if isinstance(part, tuple):
        return tuple([select(each, target, num_classes, inside=inside) for each in part])
    if isinstance(part, Weighting):
        chosen = {
            name: select(getattr(part, name), target, num_classes, inside=inside) for name in names_of(type(part))
        }
        return type(part)(**chosen) if chosen else part
    return part


def lead(x: Tensor, positions: Sequence[int], name: str) -> Tensor:
    """x along the leading dimensions of `positions`, where 1 stands for any size: (N) becomes (N, 1, ...).

    >>> lead(torch.ones(2), (2, 5, 7), "sample_weight").shape
    torch.Size([2, 1, 1])
    """
    missing, along = len(positions) - x.ndim, positions[: x.ndim]  # cut, since torch 2.6 compiles zip() as strict
    if missing < 0 or any(size not in (1, whole) for size, whole in zip(x.shape, along, strict=True)):
        raise ValueError(
            f"{name} must be shaped {tuple(positions)} or a leading part of that, such as one entry per example, "
            f"got {tuple(x.shape)}"
        )
    return x.reshape(x.shape + (1,) * missing)


def align(part: Any, positions: Sequence[int]) -> Any:
    """The weighting with every tensor outside a `PerClass` along the leading dimensions of `positions`.

    So that one entry per example is one per example for dense prediction, too.
    """
    if isinstance(part, Tensor):
        if part.ndim == 0 or len(positions) < 2:  # where the first dimension is the last
            return part
        return lead(part, positions, "a tensor in a weighting or as taper, if not in PerClass,")
    if isinstance(part, tuple):
        return tuple([align(each, positions) for each in part])
    if isinstance(part, Weighting) and not isinstance(part, PerClass):
        aligned = {name: align(getattr(part, name), positions) for name in names_of(type(part))}
        return type(part)(**aligned) if aligned else part
    return part


def log_taper(log_q: Tensor, taper: Parameter) -> Tensor:
    """log(q / (q + taper)): what lets go of an example that is already right; 0 at taper 0."""
    if not isinstance(taper, Tensor) and taper == 0:
        return torch.zeros_like(log_q)
    # at q = 0 and taper > 0 the limit is -inf; the floor keeps -inf - (-inf) out of taper = 0 tensors
    log_q = floored(log_q)
    return log_q - log_sum(taper, log_q)


def _merge(terms: tuple[Weighting, ...]) -> tuple[float, ...]:
    return tuple(sorted({point for term in terms for point in term.breakpoints}))
