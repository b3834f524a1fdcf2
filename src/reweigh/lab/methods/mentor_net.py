"""MentorNet (Jiang 2018): a small frozen net, or the formula it imitates, weights each example by its loss."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from reweigh.checks import integer, number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod, gradient_norm, logits_of, row_losses
from reweigh.lab.methods.device_values import DeviceDraws, DeviceNumber
from reweigh.lab.methods.learned_weights import trusted_batches
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.self_paced import Pace
from reweigh.noise import symmetric
from reweigh.streams import generator, mix

PERCENTS = 100  # the mentor counts time in percent of training, named epoch as published
_FREE = 18  # up to here the predefined curriculum uses everything
_FADE = 90  # from here it fades linearly


def predefined(delta: Tensor, epoch: Tensor | int, gamma: float = 1.0) -> Tensor:
    """Return PD's v*: 1 up to 18 %; 1[δ <= 0] up to 90 %; then clip(1 - δ / γ, 0, 1), with δ = loss - age.

    >>> predefined(torch.tensor([1.0, 0.0, 0.1, 0.4, 2.0, -1.0]), torch.tensor([18, 50, 50, 90, 95, 95]))
    tensor([1.0000, 1.0000, 0.0000, 0.6000, 0.0000, 1.0000])
    """
    epoch = torch.as_tensor(epoch, device=delta.device)
    faded = torch.where(epoch < _FADE, (delta <= 0).to(delta), (1 - delta / gamma).clamp(0, 1))
    return torch.where(epoch <= _FREE, 1.0, faded)


class Rows(NamedTuple):
    """Inputs of a mentor and its targets, all (M,)."""

    loss: Tensor
    delta: Tensor
    epoch: Tensor
    target: Tensor


class Mentor(nn.Module):
    """(loss, δ, epoch) -> v in [0, 1]; 757 numbers, of which 257 are trained.

    Concatenates the cell state of one step of a bidirectional LSTM with one unit, a label embedding (one row, unused)
    and a frozen random embedding of the epoch; then 20 tanh units and one output with a bias.

    Args:
        generator: for the initial values.

    >>> mentor = Mentor(torch.Generator())
    >>> [sum(p.numel() for p in mentor.parameters() if p.requires_grad or not trained) for trained in (False, True)]
    [757, 257]
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()

        def normal(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator))

        limit = math.sqrt(6 / 7)  # Glorot's limit for 3 inputs and 4 gates
        gates = 2 * limit * torch.rand(2, 4, 3, generator=generator) - limit
        self.gates, self.gate_bias = nn.Parameter(gates), nn.Parameter(torch.zeros(2, 4))
        self.label = nn.Parameter(2 * torch.rand(2, 2, generator=generator) - 1)
        epochs = 2 * torch.rand(PERCENTS, 5, generator=generator) - 1
        self.epochs = nn.Parameter(epochs, requires_grad=False)
        self.hidden, self.hidden_bias = normal(20, 9), nn.Parameter(torch.zeros(20))
        self.out, self.out_bias = normal(1, 20), nn.Parameter(torch.zeros(1))

    def forward(self, loss: Tensor, delta: Tensor, epoch: Tensor) -> Tensor:
        """Return logits of v, (M,), always in float32."""
        inputs = torch.stack((loss, delta, torch.zeros_like(loss)), 1)  # the third input is the state, 0 at the start
        with torch.autocast(loss.device.type, enabled=False):
            gates = torch.einsum("mi,dgi->dmg", inputs, self.gates) + self.gate_bias[:, None]
            cells = gates[..., 0].sigmoid() * gates[..., 1].tanh()
            parts = (self.label[:1].expand(len(loss), -1), self.epochs[epoch], cells.T)
            hidden = functional.linear(torch.cat(parts, 1), self.hidden, self.hidden_bias).tanh()
            return functional.linear(hidden, self.out, self.out_bias).squeeze(1)


