"""M-DYR-H and MD-DYR-SH (Arazo 2019): mixup, and bootstrapping by a mixture model of the losses."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import ClassVar

import torch
from torch import Tensor

from reweigh.checks import integer, number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch, eval_mode, logits_of, row_losses, without_gradients
from reweigh.lab.methods.device_values import DeviceDraws, DeviceNumber, widest
from reweigh.lab.methods.protocol import Context
from reweigh.labels.beta_mixture import fit, look_up, scaled
from reweigh.margin import at_least_float32
from reweigh.streams import generator, numpy_generator


class MDYRH(BaseMethod):
    """M-DYR-H: mixup with one λ ~ Beta(α, α) per batch and hard bootstrapping by w = P(label is noisy).

    L = λ [(1 - w_a) CE(y_a) + w_a CE(z_a)] + (1 - λ) [the same with b] + η Σ_c (1/C) log((1/C) / mean p_c), where z is
    the prediction for the image before mixing, in training mode. w is evaluated at the example's current loss, in
    evaluation mode; the mixture is fitted at the end of every epoch to the losses of that epoch's augmented batches.
    The first `warm_up` epochs are plain mixup.

    Args:
        warm_up: epochs of plain mixup.
        alpha: α of mixup.
        eta: η of the regulariser.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}
    saved: ClassVar[tuple[str, ...]] = ("table", "low", "high")

    def __init__(self, context: Context, warm_up: int = 105, alpha: float = 32.0, eta: float = 1.0) -> None:
        super().__init__(context)
        self.warm_up = check_start_epoch(context, f"{type(self).__name__}'s warm_up", warm_up)
        self.alpha: float = number(0, above=True)(f"{type(self).__name__}'s alpha", alpha)
        self.eta: float = number(0)(f"{type(self).__name__}'s eta", eta)
        self.table: Tensor | None = None
        self.low, self.high = 0.0, 1.0
        self.least, self.most = DeviceNumber(context.device), DeviceNumber(context.device)
        self.mixing = DeviceDraws(lambda step, size: self.draw(size, step), context.device)

    def capture_key(self, step: int) -> Hashable:
        return step // self.context.epoch < self.warm_up, self.table is None

    def prepare(self, step: int, size: int) -> None:
        self.mixing.at(step, size)
        self.least.set(self.low)
        self.most.set(self.high)

    def loss(self, batch: Batch, step: int) -> Tensor:
        share, order = self.mixing.at(step, len(batch.inputs))
        mixed = share * batch.inputs + (1 - share) * batch.inputs[order]
        if step // self.context.epoch < self.warm_up:
            return mixup_loss(self.net(mixed), batch.target, order, share)
        w, guess = self.wrong(batch), self.prediction(batch).argmax(1)
        logits = self.net(mixed)
        return bootstrapped(logits, batch.target, guess, w, order, share) + self.eta * spread(logits)

    def draw(self, size: int, step: int) -> tuple[Tensor, Tensor]:
        """Draw λ and the partner of each example, on the host."""
        share = numpy_generator(self.context.seed, "mixup", step).beta(self.alpha, self.alpha)
        order = torch.randperm(size, generator=generator(self.context.seed, "mixup", step))
        return torch.tensor(share, dtype=widest(self.context.device)), order

    def wrong(self, batch: Batch) -> Tensor:
        """Return (B,) w; 1/2 before the first mixture is fitted."""
        if self.table is None:
            return torch.full(batch.target.shape, 0.5, device=batch.target.device)
        with eval_mode(self.net):
            losses = row_losses(self.net(batch.inputs), batch.target)
        low, high = self.least.set(self.low), self.most.set(self.high)
        return look_up(self.table, (losses - low) / (high - low + 1e-6)).float()

    def prediction(self, batch: Batch) -> Tensor:
        """Return (B, C) logits of the inputs before mixing, in training mode."""
        with without_gradients():
            return at_least_float32(self.net(batch.inputs))

    def epoch_end(self, epoch: int) -> None:
        if epoch + 1 < self.warm_up:
            return
        steps = self.context.epoch
        logits, target, _ = logits_of(self.net, self.context.batches.iterate(epoch * steps, (epoch + 1) * steps))
        losses = row_losses(logits, target).double().cpu().numpy()
        x, self.low, self.high = scaled(losses)
        table = fit(x).table().to(self.context.device, torch.float32)
        self.table = table if self.table is None else self.table.copy_(table)


