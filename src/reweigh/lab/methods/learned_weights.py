"""Methods that learn example weights from trusted examples: Learning to Reweight and Meta-Weight-Net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from reweigh.checks import flag, integer, number
from reweigh.lab.batches import Batch, Loader, Resident, Shuffled
from reweigh.lab.methods.base import BaseMethod, constant_graph, gradient_norm, row_losses, without_autocast
from reweigh.lab.methods.device_values import DeviceDraws, DeviceNumber
from reweigh.lab.methods.protocol import Context
from reweigh.streams import generator, mix


def trusted_batches(owner: str, context: Context, size: int) -> Resident | Loader:
    """Return the trusted examples in batches of `size`, or of all if there are fewer.

    Order and augmentation are functions of the run's seed and the step, independent of those of the training part.
    """
    if context.trusted is None or len(context.trusted) == 0:
        raise ValueError(
            f"{owner} needs trusted examples: hold some out with validation=0.1 and validation_labels='clean'"
        )
    size = min(integer(1)(f"{owner}'s clean_batch", size), len(context.trusted))
    seed = mix(context.seed, "trusted")
    return context.trusted.with_order(Shuffled(len(context.trusted), size, seed), seed)


class PlannedBatches:
    """Batches by step; for batches on the device, the plan of each step is written to one fixed place.

    Args:
        batches: the source.
    """

    def __init__(self, batches: Resident | Loader) -> None:
        self._batches = batches
        self._plan = DeviceDraws(self._draw, batches.device)

    def prepare(self, step: int) -> None:
        """Plan that step's batch, so that a graph of `batch(step)` holds only its assembly."""
        if isinstance(self._batches, Resident):
            self._plan.at(step, 0)

    def batch(self, step: int) -> Batch:
        """Return the batch of that step."""
        if isinstance(self._batches, Resident):
            return self._batches.assemble(*self._plan.at(step, 0))
        return self._batches.batch(step)

    def _draw(self, step: int, size: int) -> tuple[Tensor, ...]:
        return (self._batches.plan(step),) if isinstance(self._batches, Resident) else ()


def alignments(losses: Tensor, parameters: Sequence[Tensor], direction: Sequence[Tensor]) -> Tensor:
    """Return (B,) u_i = <∇ l_i, direction> by one double backward pass; the graph of `losses` is retained.

    With G(ε) = ∇ Σ ε_i l_i, which is linear in ε, u = ∂ <G(ε), direction> / ∂ε.
    """
    epsilon = torch.zeros_like(losses, requires_grad=True)
    with without_autocast(losses):
        gradients = torch.autograd.grad((epsilon * losses).sum(), parameters, create_graph=True, allow_unused=True)
        pairs = zip(gradients, direction, strict=True)
        total = torch.stack([(g * d).sum() for g, d in pairs if g is not None]).sum()
        (u,) = torch.autograd.grad(total, epsilon, retain_graph=True)
    return u


def trusted_gradient(net: nn.Module, parameters: Mapping[str, Tensor], batch: Batch) -> list[Tensor]:
    """Return the gradient of the mean cross entropy of a trusted batch at `parameters`, without changing the net."""
    at = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    logits = functional_call(net, (at, buffers), (batch.inputs,))
    loss = row_losses(logits, batch.target).mean()
    with without_autocast(loss):
        gradients = torch.autograd.grad(loss, list(at.values()), allow_unused=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(at.values(), gradients, strict=True)
    ]


