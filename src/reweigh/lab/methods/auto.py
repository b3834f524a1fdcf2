"""`reweigh.Auto` in a run: robust training without knowing the noise."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from reweigh.auto import Auto as AutoLoss
from reweigh.checks import number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, constant_graph, eval_mode, without_gradients
from reweigh.lab.methods.device_values import DeviceNumber
from reweigh.lab.methods.protocol import Context
from reweigh.margin import at_least_float32

MOST_CLASSES = 20  # with more, a row has no confusion matrix


class Auto(BaseMethod):
    """The posterior of the true class, given opinion and label, as the target of each example (see `reweigh.Auto`).

    Args:
        beta: how much of an opinion is kept at each visit, in [0, 1).
        eps: the share of labels that the joint distribution starts from as noise, in (0, 1].
        tau: the sharpening of opinions, at least 1.
        kappa: how far class totals are drawn towards balanced classes, in [0, 1].
        lam: the strength of the anchor.
        average: without a memory of opinions, the decay of the averaged weights of a net whose predictions are the
            opinions, mixed with uniform ones at first; a second net, and a second forward pass. 0 remembers opinions.
    """

    saved: ClassVar[tuple[str, ...]] = ("auto", "averaged")
    capture_key = constant_graph

    def __init__(
        self,
        context: Context,
        beta: float = 0.9,
        eps: float = 0.5,
        tau: float = 2.0,
        kappa: float = 0.5,
        lam: float = 1.0,
        average: float = 0.0,
    ) -> None:
        super().__init__(context)
        self.average: float = number(0, 1, below=True)("Auto's average", average)
        n, c, remember = len(context.labels), context.num_classes, average == 0
        auto = AutoLoss(n, c, beta=beta, eps=eps, tau=tau, kappa=kappa, lam=lam, remember=remember)
        self.auto = auto.to(context.device)
        self.averaged: nn.Module | None = None
        self.certainty = DeviceNumber(context.device)
        if not remember:
            self.averaged = context.new_net("average")
            self.averaged.load_state_dict(self.net.state_dict())

    def prepare(self, step: int, size: int) -> None:
        self.certainty_at(step)

    def certainty_at(self, step: int) -> Tensor:
        """Return the share of the averaged net's prediction in an opinion, on the device; the rest is uniform."""
        return self.certainty.set(1 - self.average ** (step + 1))

    def loss(self, batch: Batch, step: int) -> Tensor:
        logits = self.net(batch.inputs)
        if self.averaged is None:
            return self.auto.forward(logits, batch.target, batch.index)
        with without_gradients():
            for mean, new in zip(self.averaged.state_dict().values(), self.net.state_dict().values(), strict=True):
                if mean.is_floating_point():
                    mean.lerp_(new, 1 - self.average)
                else:
                    mean.copy_(new)
        with eval_mode(self.averaged):
            p = at_least_float32(self.averaged(batch.inputs)).softmax(1)
        uniform = 1 / self.context.num_classes
        opinion = uniform + self.certainty_at(step) * (p - uniform)
        return self.auto.forward(logits, batch.target, opinion=opinion)

    def columns(self, clean: Tensor | None) -> dict[str, Any]:
        """Return the estimated noise rate and confusion, and the mean posterior of the given labels."""
        row: dict[str, Any] = {"noise_rate": self.auto.noise_rate}
        if self.context.num_classes <= MOST_CLASSES:
            row["confusion"] = [round(x, 6) for x in self.auto.confusion.flatten().tolist()]
        if self.averaged is not None:
            return row
        own = self.auto.posterior().gather(1, self.auto.labels.clamp_min(0).long()[:, None])[:, 0].cpu()
        row["posterior_mean"] = own.mean().item()
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
        if self.averaged is not None:
            return None
        return (torch.softmax(logits.float(), 1) - self.auto.posterior(index)).abs().sum(1)
