"""`reweigh.Auto` in a run: robust training without knowing the noise."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from reweigh.auto import Auto as AutoLoss
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph
from reweigh.lab.methods.protocol import Context

MOST_CLASSES = 20  # with more, a row has no confusion matrix


class Auto(BaseMethod):
    """The posterior of the true class, given opinion and label, as the target of each example (see `reweigh.Auto`).

    Args:
        beta: how much of an opinion is kept at each visit, in [0, 1).
        eps: the share of labels that the joint distribution starts from as noise, in (0, 1].
        tau: the sharpening of opinions, at least 1.
        kappa: how far class totals are drawn towards balanced classes, in [0, 1].
        lam: the strength of the anchor.
    """

    saved: ClassVar[tuple[str, ...]] = ("auto",)
    capture_key = constant_graph

    def __init__(
        self,
        context: Context,
        beta: float = 0.9,
        eps: float = 0.5,
        tau: float = 2.0,
        kappa: float = 0.5,
        lam: float = 1.0,
    ) -> None:
        super().__init__(context)
        self.auto = AutoLoss(
            len(context.labels), context.num_classes, beta=beta, eps=eps, tau=tau, kappa=kappa, lam=lam
        ).to(context.device)

    def loss(self, batch: Batch, step: int) -> Tensor:
        loss: Tensor = self.auto(self.net(batch.inputs), batch.target, batch.index)
        return loss

    def columns(self, clean: Tensor | None) -> dict[str, Any]:
        """Return the estimated noise rate and confusion, and the mean posterior of the given labels."""
        own = self.auto.posterior().gather(1, self.auto.labels.clamp_min(0).long()[:, None])[:, 0].cpu()
        row: dict[str, Any] = {"noise_rate": self.auto.noise_rate, "posterior_mean": own.mean().item()}
        if self.context.num_classes <= MOST_CLASSES:
            row["confusion"] = [round(x, 6) for x in self.auto.confusion.flatten().tolist()]
        if clean is not None:
            is_clean = torch.from_numpy(self.context.labels.copy()) == clean
            row["posterior_clean"] = own[is_clean].mean().item()
            row["posterior_noisy"] = own[~is_clean].mean().item()
        return row

    def posteriors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return (N, C) posteriors of the true class, their means over training, and opinions."""
        return self.auto.posterior(), self.auto.posteriors, self.auto.opinions

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        """Return |p - r|_1, the norm of the derivative without the anchor."""
        return (torch.softmax(logits.float(), 1) - self.auto.posterior(index)).abs().sum(1)
