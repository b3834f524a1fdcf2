"""Masking's small adversaries: a generator of transition matrices and a critic of their structure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.spec.expression import Expression

_NOISE = 10


def softened(matrices: Tensor) -> Tensor:
    """S' = sigmoid((S - 0.05) / 0.005): nearly 1 where a transition happens, nearly 0 where it does not.

    >>> softened(torch.tensor([0.05, 0.06, 0.03]))
    tensor([0.5000, 0.8808, 0.0180])
    """
    return ((matrices - 0.05) / 0.005).sigmoid()


def layer(inputs: int, outputs: int, draws: torch.Generator) -> nn.Linear:
    """A linear layer with Glorot's uniform weights and zero biases."""
    linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # torch's own values are global draws
    limit = (6 / (inputs + outputs)) ** 0.5
    with torch.no_grad():
        linear.weight.copy_(2 * limit * torch.rand(linear.weight.shape, generator=draws) - limit)
        linear.bias.zero_()
    return linear


class Generator(nn.Module):
    """Noise (B, 10) - 50 ReLU - 50 ReLU - C², softmax over rows: one transition matrix per example.

    Args:
        classes: C.
        draws: for the initial values.
    """

    def __init__(self, classes: int, draws: torch.Generator) -> None:
        super().__init__()
        self.classes = classes
        self.layers = nn.Sequential(
            layer(_NOISE, 50, draws), nn.ReLU(), layer(50, 50, draws), nn.ReLU(), layer(50, classes**2, draws)
        )

    def forward(self, noise: Tensor) -> Tensor:
        """(B, C, C) logarithms, in float32, autocast or not."""
        with torch.autocast(noise.device.type, enabled=False):
            raw: Tensor = self.layers(noise)
            return raw.reshape(-1, self.classes, self.classes).log_softmax(-1)


class Critic(nn.Module):
    """Matrix - 20 sigmoid - 1 linear: high for the allowed structure.

    Args:
        classes: C.
        draws: for the initial values.
    """

    def __init__(self, classes: int, draws: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.Sequential(layer(classes**2, 20, draws), nn.Sigmoid(), layer(20, 1, draws))

    def forward(self, matrices: Tensor) -> Tensor:
        """The mean score of (B, C, C), in float32, autocast or not."""
        with torch.autocast(matrices.device.type, enabled=False):
            scores: Tensor = self.layers(matrices.flatten(-2))
            return scores.mean()


def draw_noise(size: int, draws: torch.Generator, device: torch.device) -> Tensor:
    """(B, 10) standard normal numbers."""
    return torch.randn(size, _NOISE, generator=draws).to(device)


def pretrain(generator: Generator, matrix: Tensor, draws: torch.Generator, steps: int, size: int = 128) -> None:
    """Bring the generator's matrices near an estimated one, by row cross entropy and RMSProp at 1e-4."""
    optimiser = torch.optim.RMSprop(generator.parameters(), lr=1e-4)
    for _ in range(steps):
        log_s = generator(draw_noise(size, draws, matrix.device))
        optimiser.zero_grad()
        (-(matrix * log_s).sum(-1).mean()).backward()
        optimiser.step()


def checked_mask(mask: Any, classes: int) -> Tensor:
    """A C x C table of 0 and 1 with a diagonal of 1, as float32."""
    try:
        table = torch.as_tensor(mask, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        table = torch.empty(0)
    if isinstance(mask, Expression) or table.shape != (classes, classes) or not ((table == 0) | (table == 1)).all():
        raise ValueError(f"Masking's mask must be {classes} rows of {classes} numbers 0 or 1, not {mask}")
    if not (table.diagonal() == 1).all():
        raise ValueError("Masking's mask must have 1 on its diagonal: a label may be right")
    return table


def confusion(logits: Tensor, target: Tensor) -> Tensor:
    """(C, C) soft confusion, T[i, j] = Σ p_i 1[y = j] / Σ p_i."""
    p = logits.softmax(1)
    joint = p.T @ functional.one_hot(target, p.shape[1]).to(p)
    return joint / joint.sum(1, keepdim=True).clamp_min(1e-30)


def anchors(logits: Tensor) -> Tensor:
    """(C, C) row i is the prediction for the example with the largest p_i."""
    p = logits.softmax(1)
    return p[p.argmax(0)]
