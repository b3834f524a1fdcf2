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


Plan = Sequence[Sequence[float]]
PUBLISHED: Plan = ((0.5, 17), (0.05, 83))


class MentorNet(BaseMethod):
    """L = Σ v l / B with v from a mentor that sees the loss, its distance δ from the age λ, and the time in percent.

    λ is the average of a percentile of the batch's losses (`Pace`). All examples but int(B (1 - rate)) random ones get
    v = 0, without rescaling the others. In the published program the wide ResNet's weight decay is multiplied by
    mean(v); here decay is the optimiser's affair.

    Args:
        percentile, decay: of λ.
        burn_in: while the time is before burn_in - 1 percent, v = 1.
        fixed: hold the time at burn_in from there on.
        example_dropout: pairs (rate, percents) that follow each other.
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
        """(B,) 1 for the examples that are not dropped, on the host."""
        draws = generator(self.context.seed, "example dropout", step)
        return (survivors(size, self.rates[self.epoch_at(step)], draws),)

    def train_mentor(self) -> None:
        """Make the mentor ready; called once, at the first iteration."""

    def answer(self, losses: Tensor, delta: Tensor, epoch: Tensor) -> Tensor:
        """(B,) v by the mentor net."""
        with torch.no_grad():
            v: Tensor = self.mentor(losses, delta, epoch.long().expand(len(losses))).sigmoid()
        return v

    def epoch_at(self, step: int) -> int:
        """The time in percent, 0 to 99."""
        epoch = min(PERCENTS - 1, PERCENTS * step // self.context.total)
        return min(epoch, self.burn_in) if self.fixed else epoch

    def burning_in(self, step: int) -> bool:
        return self.epoch_at(step) < self.burn_in - 1

    def v(self, losses: Tensor, step: int) -> Tensor:
        if self.burning_in(step):
            return torch.ones_like(losses)
        return self.answer(losses, losses - self.pace.age.to(losses), self.time.set(self.epoch_at(step)))

    def loss(self, batch: Batch, step: int) -> Tensor:
        if not self.trained:
            # not under autocast, which would keep its copies of the first weights
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
        mentor: "formula" uses the curriculum itself, "net" the small net that learned it, as in the publication.
        mentor_steps: iterations of that net's training.
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

    def answer(self, losses: Tensor, delta: Tensor, epoch: Tensor) -> Tensor:
        return predefined(delta, epoch) if self.by_formula else super().answer(losses, delta, epoch)


class MentorNetDD(MentorNet):
    """MentorNet with a mentor that learned from trusted examples which losses belong to wrong labels.

    At the first iteration a new net is trained on the trusted examples with symmetric noise in their labels; the
    losses of all of them after each of its epochs, δ = loss - percentile q of all losses, and "the label is right"
    train the mentor.

    Args:
        percentile: published are 0.8, 0.6 and 0.5 for 20, 40 and 80 % noise.
        decay: of the average that λ is.
        q: the percentile in the mentor's training.
        burn_in: percent of training with v = 1, after which the time stands still.
        example_dropout: pairs (rate, percents).
        noise: rate of the noise in the mentor's lesson, over all classes together.
        dump_epochs, dump_lr: of the net that is trained for the lesson, by SGD with momentum 0.9 on batches of 128.
        mentor_steps: iterations of the mentor's training.
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
        """The lesson: losses of the trusted examples under wrong labels while a net learns them."""
        clean = self.batches.labels
        flipped = symmetric(
            clean.cpu().numpy(),
            self.noise,
            num_classes=self.context.num_classes,
            count="overall",  # a class may have too few for a share of its own
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
        age = loss.sort().values[int(self.q * (len(loss) - 1))]  # torch.quantile refuses more than 2^24 numbers
        return Rows(loss, loss - age, epochs.repeat_interleave(len(clean)), right.repeat(self.dump_epochs))


def dropout_rates(plan: Plan) -> tuple[float, ...]:
    """One rate for each percent of training.

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
    """(B,) 1 for int(B (1 - rate)) random examples, 0 for the others.

    >>> int(survivors(128, 0.05, torch.Generator()).sum())
    121
    """
    kept = torch.zeros(size)
    kept[torch.randperm(size, generator=draws)[: int(size * (1 - rate) + 1e-9)]] = 1.0
    return kept
