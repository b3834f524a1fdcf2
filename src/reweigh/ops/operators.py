"""The passes as operators of torch: known to autograd, torch.compile and CUDA graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.margin import known_labels, unit_direction
from reweigh.ops import entire


@torch.library.custom_op("reweigh::measure", mutates_args=())
def measure(logits: Tensor, target: Tensor, ignore_index: int, inplace: bool) -> Tensor:
    """Pass one: margin, top and rest, N numbers a line; only the margin has a derivative."""
    return entire.measure(logits, target.contiguous(), ignore_index)


@torch.library.custom_op("reweigh::emit", mutates_args=())
def emit(logits: Tensor, target: Tensor, book: Tensor, force: Tensor, ignore_index: int) -> Tensor:
    """Pass two: force_i (softmax over the others - onehot_y) / 2."""
    return entire.emit(logits, target.contiguous(), book, force, ignore_index, inplace=False)


@torch.library.custom_op("reweigh::emit_", mutates_args={"logits"})
def emit_(logits: Tensor, target: Tensor, book: Tensor, force: Tensor, ignore_index: int) -> None:
    """Pass two over the logits themselves."""
    entire.emit(logits, target.contiguous(), book, force, ignore_index, inplace=True)


@torch.library.custom_op("reweigh::rescale_", mutates_args={"sums"})
def rescale_(sums: Tensor, factor: Tensor) -> None:
    """sums *= factor, row by row or all at once."""
    entire.rescale(sums, factor)


@measure.register_fake
def _(logits: Tensor, target: Tensor, ignore_index: int, inplace: bool) -> Tensor:
    return logits.new_empty((3, logits.shape[0]), dtype=torch.float64)


@emit.register_fake
def _(logits: Tensor, target: Tensor, book: Tensor, force: Tensor, ignore_index: int) -> Tensor:
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, int, bool], output: Tensor) -> None:
    logits, target, ctx.ignore_index, ctx.inplace = inputs
    ctx.save_for_backward(logits, target, output)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
    logits, target, book = ctx.saved_tensors
    force = -2 * gradient[0]
    compiling = torch.compiler.is_compiling()
    if torch.is_grad_enabled() and not compiling:  # to be differentiated again
        direction = unit_direction(logits, known_labels(target, ctx.ignore_index)[0])
        return (force.to(direction.dtype)[:, None] * direction).to(logits.dtype), None, None, None
    if ctx.inplace and not compiling:
        emit_(logits.detach(), target, book, force, ctx.ignore_index)
        return logits.detach(), None, None, None
    return emit(logits, target, book, force, ctx.ignore_index), None, None, None


measure.register_autograd(_backward, setup_context=_keep)
