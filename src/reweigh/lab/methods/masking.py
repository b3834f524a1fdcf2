"""Masking (Han 2018): a noise channel with a prescribed structure, enforced by an adversary."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.checks import integer, number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, check_start_epoch, logits_of, row_losses, without_autocast
from reweigh.lab.methods.device_values import DeviceDraws
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.s_adaptation import channel_losses
from reweigh.lab.spec.expression import Expression
from reweigh.streams import generator

_NOISE = 10


def softened(matrices: Tensor) -> Tensor:
    """Return S' = sigmoid((S - 0.05) / 0.005): nearly 1 where a transition occurs, nearly 0 elsewhere.

    >>> softened(torch.tensor([0.05, 0.06, 0.03]))
    tensor([0.5000, 0.8808, 0.0180])
    """
    return ((matrices - 0.05) / 0.005).sigmoid()


def layer(inputs: int, outputs: int, draws: torch.Generator) -> nn.Linear:
    """Build a linear layer with Glorot's uniform weights and zero biases."""
    # on meta, because torch would draw initial values from its global generator
    linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
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
        """Return (B, C, C) logarithms, always in float32."""
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
        """Return the mean score of (B, C, C), always in float32."""
        with torch.autocast(matrices.device.type, enabled=False):
            scores: Tensor = self.layers(matrices.flatten(-2))
            return scores.mean()


def draw_noise(size: int, draws: torch.Generator, device: torch.device) -> Tensor:
    """Draw (B, 10) standard normal numbers."""
    return torch.randn(size, _NOISE, generator=draws).to(device)


class RMSProp(torch.optim.Optimizer):
    """TensorFlow's RMSProp, r ← 0.9 r + 0.1 g², w ← w - lr g / √(r + ε), with r = 1 at first and ε = 1e-10.

    torch's decays by 0.99 from r = 0 and adds ε = 1e-8 outside the root, so that its first steps are larger.

    Args:
        parameters: to train.
        lr: learning rate.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["square_avg"] = torch.ones_like(parameter)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    square = self.state[parameter]["square_avg"]
                    square.lerp_(parameter.grad.square(), 0.1)
                    parameter.addcdiv_(parameter.grad, (square + 1e-10).sqrt(), value=-group["lr"])


def pretrain(generator: Generator, matrix: Tensor, draws: torch.Generator, steps: int, size: int = 128) -> None:
    """Fit the generator's matrices to an estimated one, by row cross entropy and RMSProp at 1e-4."""
    optimiser = RMSProp(generator.parameters(), lr=1e-4)
    for _ in range(steps):
        log_s = generator(draw_noise(size, draws, matrix.device))
        optimiser.zero_grad()
        (-(matrix * log_s).sum(-1).mean()).backward()
        optimiser.step()


