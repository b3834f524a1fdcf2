"""ProSelfLC (Wang 2021): trust in the model's prediction grows with time and with its confidence."""

from __future__ import annotations

import math

from torch import Tensor

from reweigh.checks import flag, number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph
from reweigh.lab.methods.device_values import DeviceNumber
from reweigh.lab.methods.protocol import Context
from reweigh.losses.loss import expected, pick
from reweigh.margin import at_least_float32


class ProSelfLC(BaseMethod):
    """Cross entropy with the target (1 - ε) e_y + ε p, ε = g(t) l(p).

    g(t) = 1 / (1 + exp(-B (t / Γ - transit))) over Γ iterations, l(p) = 1 - H(p) / log C; ε carries no gradient.

    Args:
        B: steepness of g; published are 8 to 16, smaller at higher noise.
        transit: the fraction of training at which g = 1/2.
        detach: treat p in the target as a constant; the published program does not, and so lowers the entropy too.
    """

    capture_key = constant_graph

    def __init__(self, context: Context, B: float = 10.0, transit: float = 0.5, detach: bool = False) -> None:
        super().__init__(context)
        self.B: float = number(0)("ProSelfLC's B", B)
        self.transit: float = number(0, 1)("ProSelfLC's transit", transit)
        self.detach = flag("ProSelfLC's detach", detach)
        self.divisor = DeviceNumber(context.device)

    def prepare(self, step: int, size: int) -> None:
        self.inverse_growth_at(step)

    def inverse_growth_at(self, step: int) -> Tensor:
        """Return 1 / g(t), on the device."""
        return self.divisor.set(inverse_growth(step / self.context.total, self.B, self.transit))

    def loss(self, batch: Batch, step: int) -> Tensor:
        log_p = at_least_float32(self.net(batch.inputs)).log_softmax(1)
        trust = certainty(log_p.detach()) / self.inverse_growth_at(step)
        p = log_p.detach().exp() if self.detach else log_p.exp()
        return -((1 - trust) * pick(log_p, batch.target) + trust * expected(p, log_p)).mean()


def own_trust(log_p: Tensor, time: float, B: float, transit: float = 0.5) -> Tensor:
    """Return (B,) ε = g(t) l(p).

    >>> import torch
    >>> own_trust(torch.tensor([[0.7, 0.2, 0.1]]).log(), 0.75, 10.0)
    tensor([0.2497])
    """
    return certainty(log_p) / inverse_growth(time, B, transit)


def certainty(log_p: Tensor) -> Tensor:
    """Return (B,) l(p) = 1 - H(p) / log C, at least 0."""
    return (1 + expected(log_p.exp(), log_p) / math.log(log_p.shape[1])).clamp_min(0)


def inverse_growth(time: float, B: float, transit: float) -> float:
    """Return 1 / g(t)."""
    return 1 + math.exp(min(700.0, -B * (time - transit)))  # math.exp overflows above
