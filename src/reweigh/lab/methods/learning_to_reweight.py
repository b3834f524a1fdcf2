"""Learning to Reweight (Ren 2018)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from reweigh.lab.batches import Batch
from reweigh.lab.methods.alignment import alignments, trained, trusted_gradient
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching, alike, row_losses
from reweigh.lab.methods.trusted import Planned, trusted_batches


class LearningToReweight(Teaching):
    """L = Σ w_i l_i, w ∝ max(u, 0), u_i = <∇ of the trusted loss, ∇ l_i>; the weights of a batch sum to 1 or are all 0.

    The published look-ahead step and its derivative at ε = 0 give exactly these inner products, times a rate that
    cancels. Weight decay stays outside.

    Args:
        clean_batch: trusted examples per iteration.
    """

    capture_key = alike
    differentiates_twice: ClassVar[bool] = True

    def __init__(self, context: Context, clean_batch: int = 100) -> None:
        super().__init__(context)
        self.clean = Planned(trusted_batches("LearningToReweight", context, clean_batch))

    def prepare(self, step: int, size: int) -> None:
        self.clean.prepare(step)

    def loss(self, batch: Batch, step: int) -> Tensor:
        parameters = trained(self.net)
        direction = trusted_gradient(self.net, parameters, self.clean.batch(step))
        losses = row_losses(self.net(batch.inputs), batch.target)
        w = shares(alignments(losses, list(parameters.values()), direction))
        return (w * losses).sum()


def shares(u: Tensor) -> Tensor:
    """max(u, 0) / Σ max(u, 0), or zeros.

    >>> import torch
    >>> shares(torch.tensor([3.0, -1.0, 1.0])), shares(torch.tensor([-1.0, 0.0]))
    (tensor([0.7500, 0.0000, 0.2500]), tensor([0., 0.]))
    """
    positive = u.clamp_min(0)
    total = positive.sum()
    return positive / (total + (total == 0))