def checked_mask(mask: Any, classes: int) -> Tensor:
    """Return a C x C table of 0 and 1 with a diagonal of 1 as float32."""
    try:
        table = torch.as_tensor(mask, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        table = torch.empty(0)
    if isinstance(mask, Expression) or table.shape != (classes, classes) or not ((table == 0) | (table == 1)).all():
        raise ValueError(f"Masking's mask must be {classes} rows of {classes} numbers 0 or 1, not {mask}")
    if not (table.diagonal() == 1).all():
        raise ValueError("Masking's mask must have 1 on its diagonal, because labels may be right")
    return table


def confusion(logits: Tensor, target: Tensor) -> Tensor:
    """Return the (C, C) soft confusion, T[i, j] = Σ p_i 1[y = j] / Σ p_i."""
    p = logits.softmax(1)
    joint = p.T @ functional.one_hot(target, p.shape[1]).to(p)
    return joint / joint.sum(1, keepdim=True).clamp_min(1e-30)


def anchors(logits: Tensor) -> Tensor:
    """Return (C, C), where row i is the prediction for the example with the largest p_i."""
    p = logits.softmax(1)
    return p[p.argmax(0)]


class Masking(BaseMethod):
    """L = -log (p S)_y through a generated matrix S per example, trained adversarially to match the prescribed mask.

    After `warm_up` epochs of cross entropy, the generator is trained to match a transition matrix estimated from the
    classifier. Then, in each iteration: one RMSProp step of generator and classifier on L - D(S'), five of the critic D
    on D(S') - D(mask), and the run's optimiser on L; S' is S made nearly 0 or 1. An average of the weights over
    iterations predicts.

    RMSProp is that of TensorFlow, as in the published program, which also draws a new batch for each of the seven
    steps; here they share one. Two more details are left out: the division of the adversaries' rate by 10 when the
    classifier's falls below it, and the critic's weight clipping, which the program builds and never runs; `clip` turns
    it on.

    Args:
        mask: C x C, 1 where label i may become j.
        warm_up: epochs of cross entropy.
        lr: of generator and critic.
        estimate: "confusion" (soft) or "anchor".
        pretrain: iterations of the generator's pretraining.
        clip: bound on the critic's weights, or None.
        average: decay of the average that predicts.
    """

    times: ClassVar[dict[str, int]] = {"warm_up": 0}
    saved: ClassVar[tuple[str, ...]] = ("generator", "critic", "rms_g", "rms_d", "mean_net", "begun")

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
        self.warm_up = check_start_epoch(context, "Masking's warm_up", warm_up)
        self.estimate: str = one_of("confusion", "anchor")("Masking's estimate", estimate)
        self.pretrain: int = integer(0)("Masking's pretrain", pretrain)
        self.clip: float | None = None if clip is None else number(0, above=True)("Masking's clip", clip)
        self.average: float = number(0, 1, below=True)("Masking's average", average)
        rate: float = number(0, above=True)("Masking's lr", lr)
        draws = generator(context.seed, "masking")
        self.generator = Generator(context.num_classes, draws).to(context.device)
        self.critic = Critic(context.num_classes, draws).to(context.device)
        trained = [*self.generator.parameters(), *self.net.parameters()]
        self.rms_g = RMSProp(trained, lr=rate)
        self.rms_d = RMSProp(self.critic.parameters(), lr=rate)
        self.noise = DeviceDraws(self.draw, context.device)
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
        """Draw the generator's noise for its own step and for the rest of the iteration, on the host."""
        draws = generator(self.context.seed, "masking", step + 1)
        return tuple(draw_noise(size, draws, torch.device("cpu")) for _ in range(2))

    def loss(self, batch: Batch, step: int) -> Tensor:
        if self.warming(step):
            return row_losses(self.net(batch.inputs), batch.target).mean()
        if not self.begun:
            self.begin()
        self.update_average()
        first, second = self.noise.at(step, len(batch.target))
        log_s = self.generator(first)
        through = channel_losses(self.net(batch.inputs), log_s, batch.target).mean()
        self.rms_g.zero_grad()
        self.rms_d.zero_grad()  # otherwise a captured step would accumulate gradients that are dropped below
        adversarial = through - self.critic(softened(log_s.exp()))
        with without_autocast(adversarial):
            adversarial.backward()
        self.rms_g.step()
        torch.clear_autocast_cache()  # it holds the weights before the step
        with torch.no_grad():
            log_s = self.generator(second)
        for _ in range(5):
            self.train_critic(softened(log_s.exp()))
        self.rms_g.zero_grad()  # the run's optimiser must not use the adversary's gradients
        return channel_losses(self.net(batch.inputs), log_s, batch.target).mean()

    def train_critic(self, structure: Tensor) -> None:
        """Take one step of the critic."""
        self.rms_d.zero_grad()
        critic_loss = self.critic(structure) - self.critic(self.mask[None])
        with without_autocast(critic_loss):
            critic_loss.backward()
        self.rms_d.step()
        if self.clip is not None:
            with torch.no_grad():
                for parameter in self.critic.parameters():
                    parameter.clamp_(-self.clip, self.clip)

    def begin(self) -> None:
        """Estimate the channel, pretrain the generator on it, and start the average at the current weights."""
        with torch.autocast(self.context.device.type, enabled=False):  # which is on within an iteration
            logits, target, _ = logits_of(self.net, self.context.batches.evaluation())
            matrix = confusion(logits, target) if self.estimate == "confusion" else anchors(logits)
            pretrain(self.generator, matrix, generator(self.context.seed, "masking pretraining"), self.pretrain)
        self.mean_net.load_state_dict(self.net.state_dict())
        self.begun = True
        self.predictor = self.mean_net

    def update_average(self) -> None:
        """Move the average towards the current weights; copy the statistics of norms."""
        with torch.no_grad():
            for mean, now in zip(self.mean_net.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(now, 1 - self.average)
            for kept, current in zip(self.mean_net.buffers(), self.net.buffers(), strict=True):
                kept.copy_(current)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.predictor = self.mean_net if self.begun else self.net
