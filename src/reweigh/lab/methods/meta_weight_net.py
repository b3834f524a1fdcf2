"""Meta-Weight-Net (Shu 2019): the weight as a learned function of the loss."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from reweigh.checks import flag, integer, number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.alignment import alignments, trained, trusted_gradient
from reweigh.lab.methods.cell import Number
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching, alike, backwards, counts_for, row_losses
from reweigh.lab.methods.trusted import Planned, trusted_batches
from reweigh.streams import generator


class WeightNet(nn.Module):
    """V(l): 1 - hidden ReLU - 1 sigmoid, in float32, autocast or not.

    Args:
        hidden: units.
        draws: for the initial values, uniform as torch's linear layers have them.
    """

    def __init__(self, hidden: int, draws: torch.Generator) -> None:
        super().__init__()
        with torch.device("meta"):  # torch's own values would be draws from its global generator
            self.layers = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Sigmoid())
        self.to_empty(device="cpu")
        with torch.no_grad():
            for parameter, fan_in in zip(self.parameters(), (1, 1, hidden, hidden), strict=True):
                parameter.copy_((2 * torch.rand(parameter.shape, generator=draws) - 1) / fan_in**0.5)

    def forward(self, losses: Tensor) -> Tensor:
        """(B,) weights in (0, 1)."""
        with torch.autocast(losses.device.type, enabled=False):
            v: Tensor = self.layers(losses[:, None].float())
        return v.squeeze(1)


class MetaWeightNet(Teaching):
    """L = Σ V(l_i) l_i / B, where V is taught so that a step with its weights lowers the loss of trusted examples.

    Each iteration: θ' = θ - α Σ V(l_i) ∇ l_i / B; ∂ L_trusted(θ') / ∂V_i = -(α / B) <∇ L_trusted(θ'), ∇ l_i>, which is
    handed to V's own Adam; then L with the new V. Since V depends on the loss alone, what it learns is a weighting,
    w(p) = 2 (1 - p) V(-log p).

    Args:
        hidden: units of V.
        meta_lr, meta_decay: of V's Adam.
        inner_lr: α; None is the run's learning rate, which follows its schedule, as published. Adam's rates are too
            small for this step, which is one of plain descent: give a number there.
        clean_batch: trusted examples per iteration.
        normalise: divide by Σ V instead of B, as the older published script does.
    """

    kept: ClassVar[tuple[str, ...]] = ("V", "optimiser")
    capture_key = alike
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
        self.clean = Planned(trusted_batches("MetaWeightNet", context, clean_batch))
        units: int = integer(1)("MetaWeightNet's hidden", hidden)
        rate: float = number(0, above=True)("MetaWeightNet's meta_lr", meta_lr)
        decay: float = number(0)("MetaWeightNet's meta_decay", meta_decay)
        constant = None if inner_lr is None else number(0, above=True)("MetaWeightNet's inner_lr", inner_lr)
        self.alpha_at = context.learning_rate if constant is None else lambda step: constant
        self.alpha = Number(context.device)
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
        self.teach(losses, self.clean.batch(step), self.alpha.set(self.alpha_at(step)))
        with torch.no_grad():
            v = self.V(losses)
        mean: Tensor = (v * losses).sum() / (v.sum() if self.normalise else len(v))
        return mean

    def teach(self, losses: Tensor, clean: Batch, alpha: Tensor) -> None:
        """One step of V, for a step of the net by α."""
        v = self.V(losses.detach())
        share = v / v.sum() if self.normalise else v / len(v)
        parameters = trained(self.net)
        with backwards(losses):
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
        with backwards(losses):
            (-alpha * (u * share).sum()).backward()
        self.optimiser.step()

    def weights(self, logits: Tensor, target: Tensor, index: Tensor, step: int) -> Tensor | None:
        losses = row_losses(logits, target)
        with torch.no_grad():
            return counts_for(self.V(losses), losses)
