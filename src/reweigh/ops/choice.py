"""Whether kernels take a call. Nothing here imports triton until one does."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor, nn

from reweigh.margin import is_transformed
from reweigh.ops.forms import OTHER, form_of
from reweigh.ops.repeat import Repeat, lies_in_memory, remember
from reweigh.weightings import Weighting
from reweigh.weightings.parameter import Parameter

ALLOWED = os.environ.get("REWEIGH_KERNELS", "on").lower() != "off"
ENABLED = ALLOWED and find_spec("triton") is not None
DEVICES = ("cuda",)
# A label to ignore that none is.
NO_INDEX = -(2**31)
TYPES = (torch.float16, torch.bfloat16, torch.float32)
PLAIN = (Tensor, nn.Parameter)
# A kernel divides by q + taper in float32.
LEAST_TAPER = 1e-30


def usable(logits: Tensor, target: Tensor | None = None) -> bool:
    """Logits (N, C) of at most 32 bits on a GPU, rows that lie in one piece, and class indices.

    Not under `torch.func` transforms or for tensor subclasses, whose values are not where a kernel would look.
    """
    return (
        ENABLED
        and logits.device.type in DEVICES
        and logits.dtype in TYPES
        and logits.ndim == 2
        and logits.numel() > 0
        and logits.stride(1) == 1
        and type(logits) in PLAIN
        and (target is None or _indices(target, logits))
        and (torch.compiler.is_compiling() or (not is_transformed() and lies_in_memory(logits)))
    )


def is_intercepted() -> bool:
    """Whether something is to see every operator of torch: a compiler, or a mode of its dispatcher.

    Such a mode traces, counts, keeps for a checkpoint, or gives tensors without memory; what is launched past it would
    be lost, or be written to nowhere.
    """
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def margin(logits: Tensor, target: Tensor, ignore_index: int, inplace: bool) -> Tensor:
    """`reweigh.margin.margin` of usable logits; +inf, and no derivative, for a row with the label `ignore_index`.

    With `inplace` the backward pass writes the gradient over the logits.
    """
    from reweigh.ops.operators import measure

    book: Tensor = measure(logits, target, ignore_index, inplace and _may_overwrite(logits))
    return book[0]


def margin_and_push(logits: Tensor, target: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The margins of usable logits, and what writes force_i (softmax over the others - onehot_y) / 2 over them."""
    from reweigh.ops.operators import emit_, measure

    book: Tensor = measure(logits, target, NO_INDEX, False)

    def push(force: Tensor) -> Tensor:
        emit_(logits, target, book, force, NO_INDEX)
        return logits

    return book[0], push


def rescale(sums: Tensor, factor: Tensor) -> None:
    """sums *= factor for usable sums (N, C), and next to nothing where that is 1."""
    from reweigh.ops.operators import rescale_

    rescale_(sums, factor)


class Settings(Protocol):
    """What of a criterion's options is needed here."""

    @property
    def weighting(self) -> Weighting: ...
    @property
    def taper(self) -> Parameter: ...
    @property
    def batch(self) -> bool: ...
    @property
    def reduction(self) -> str: ...
    @property
    def repeats(self) -> dict[torch.Size, Repeat]: ...


def whole(
    logits: Tensor,
    target: Tensor,
    settings: Settings,
    weight: Tensor | None,
    ignore_index: int,
    sample_weight: Tensor | None,
    inplace: bool,
    again: Callable[[Tensor, Tensor], Tensor],
    log_weight: Callable[[Tensor, Tensor, int], Tensor],
) -> Tensor | None:
    """The cross entropy and the designed gradient of usable logits, where kernels can do all but log w; else None.

    `again` gives the same from logits and labels another way, for a second derivative or a second backward pass;
    `log_weight(margins, target, C)` in plain torch what no kernel knows.
    """
    taper = settings.taper
    if is_intercepted() or isinstance(taper, Tensor) or 0 < taper < LEAST_TAPER:
        return None
    if not all(x is None or is_factor(x, logits, dim) for dim, x in enumerate((sample_weight, weight))):
        return None
    from reweigh.ops.entire import Whole, plan
    from reweigh.ops.launch import Weights

    # of C++: the one in Python around it asks what has been asked already
    apply: Callable[..., Tensor] = super(torch.autograd.Function, Whole).apply
    target = target.contiguous()
    if not torch.is_grad_enabled():  # or autograd would say that a leaf needs its gradient, which may take its place
        logits = logits.detach()
    form = form_of(settings.weighting) or OTHER
    weights = Weights(form, float(taper), settings.batch, settings.reduction, ignore_index)
    overwrite = inplace and _may_overwrite(logits)
    made = plan(logits, target, weights, (weight, sample_weight), overwrite, again, log_weight)
    if weight is None and sample_weight is None:
        remember(settings.repeats, apply, made, logits, target)
    value: Tensor = apply(logits, target, made)
    return value


def weighed(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    inplace: bool,
    weigh: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    again: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The value and the designed gradient of usable logits, `weigh(logits, target, margins)` -> (value, c) given.

    Margins are +inf for a row with the label `ignore_index`; c is what a row's direction is multiplied by. `again` is
    as in `whole`.
    """
    from reweigh.ops.entire import Weighed

    arguments = (logits, target.contiguous(), ignore_index, inplace and _may_overwrite(logits), weigh, again)
    return Weighed.apply(*arguments)  # type: ignore[no-any-return, no-untyped-call]


def _may_overwrite(logits: Tensor) -> bool:
    """Whether rows are apart in memory; refused for a tensor that somebody trains, whose logits must not be lost."""
    if logits.is_leaf and logits.requires_grad and torch.is_grad_enabled():
        raise ValueError("inplace=True would overwrite the logits, but these are a leaf that requires grad; clone them")
    return logits.stride(0) >= logits.shape[1]


def _indices(target: Tensor, logits: Tensor) -> bool:
    integer = not (target.is_floating_point() or target.is_complex() or target.dtype == torch.bool)
    return integer and target.shape == logits.shape[:1] and target.device == logits.device


def is_factor(x: Tensor, logits: Tensor, dim: int) -> bool:
    """Whether a kernel can read a factor per row (dim 0) or per class (dim 1), and nobody wants its derivative."""
    return (
        x.ndim == 1
        and len(x) == logits.shape[dim]
        and x.is_contiguous()
        and x.is_floating_point()
        and x.device == logits.device
        and not x.requires_grad
    )