class MDDYRSH(MDYRH):
    """MD-DYR-SH: mix inputs in proportion to how clean they are, and bootstrap labels from soft to hard.

    x = (1 - w_a) / ((1 - w_a) + (1 - w_b)) x_a + the complement x_b; the label terms weigh 1/2 each, and the bootstrap
    target is softmax(z / temperature), the temperature falling linearly from 1 to 0.001. In the epochs between
    `warm_up` and `soft_from` the inputs are mixed in this way and the labels by one λ ~ Beta(α, α).

    Args:
        warm_up: epochs of plain mixup.
        soft_from: the first epoch, from 0, with bootstrapping; not before warm_up.
        cooling: epochs over which the temperature falls.
        alpha, eta: as in `MDYRH`.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0, "soft_from": 0, "cooling": 1}

    def __init__(
        self,
        context: Context,
        warm_up: int = 105,
        soft_from: int = 110,
        cooling: int = 89,
        alpha: float = 32.0,
        eta: float = 1.0,
    ) -> None:
        super().__init__(context, warm_up, alpha, eta)
        self.soft_from = check_start_epoch(context, "MDDYRSH's soft_from", soft_from)
        if self.soft_from < self.warm_up:
            raise ValueError(f"MDDYRSH's soft_from is {soft_from}, before the end of its warm_up, {warm_up}")
        self.cooling: int = integer(1)("MDDYRSH's cooling", cooling)
        self.heat = DeviceNumber(context.device)

    def capture_key(self, step: int) -> Hashable:
        return super().capture_key(step), step // self.context.epoch < self.soft_from

    def prepare(self, step: int, size: int) -> None:
        super().prepare(step, size)
        self.heat.set(self.temperature(step // self.context.epoch))

    def loss(self, batch: Batch, step: int) -> Tensor:
        epoch = step // self.context.epoch
        if epoch < self.warm_up:
            return super().loss(batch, step)
        share, order = self.mixing.at(step, len(batch.inputs))
        w = self.wrong(batch)
        if epoch < self.soft_from:
            return mixup_loss(self.net(dynamic_mix(batch.inputs, w, order)), batch.target, order, share)
        guess = (self.prediction(batch) / self.heat.set(self.temperature(epoch))).softmax(1)
        logits = self.net(dynamic_mix(batch.inputs, w, order))
        return bootstrapped(logits, batch.target, guess, w, order, 0.5) + self.eta * spread(logits)

    def temperature(self, epoch: int) -> float:
        """Return the temperature: 1 in the first bootstrapping epoch, falling to 0.001."""
        passed = min(epoch - self.soft_from, self.cooling - 1) / max(1, self.cooling - 1)
        return 1 + (0.001 - 1) * passed


def mixup_loss(logits: Tensor, target: Tensor, order: Tensor, share: float | Tensor) -> Tensor:
    """Return λ CE(y_a) + (1 - λ) CE(y_b), where y_b = target[order]."""
    return (share * row_losses(logits, target) + (1 - share) * row_losses(logits, target[order])).mean()


def bootstrapped(
    logits: Tensor, target: Tensor, guess: Tensor, w: Tensor, order: Tensor, share: float | Tensor
) -> Tensor:
    """Return the mixup of (1 - w) CE(y) + w CE(guess); `guess` holds class indices or probabilities."""
    own = (1 - w) * row_losses(logits, target) + w * row_losses(logits, guess)
    partner = (1 - w[order]) * row_losses(logits, target[order]) + w[order] * row_losses(logits, guess[order])
    return (share * own + (1 - share) * partner).mean()


def dynamic_mix(inputs: Tensor, w: Tensor, order: Tensor) -> Tensor:
    """Mix each input with its partner in proportion to how clean they are.

    >>> dynamic_mix(torch.tensor([[0.0], [4.0]]), torch.tensor([0.3, 0.3]), torch.tensor([1, 0])).T
    tensor([[2., 2.]])
    """
    clean = 1 - w
    part = (clean / (clean + clean[order])).reshape(-1, *(1,) * (inputs.ndim - 1))
    return part * inputs + (1 - part) * inputs[order]


def spread(logits: Tensor) -> Tensor:
    """Return Σ_c (1/C) log((1/C) / mean p_c), which is 0 if the batch's mean prediction is uniform."""
    log_p = at_least_float32(logits).log_softmax(1)
    log_mean = log_p.logsumexp(0) - math.log(len(log_p))
    return -math.log(log_p.shape[1]) - log_mean.mean()
