"""Self-ensemble label correction (Lu & He 2022)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch
from reweigh.lab.methods.protocol import Context
from reweigh.losses.loss import expected
from reweigh.margin import at_least_float32


class SELC(BaseMethod):
    """Cross entropy with the target t_i, a running mean of the net's predictions that starts as the label.

    The first `start` epochs train on the labels. Afterwards t_i ← α t_i + (1 - α) p_i at each visit, p_i a constant,
    and then the loss is that of t_i. An example that occurs twice in a batch is averaged once.

    Args:
        alpha: α in [0, 1); published is 0.9.
        start: epochs of cross entropy; the program's class has 10, its trainings more, as long as memorisation takes.
    """

    times: ClassVar[dict[str, int]] = {"start": 0}
    saved: ClassVar[tuple[str, ...]] = ("t",)

    def __init__(self, context: Context, alpha: float = 0.9, start: int = 10) -> None:
        super().__init__(context)
        self.alpha: float = number(0, 1, below=True)("SELC's alpha", alpha)
        self.start = check_start_epoch(context, "SELC's start", start)
        labels = torch.tensor(context.labels, device=context.device)
        self.t = functional.one_hot(labels, context.num_classes).float()

    def capture_key(self, step: int) -> bool:
        return self.corrects(step)

    def corrects(self, step: int) -> bool:
        """Return whether targets are corrected at this step."""
        return step >= self.start * self.context.epoch

    def loss(self, batch: Batch, step: int) -> Tensor:
        log_p = at_least_float32(self.net(batch.inputs)).log_softmax(1)
        if not self.corrects(step):
            return functional.nll_loss(log_p, batch.target)
        t = self.alpha * self.t[batch.index] + (1 - self.alpha) * log_p.detach().exp()
        self.t[batch.index] = t.to(self.t.dtype)
        return -expected(t, log_p).mean()
