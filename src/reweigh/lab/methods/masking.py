"""Masking (Han 2018): a noise channel whose structure a person prescribes and an adversary enforces."""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from reweigh.checks import integer, number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.cell import Drawn
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.s_adaptation import channel_losses
from reweigh.lab.methods.structure import (
    Critic,
    Generator,
    anchors,
    checked_mask,
    confusion,
    draw_noise,
    pretrain,
    softened,
)
from reweigh.lab.methods.teaching import Teaching, backwards, logits_of, row_losses, starting_epoch
from reweigh.streams import generator


class Masking(Teaching):
    """L = -log (p S)_y through a generated matrix S per example, whose structure must pass for the prescribed mask.

    After `warm_up` epochs of cross entropy, the generator is trained to match a transition matrix estimated from the
    classifier. Then, in each iteration: one RMSProp step of generator and classifier on L - D(S'), five of the critic D
    on D(S') - D(mask), and the run's optimiser on L; S' is S made nearly 0 or 1. An average of the weights over
    iterations predicts.

    Left out are the published division of the adversaries' rate by 10 when the classifier's falls below it, and the
    critic's weight clipping, which the published program builds and never runs; `clip` does it.

    Args:
        mask: C x C, 1 where a label i may become j.
        warm_up: epochs of cross entropy.
        lr: of generator and critic.
        estimate: "confusion" (soft) or "anchor".
        pretrain: iterations of the generator's own training.
        clip: bound on the critic's weights, or None.
        average: decay of the average that predicts.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}
    kept: ClassVar[tuple[str, ...]] = ("generator", "critic", "rms_g", "rms_d", "mean_net", "begun")

    def __init__(
        self,
        context: Context,
        mask: Any,
        warm_up: int = 10,
        lr: float = 1e-5,
        estimate: str = "confusion",
        pretrain: int = 10_000,
        clip: float | None = None,
        average: float = 0.9999,
    ) -> None:
        super().__init__(context)
        self.mask = checked_mask(mask, context.num_classes).to(context.device)
        self.warm_up = starting_epoch(context, "Masking's warm_up", warm_up)
        self.estimate: str = one_of("confusion", "anchor")("Masking's estimate", estimate)
        self.pretrain: int = integer(0)("Masking's pretrain", pretrain)
        self.clip: float | None = None if clip is None else number(0, above=True)("Masking's clip", clip)
        self.average: float = number(0, 1, below=True)("Masking's average", average)
        rate: float = number(0, above=True)("Masking's lr", lr)
        draws = generator(context.seed, "masking")
        self.generator = Generator(context.num_classes, draws).to(context.device)
        self.critic = Critic(context.num_classes, draws).to(context.device)
        on_gpu = context.device.type == "cuda"
        taught = [*self.generator.parameters(), *self.net.parameters()]
        self.rms_g = torch.optim.RMSprop(taught, lr=rate, capturable=on_gpu)
        self.rms_d = torch.optim.RMSprop(self.critic.parameters(), lr=rate, capturable=on_gpu)
        self.noise = Drawn(self.draw, context.device)
        self.mean_net: nn.Module = deepcopy(self.net)
        self.begun = False

    def warming(self, step: int) -> bool:
        return step // self.context.epoch < self.warm_up

    def capture_key(self, step: int) -> Hashable:
        return self.warming(step)

    def prepare(self, step: int, size: int) -> None:
        if not self.warming(step):
            self.noise.at(step, size)

    def draw(self, step: int, size: int) -> tuple[Tensor, ...]:
        """The generator's noise for its own step and for the rest of the iteration, on the host."""
        draws = generator(self.context.seed, "masking", step + 1)
        return tuple(draw_noise(size, draws, torch.device("cpu")) for _ in range(2))

    def loss(self, batch: Batch, step: int) -> Tensor:
        if self.warming(step):
            return row_losses(self.net(batch.inputs), batch.target).mean()
        if not self.begun:
            self.begin()
        self.follow()
        first, second = self.noise.at(step, len(batch.target))
        log_s = self.generator(first)
        through = channel_losses(self.net(batch.inputs), log_s, batch.target).mean()
        self.rms_g.zero_grad()
        self.rms_d.zero_grad()  # or a captured step would for ever add to gradients that are dropped below
        fooling = through - self.critic(softened(log_s.exp()))
        with backwards(fooling):
            fooling.backward()
        self.rms_g.step()
        torch.clear_autocast_cache()  # of the weights as they were before
        with torch.no_grad():
            log_s = self.generator(second)
        for _ in range(5):
            self.criticise(softened(log_s.exp()))
        self.rms_g.zero_grad()  # the run's optimiser must not see the adversary's gradients
        return channel_losses(self.net(batch.inputs), log_s, batch.target).mean()

    def criticise(self, structure: Tensor) -> None:
        """One step of the critic."""
        self.rms_d.zero_grad()
        telling = self.critic(structure) - self.critic(self.mask[None])
        with backwards(telling):
            telling.backward()
        self.rms_d.step()
        if self.clip is not None:
            with torch.no_grad():
                for parameter in self.critic.parameters():
                    parameter.clamp_(-self.clip, self.clip)

    def begin(self) -> None:
        """Estimate the channel, teach it to the generator, and start the average at the present weights."""
        with torch.autocast(self.context.device.type, enabled=False):  # an iteration asked for it, but it is none
            logits, target, _ = logits_of(self.net, self.context.batches.evaluation())
            matrix = confusion(logits, target) if self.estimate == "confusion" else anchors(logits)
            pretrain(self.generator, matrix, generator(self.context.seed, "masking pretraining"), self.pretrain)
        self.mean_net.load_state_dict(self.net.state_dict())
        self.begun = True
        self.predictor = self.mean_net

    def follow(self) -> None:
        """Move the average towards the weights the last step left; statistics of norms are copied."""
        with torch.no_grad():
            for mean, now in zip(self.mean_net.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(now, 1 - self.average)
            for kept, current in zip(self.mean_net.buffers(), self.net.buffers(), strict=True):
                kept.copy_(current)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.predictor = self.mean_net if self.begun else self.net
