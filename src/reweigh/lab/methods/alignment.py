"""How much a step on each example would help others: the inner products behind learned weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from reweigh.lab.batches import Batch
from reweigh.lab.methods.teaching import backwards, row_losses


def alignments(losses: Tensor, parameters: Sequence[Tensor], direction: Sequence[Tensor]) -> Tensor:
    """(B,) u_i = <∇ l_i, direction>, for all examples by one double backward pass; the graph of `losses` is kept.

    With G(ε) = ∇ Σ ε_i l_i, which is linear in ε, u = ∂ <G(ε), direction> / ∂ε.
    """
    epsilon = torch.zeros_like(losses, requires_grad=True)
    with backwards(losses):
        gradients = torch.autograd.grad((epsilon * losses).sum(), parameters, create_graph=True, allow_unused=True)
        pairs = zip(gradients, direction, strict=True)
        total = torch.stack([(g * d).sum() for g, d in pairs if g is not None]).sum()
        (u,) = torch.autograd.grad(total, epsilon, retain_graph=True)
    return u


def trusted_gradient(net: nn.Module, parameters: Mapping[str, Tensor], batch: Batch) -> list[Tensor]:
    """∇ of the mean cross entropy of a trusted batch at `parameters`; the net's running statistics stay untouched."""
    at = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    logits = functional_call(net, (at, buffers), (batch.inputs,))
    loss = row_losses(logits, batch.target).mean()
    with backwards(loss):
        gradients = torch.autograd.grad(loss, list(at.values()), allow_unused=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(at.values(), gradients, strict=True)
    ]


def trained(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name."""
    return {name: parameter for name, parameter in net.named_parameters() if parameter.requires_grad}
