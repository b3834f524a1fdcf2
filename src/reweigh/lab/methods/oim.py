"""Online instance matching (Xiao 2017) and sets of frames: what DRSA and CAE have in common."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import number
from reweigh.lab.methods.ldam import CosineLinear
from reweigh.lab.nets import Net
from reweigh.lab.nets.net import rounded
from reweigh.margin import at_least_float32


class OIM:
    """Cross entropy of scale cos(f, v_k), v_k a running average of the features of class k and never learned.

        v_y ← (momentum v_y + (1 - momentum) f) / its length,      in the order of the batch, after the loss

    The table of the v starts at 0 and is the net's classifier, so that it predicts, and is saved with the net.

    Args:
        name: of the method, for refusals.
        net: its classifier is replaced.
        scale: what the cosines are multiplied by.
        momentum: in [0, 1).
    """

    def __init__(self, name: str, net: Net, scale: float, momentum: float) -> None:
        self.momentum: float = number(0, 1, below=True)(f"{name}'s momentum", momentum)
        old = net.classifier
        with torch.device("meta"):  # torch's own values would be draws from its global generator
            head = CosineLinear(old.in_features, old.out_features, number(0, above=True)(f"{name}'s scale", scale))
        self.head = head.to_empty(device=old.weight.device)
        self.head.weight.requires_grad_(False).zero_()
        self.net, net.fc = net, self.head

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        """The mean over features (B, F); then they join the table."""
        unit = functional.normalize(at_least_float32(features))
        with torch.autocast(unit.device.type, enabled=False):
            logits = self.head.scale * unit @ self.head.weight.clone().T  # a copy: it changes before the backward pass
        if self.net.rounds_logits:
            logits = rounded(logits)
        self.remember(unit.detach(), target)
        return functional.cross_entropy(logits, target)

    @torch.no_grad()
    def remember(self, unit: Tensor, target: Tensor) -> None:
        """Let unit features (B, F) join the table, one after the other."""
        table = self.head.weight
        for f, y in zip(unit, target.tolist(), strict=True):
            table[y] = functional.normalize(self.momentum * table[y] + (1 - self.momentum) * f, dim=0)


def frame_sets(target: Tensor, size: int) -> Tensor:
    """(S, size) positions in the batch: the frames of every label, in their order, cut into sets.

    A set that would be shorter repeats its frames. With `sampler="balanced"` every label of a batch has as many frames.

    >>> frame_sets(torch.tensor([7, 3, 7, 7, 3]), 2)
    tensor([[1, 4],
            [0, 2],
            [3, 3]])
    """
    cycle = torch.arange(size, device=target.device)
    return torch.stack(
        [
            frames[cycle % len(frames)]
            for label in torch.unique(target)
            for frames in (target == label).nonzero().squeeze(1).split(size)
        ]
    )