def predefined_rows(generator: torch.Generator, size: int = 100_000) -> Rows:
    """Draw a random sample of the published table: 120 losses x 100 δ x 100 epochs, with PD's targets."""
    losses = torch.cat((torch.arange(100) / 10, torch.arange(10.0, 30.0)))
    deltas = (torch.arange(100) - 50) / 10
    chosen = torch.randperm(len(losses) * len(deltas) * PERCENTS, generator=generator)[:size]
    loss = losses[chosen % len(losses)]
    delta = deltas[chosen // len(losses) % len(deltas)]
    epoch = chosen // (len(losses) * len(deltas))
    return Rows(loss, delta, epoch, predefined(delta, epoch))


def train_mentor(mentor: Mentor, rows: Rows, generator: torch.Generator, steps: int = 30_000) -> None:
    """Train a mentor by Adam on batches of 32, rate 0.1 x 0.9^(step // 1000), gradient norm clipped at 5.

    The loss is binary cross entropy if all targets are 0 or 1, else the squared error of v.
    """
    binary = bool(((rows.target == 0) | (rows.target == 1)).all())
    trained = [parameter for parameter in mentor.parameters() if parameter.requires_grad]
    # fused, because with so few parameters the overhead of calls dominates
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


Plan = Sequence[Sequence[float]]
PUBLISHED: Plan = ((0.5, 17), (0.05, 83))


class MentorNet(BaseMethod):
    """L = Σ v l / B, where a mentor computes v from the loss, its distance δ from the age λ, and the time in percent.

    λ is the average of a percentile of the batch's losses (`Pace`). All examples but int(B (1 - rate)) random ones get
    v = 0, without rescaling the others. In the published program the wide ResNet's weight decay is multiplied by
    mean(v); here it is not.

    Args:
        percentile, decay: of λ.
        burn_in: while the time is before burn_in - 1 percent, v = 1.
        fixed: keep the time at burn_in afterwards.
        example_dropout: consecutive pairs (rate, percents).
    """

    saved: ClassVar[tuple[str, ...]] = ("pace", "mentor", "trained")

    def __init__(
        self, context: Context, percentile: float, decay: float, burn_in: int, fixed: bool, example_dropout: Plan
    ) -> None:
        super().__init__(context)
        self.pace = Pace(percentile, decay, context.device)
        self.burn_in: int = integer(0, PERCENTS)("burn_in", burn_in)
        self.fixed = fixed
        self.rates = dropout_rates(example_dropout)
        self.mentor = Mentor(generator(context.seed, "mentor")).to(context.device)
        self.trained = False
        self.time = DeviceNumber(context.device)
        self.kept_examples = DeviceDraws(self.draw, context.device)

    def capture_key(self, step: int) -> Hashable:
        return self.burning_in(step)

    def prepare(self, step: int, size: int) -> None:
        self.time.set(self.epoch_at(step))
        self.kept_examples.at(step, size)

    def draw(self, step: int, size: int) -> tuple[Tensor]:
        """Draw (B,), 1 for the examples that are not dropped, on the host."""
        draws = generator(self.context.seed, "example dropout", step)
        return (survivors(size, self.rates[self.epoch_at(step)], draws),)

    def train_mentor(self) -> None:
        """Train the mentor, once, at the first iteration."""

    def mentor_weights(self, losses: Tensor, delta: Tensor, epoch: Tensor) -> Tensor:
        """Return (B,) v from the mentor net."""
        with torch.no_grad():
            v: Tensor = self.mentor(losses, delta, epoch.long().expand(len(losses))).sigmoid()
        return v

    def epoch_at(self, step: int) -> int:
        """Return the time in percent, 0 to 99."""
        epoch = min(PERCENTS - 1, PERCENTS * step // self.context.total)
        return min(epoch, self.burn_in) if self.fixed else epoch

    def burning_in(self, step: int) -> bool:
        return self.epoch_at(step) < self.burn_in - 1

    def v(self, losses: Tensor, step: int) -> Tensor:
        if self.burning_in(step):
            return torch.ones_like(losses)
        return self.mentor_weights(losses, losses - self.pace.age.to(losses), self.time.set(self.epoch_at(step)))

    def loss(self, batch: Batch, step: int) -> Tensor:
        if not self.trained:
            # without autocast, which would cache copies of the initial weights
            with torch.autocast(self.context.device.type, enabled=False):
                self.train_mentor()
            self.trained = True
        losses = row_losses(self.net(batch.inputs), batch.target)
        self.pace.update(losses)
        v = self.v(losses.detach(), step)
        (kept,) = self.kept_examples.at(step, len(v))
        return (v * kept.to(v) * losses).mean()

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        return gradient_norm(self.v(losses, step), losses)


class MentorNetPD(MentorNet):
    """MentorNet with the predefined curriculum: everything up to 18 %, self-paced up to 90 %, then a linear fade.

    Args:
        percentile: published are 0.75 for 20 and 40 % noise, 0.5 for 80 %.
        decay: of the average that λ is.
        mentor: "formula" uses the curriculum itself, "net" the small net trained on it, as published.
        mentor_steps: training iterations of that net.
        example_dropout: pairs (rate, percents).
    """

    def __init__(
        self,
        context: Context,
        percentile: float = 0.75,
        decay: float = 0.5,
        mentor: str = "formula",
        mentor_steps: int = 30_000,
        example_dropout: Plan = PUBLISHED,
    ) -> None:
        super().__init__(context, percentile, decay, 0, False, example_dropout)
        self.by_formula = one_of("formula", "net")("MentorNetPD's mentor", mentor) == "formula"
        self.mentor_steps: int = integer(1)("MentorNetPD's mentor_steps", mentor_steps)

    def train_mentor(self) -> None:
        if not self.by_formula:
            draws = generator(self.context.seed, "mentor curriculum")
            rows = Rows(*(column.to(self.context.device) for column in predefined_rows(draws)))
            train_mentor(self.mentor, rows, draws, self.mentor_steps)

    def mentor_weights(self, losses: Tensor, delta: Tensor, epoch: Tensor) -> Tensor:
        return predefined(delta, epoch) if self.by_formula else super().mentor_weights(losses, delta, epoch)


class MentorNetDD(MentorNet):
    """MentorNet with a mentor trained on trusted examples to recognise the losses of noisy labels.

    At the first iteration a new net is trained on the trusted examples with symmetric noise in their labels; the
    mentor is trained on the losses of all of them after each of its epochs, δ = loss - percentile q of all losses, and
    whether the label is right.

    Args:
        percentile: published are 0.8, 0.6 and 0.5 for 20, 40 and 80 % noise.
        decay: of the average that λ is.
        q: the percentile in the mentor's training.
        burn_in: percent of training with v = 1; the time stays at this value afterwards.
        example_dropout: pairs (rate, percents).
        noise: rate of the noise in the mentor's training data, over all classes together.
        dump_epochs, dump_lr: of the net whose losses the mentor learns from: SGD with momentum 0.9, batches of 128.
        mentor_steps: training iterations of the mentor.
    """

    def __init__(
        self,
        context: Context,
        percentile: float = 0.8,
        decay: float = 0.5,
        q: float = 0.9,
        burn_in: int = 18,
        example_dropout: Plan = PUBLISHED,
        noise: float = 0.2,
        dump_epochs: int = 50,
        dump_lr: float = 0.05,
        mentor_steps: int = 30_000,
    ) -> None:
        super().__init__(context, percentile, decay, burn_in, True, example_dropout)
        self.batches = trusted_batches("MentorNetDD", context, 128)
        self.q: float = number(0, 1)("MentorNetDD's q", q)
        self.noise: float = number(0, 1, above=True, below=True)("MentorNetDD's noise", noise)
        self.dump_epochs: int = integer(1)("MentorNetDD's dump_epochs", dump_epochs)
        self.dump_lr: float = number(0, above=True)("MentorNetDD's dump_lr", dump_lr)
        self.mentor_steps: int = integer(1)("MentorNetDD's mentor_steps", mentor_steps)

    def train_mentor(self) -> None:
        draws = generator(self.context.seed, "mentor curriculum")
        train_mentor(self.mentor, self.dump(), draws, self.mentor_steps)

    def dump(self) -> Rows:
        """Return the mentor's training data: losses of trusted examples with noisy labels while a net learns them."""
        clean = self.batches.labels
        flipped = symmetric(
            clean.cpu().numpy(),
            self.noise,
            num_classes=self.context.num_classes,
            count="overall",  # a class may have too few examples for exact counts per class
            seed=mix(self.context.seed, "dump"),
        )
        given = torch.tensor(flipped.labels).to(clean)
        batches = self.batches.with_labels(given)
        net = self.context.new_net("mentor dump").train()
        optimiser = torch.optim.SGD(net.parameters(), lr=self.dump_lr, momentum=0.9)
        per_epoch = max(1, len(batches) // 128)
        losses: list[Tensor] = []
        for epoch in range(self.dump_epochs):
            for batch in batches.iterate(epoch * per_epoch, (epoch + 1) * per_epoch):
                optimiser.zero_grad()
                torch.autograd.backward(row_losses(net(batch.inputs), batch.target).mean())
                optimiser.step()
            logits, target, _ = logits_of(net, batches.evaluation())
            losses.append(row_losses(logits, target))
        loss = torch.cat(losses)
        epochs = PERCENTS * torch.arange(self.dump_epochs, device=clean.device) // self.dump_epochs
        right = (given == clean).to(loss)
        age = loss.sort().values[int(self.q * (len(loss) - 1))]  # torch.quantile accepts at most 2^24 numbers
        return Rows(loss, loss - age, epochs.repeat_interleave(len(clean)), right.repeat(self.dump_epochs))


def dropout_rates(plan: Plan) -> tuple[float, ...]:
    """Return one rate for each percent of training.

    >>> dropout_rates(((0.5, 99), (0, 1)))[97:]
    (0.5, 0.5, 0.0)
    """
    rates: list[float] = []
    for pair in plan if isinstance(plan, list | tuple) else [plan]:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"example_dropout holds pairs (rate, percents), not {pair!r}")
        rate = number(0, 1, below=True)("example_dropout's rate", pair[0])
        rates += [rate] * integer(1, PERCENTS)("example_dropout's percents", pair[1])
    if len(rates) != PERCENTS:
        raise ValueError(f"example_dropout must cover {PERCENTS} percent of training, not {len(rates)}")
    return tuple(rates)


def survivors(size: int, rate: float, draws: torch.Generator) -> Tensor:
    """Draw (B,): 1 for int(B (1 - rate)) random examples, 0 for the others.

    >>> int(survivors(128, 0.05, torch.Generator()).sum())
    121
    """
    kept = torch.zeros(size)
    kept[torch.randperm(size, generator=draws)[: int(size * (1 - rate) + 1e-9)]] = 1.0
    return kept