def trained_parameters(net: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that require gradients, by name."""
    return {name: parameter for name, parameter in net.named_parameters() if parameter.requires_grad}


class LearningToReweight(BaseMethod):
    """L = Σ w_i l_i, w ∝ max(u, 0), u_i = <∇ of the trusted loss, ∇ l_i>; the weights of a batch sum to 1 or are all 0.

    The published look-ahead step and its derivative at ε = 0 give exactly these inner products, times a rate that
    cancels. Weight decay does not take part.

    Args:
        clean_batch: trusted examples per iteration.
    """

    capture_key = constant_graph
    differentiates_twice: ClassVar[bool] = True

    def __init__(self, context: Context, clean_batch: int = 100) -> None:
        super().__init__(context)
        self.clean = PlannedBatches(trusted_batches("LearningToReweight", context, clean_batch))

    def prepare(self, step: int, size: int) -> None:
        self.clean.prepare(step)

    def loss(self, batch: Batch, step: int) -> Tensor:
        parameters = trained_parameters(self.net)
        direction = trusted_gradient(self.net, parameters, self.clean.batch(step))
        losses = row_losses(self.net(batch.inputs), batch.target)
        w = shares(alignments(losses, list(parameters.values()), direction))
        return (w * losses).sum()


def shares(u: Tensor) -> Tensor:
    """Return max(u, 0) / Σ max(u, 0), or zeros if no u is positive.

    >>> import torch
    >>> shares(torch.tensor([3.0, -1.0, 1.0])), shares(torch.tensor([-1.0, 0.0]))
    (tensor([0.7500, 0.0000, 0.2500]), tensor([0., 0.]))
    """
    positive = u.clamp_min(0)
    total = positive.sum()
    return positive / (total + (total == 0))


class WeightNet(nn.Module):
    """V(l): 1 - hidden ReLU - 1 sigmoid, always in float32.

    Args:
        hidden: number of hidden units.
        draws: for the initial values, uniform as in torch's linear layers.
    """

    def __init__(self, hidden: int, draws: torch.Generator) -> None:
        super().__init__()
        with torch.device("meta"):  # torch would draw initial values from its global generator
            self.layers = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Sigmoid())
        self.to_empty(device="cpu")
        with torch.no_grad():
            for parameter, fan_in in zip(self.parameters(), (1, 1, hidden, hidden), strict=True):
                parameter.copy_((2 * torch.rand(parameter.shape, generator=draws) - 1) / fan_in**0.5)

    def forward(self, losses: Tensor) -> Tensor:
        """Return (B,) weights in (0, 1)."""
        with torch.autocast(losses.device.type, enabled=False):
            v: Tensor = self.layers(losses[:, None].float())
        return v.squeeze(1)


class MetaWeightNet(BaseMethod):
    """L = Σ V(l_i) l_i / B, where V is trained so that a step with its weights lowers the loss on trusted examples.

    Each iteration: θ' = θ - α Σ V(l_i) ∇ l_i / B; ∂ L_trusted(θ') / ∂V_i = -(α / B) <∇ L_trusted(θ'), ∇ l_i>, passed
    to V's own Adam; then L with the new V. Since V depends on the loss alone, it is a learned weighting,
    w(p) = 2 (1 - p) V(-log p).

    Args:
        hidden: units of V.
        meta_lr, meta_decay: of V's Adam.
        inner_lr: α; None takes the run's learning rate with its schedule, as published. This step is plain gradient
            descent, for which Adam's rates are too small: pass a number with Adam.
        clean_batch: trusted examples per iteration.
        normalise: divide by Σ V instead of B, as the older published program does.
    """

    saved: ClassVar[tuple[str, ...]] = ("V", "optimiser")
    capture_key = constant_graph
    differentiates_twice: ClassVar[bool] = True

    def __init__(
        self,
        context: Context,
        hidden: int = 100,
        meta_lr: float = 1e-3,
        meta_decay: float = 1e-4,
        inner_lr: float | None = None,
        clean_batch: int = 100,
        normalise: bool = False,
    ) -> None:
        super().__init__(context)
        self.clean = PlannedBatches(trusted_batches("MetaWeightNet", context, clean_batch))
        units: int = integer(1)("MetaWeightNet's hidden", hidden)
        rate: float = number(0, above=True)("MetaWeightNet's meta_lr", meta_lr)
        decay: float = number(0)("MetaWeightNet's meta_decay", meta_decay)
        constant = None if inner_lr is None else number(0, above=True)("MetaWeightNet's inner_lr", inner_lr)
        self.alpha_at = context.learning_rate if constant is None else lambda step: constant
        self.alpha = DeviceNumber(context.device)
        self.normalise = flag("MetaWeightNet's normalise", normalise)
        self.V = WeightNet(units, generator(context.seed, "weight net")).to(context.device)
        self.optimiser = torch.optim.Adam(
            self.V.parameters(), lr=rate, weight_decay=decay, capturable=context.device.type == "cuda"
        )

    def prepare(self, step: int, size: int) -> None:
        self.clean.prepare(step)
        self.alpha.set(self.alpha_at(step))

    def loss(self, batch: Batch, step: int) -> Tensor:
        losses = row_losses(self.net(batch.inputs), batch.target)
        self.train_weight_net(losses, self.clean.batch(step), self.alpha.set(self.alpha_at(step)))
        with torch.no_grad():
            v = self.V(losses)
        mean: Tensor = (v * losses).sum() / (v.sum() if self.normalise else len(v))
        return mean

    def train_weight_net(self, losses: Tensor, clean: Batch, alpha: Tensor) -> None:
        """Take one step of V, for a step of the net by α."""
        v = self.V(losses.detach())
        share = v / v.sum() if self.normalise else v / len(v)
        parameters = trained_parameters(self.net)
        with without_autocast(losses):
            gradients = torch.autograd.grad(
                (share.detach() * losses).sum(), list(parameters.values()), retain_graph=True, allow_unused=True
            )
        ahead = {
            name: parameter if gradient is None else parameter - alpha * gradient
            for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True)
        }
        direction = trusted_gradient(self.net, ahead, clean)
        u = alignments(losses, list(parameters.values()), direction)
        self.optimiser.zero_grad()
        with without_autocast(losses):
            (-alpha * (u * share).sum()).backward()
        self.optimiser.step()

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        with torch.no_grad():
            return gradient_norm(self.V(losses), losses)
