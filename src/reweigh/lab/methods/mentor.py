"""MentorNet's mentor (Jiang 2018): curricula as formulas, and the small net that learns to imitate them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

PERCENTS = 100  # the mentor counts training in percent, and calls that an epoch
_FREE = 18  # up to here the predefined curriculum admits everything
_FADE = 90  # from here it fades linearly


def predefined(delta: Tensor, epoch: Tensor | int, gamma: float = 1.0) -> Tensor:
    """PD's v*: 1 up to 18 %; 1[δ <= 0] up to 90 %; then clip(1 - δ / γ, 0, 1), of δ = loss - age.

    >>> predefined(torch.tensor([1.0, 0.0, 0.1, 0.4, 2.0, -1.0]), torch.tensor([18, 50, 50, 90, 95, 95]))
    tensor([1.0000, 1.0000, 0.0000, 0.6000, 0.0000, 1.0000])
    """
    epoch = torch.as_tensor(epoch, device=delta.device)
    faded = torch.where(epoch < _FADE, (delta <= 0).to(delta), (1 - delta / gamma).clamp(0, 1))
    return torch.where(epoch <= _FREE, 1.0, faded)


class Rows(NamedTuple):
    """What a mentor sees and should answer, all (M,)."""

    loss: Tensor
    delta: Tensor
    epoch: Tensor
    target: Tensor


class Mentor(nn.Module):
    """(loss, δ, epoch) -> v in [0, 1]; 757 numbers, of which 257 are trained.

    One step of a bidirectional LSTM with one unit, whose cell state is kept, beside a label embedding (an unused slot)
    and a frozen random embedding of the epoch; 20 tanh units; one output, with an ordinary bias.

    Args:
        generator: for all initial values.

    >>> mentor = Mentor(torch.Generator())
    >>> [sum(p.numel() for p in mentor.parameters() if p.requires_grad or not trained) for trained in (False, True)]
    [757, 257]
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()

        def normal(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator))

        limit = math.sqrt(6 / 7)  # Glorot's, for 3 inputs and 4 gates
        gates = 2 * limit * torch.rand(2, 4, 3, generator=generator) - limit
        self.gates, self.gate_bias = nn.Parameter(gates), nn.Parameter(torch.zeros(2, 4))
        self.label = nn.Parameter(2 * torch.rand(2, 2, generator=generator) - 1)
        epochs = 2 * torch.rand(PERCENTS, 5, generator=generator) - 1
        self.epochs = nn.Parameter(epochs, requires_grad=False)
        self.hidden, self.hidden_bias = normal(20, 9), nn.Parameter(torch.zeros(20))
        self.out, self.out_bias = normal(1, 20), nn.Parameter(torch.zeros(1))

    def forward(self, loss: Tensor, delta: Tensor, epoch: Tensor) -> Tensor:
        """Logits of v, (M,), in float32, autocast or not."""
        seen = torch.stack((loss, delta, torch.zeros_like(loss)), 1)  # the third input is the state, 0 at the start
        with torch.autocast(loss.device.type, enabled=False):
            gates = torch.einsum("mi,dgi->dmg", seen, self.gates) + self.gate_bias[:, None]
            cells = gates[..., 0].sigmoid() * gates[..., 1].tanh()
            parts = (self.label[:1].expand(len(loss), -1), self.epochs[epoch], cells.T)
            hidden = functional.linear(torch.cat(parts, 1), self.hidden, self.hidden_bias).tanh()
            return functional.linear(hidden, self.out, self.out_bias).squeeze(1)


def predefined_rows(generator: torch.Generator, size: int = 100_000) -> Rows:
    """A random sample of the published table: 120 losses x 100 δ x 100 epochs, with PD's target."""
    losses = torch.cat((torch.arange(100) / 10, torch.arange(10.0, 30.0)))
    deltas = (torch.arange(100) - 50) / 10
    chosen = torch.randperm(len(losses) * len(deltas) * PERCENTS, generator=generator)[:size]
    loss = losses[chosen % len(losses)]
    delta = deltas[chosen // len(losses) % len(deltas)]
    epoch = chosen // (len(losses) * len(deltas))
    return Rows(loss, delta, epoch, predefined(delta, epoch))


def train_mentor(mentor: Mentor, rows: Rows, generator: torch.Generator, steps: int = 30_000) -> None:
    """Adam on batches of 32, rate 0.1 x 0.9^(step // 1000), gradient norm clipped at 5.

    Binary cross entropy where all targets are 0 or 1, else the squared error of v.
    """
    binary = bool(((rows.target == 0) | (rows.target == 1)).all())
    trained = [parameter for parameter in mentor.parameters() if parameter.requires_grad]
    # fused, because on so few numbers nearly all the time would go into calls
    optimiser = torch.optim.Adam(trained, lr=0.1, fused=rows.loss.device.type in ("cpu", "cuda"))
    for step, chosen in enumerate(torch.randint(len(rows.loss), (steps, 32), generator=generator)):
        optimiser.param_groups[0]["lr"] = 0.1 * 0.9 ** (step // 1000)
        loss, delta, epoch, target = (column[chosen.to(column.device)] for column in rows)
        answer = mentor(loss, delta, epoch)
        if binary:
            error = functional.binary_cross_entropy_with_logits(answer, target)
        else:
            error = functional.mse_loss(answer.sigmoid(), target)
        optimiser.zero_grad()
        torch.autograd.backward(error)
        nn.utils.clip_grad_norm_(trained, 5.0)
        optimiser.step()
