"""Methods for video re-identification: DRSA and CAE, both trained by online instance matching."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import integer, number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.base import BaseMethod
from reweigh.lab.methods.class_imbalance import CosineLinear
from reweigh.lab.methods.protocol import Context
from reweigh.lab.nets import Net
from reweigh.lab.nets.cae import CAENet, self_pooled
from reweigh.lab.nets.drsa import DRSANet
from reweigh.lab.nets.net import rounded
from reweigh.margin import at_least_float32


class OIM:
    """Cross entropy of scale cos(f, v_k), v_k a running average of the features of class k.

        v_y ← (momentum v_y + (1 - momentum) f) / its length,      in the order of the batch, after the loss

    The table of the v starts at 0 and replaces the net's classifier, so it predicts and is saved with the net.

    Args:
        name: of the method, for error messages.
        net: its classifier is replaced.
        scale: factor on the cosines.
        momentum: in [0, 1).
    """

    def __init__(self, name: str, net: Net, scale: float, momentum: float) -> None:
        self.momentum: float = number(0, 1, below=True)(f"{name}'s momentum", momentum)
        old = net.classifier
        with torch.device("meta"):  # torch would draw initial values from its global generator
            head = CosineLinear(old.in_features, old.out_features, number(0, above=True)(f"{name}'s scale", scale))
        self.head = head.to_empty(device=old.weight.device)
        self.head.weight.requires_grad_(False).zero_()
        self.net, net.fc = net, self.head

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of features (B, F), then add them to the table."""
        unit = functional.normalize(at_least_float32(features))
        with torch.autocast(unit.device.type, enabled=False):
            logits = self.head.scale * unit @ self.head.weight.clone().T  # a copy: it changes before the backward pass
        if self.net.rounds_logits:
            logits = rounded(logits)
        self.remember(unit.detach(), target)
        return functional.cross_entropy(logits, target)

    @torch.no_grad()
    def remember(self, unit: Tensor, target: Tensor) -> None:
        """Add unit features (B, F) to the table, one after the other."""
        table = self.head.weight
        for f, y in zip(unit, target.tolist(), strict=True):
            table[y] = functional.normalize(self.momentum * table[y] + (1 - self.momentum) * f, dim=0)


def frame_sets(target: Tensor, size: int) -> Tensor:
    """Return (S, size) positions in the batch: the frames of every label, in order, cut into sets.

    A set that would be shorter repeats its frames. With `sampler="balanced"` all labels have the same number.

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


class DRSA(BaseMethod):
    """Diversity-regularised spatiotemporal attention (Li 2018): L = OIM(video features) + diversity Q.

    For a net such as "drsa-resnet50".

    Q penalises overlapping attention maps of a frame: see `overlap`. A video is `frames` frames of one label in the
    batch, and its feature the mean of theirs. Two details are chosen here, because they were not released: the temporal
    attention (the gates of `reweigh.lab.nets.drsa`), and which frames make a video: those of one label in the batch,
    from any tracklet, instead of N frames spread over one; so use `sampler="balanced"`.

    Args:
        frames: N, frames of a video.
        diversity: weight of Q.
        over: "batch" is one norm over the batch, as in the released trainer, "frame" the mean of the norms.
        scale, momentum: of OIM.
    """

    reads_features: ClassVar[bool] = True
    uncaptured: ClassVar[str] = "DRSA counts the frames of every label in a batch on the host"

    def __init__(
        self,
        context: Context,
        frames: int = 6,
        diversity: float = 1.0,
        over: str = "batch",
        scale: float = 30.0,
        momentum: float = 0.5,
    ) -> None:
        super().__init__(context)
        if not isinstance(context.net, DRSANet):
            raise TypeError(f"DRSA needs a net such as drsa-resnet50, not {type(context.net).__name__}")
        self.body = context.net
        self.frames: int = integer(1)("DRSA's frames", frames)
        self.diversity: float = number(0)("DRSA's diversity", diversity)
        self.over = one_of("batch", "frame")("DRSA's over", over)
        self.oim = OIM("DRSA", self.body, scale, momentum)

    def loss(self, batch: Batch, step: int) -> Tensor:
        parts, attention = self.body.attend(batch.inputs)
        sets = frame_sets(batch.target, self.frames)
        videos = self.body.gated(parts)[sets].mean(1)
        squares = overlap(attention)
        q = root(squares.sum()) if self.over == "batch" else root(squares).mean()
        return self.oim.loss(videos, batch.target[sets[:, 0]]) + self.diversity * q


def overlap(attention: Tensor) -> Tensor:
    """Return (B,) Q² = ‖√A √Aᵀ - I‖² of each frame's maps A, (B, K, positions), which is 0 only if no maps overlap.

    >>> overlap(torch.eye(3)[None]), overlap(torch.full((1, 2, 4), 0.25))
    (tensor([0.]), tensor([2.]))
    """
    a = root(at_least_float32(attention))
    with torch.autocast(a.device.type, enabled=False):
        gram = a @ a.transpose(1, 2)
    # rows of A sum to 1, so the diagonal is 1 up to rounding
    off = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    return off.square().sum((1, 2))


def root(x: Tensor) -> Tensor:
    """Return √x, with derivative 0 at 0."""
    return torch.where(x > 0, x.clamp_min(torch.finfo(x.dtype).tiny).sqrt(), 0.0)


class CAE(BaseMethod):
    """Competitive snippet similarity with attention (Chen 2018): L = oim OIM(frames) + pair BCE(pairs of snippets).

    For a net such as "cae-resnet50".

    Both snippets of a pair are self-pooled, as in the released program, which never uses its co-attention. In its cross
    entropy over pairs the negatives together weigh `negatives` times as much as the positives; `pair` is the program's
    factor 100 times the sum of its weights, 1/10. Chosen here: a snippet is `frames` frames of one label in the batch,
    from any tracklet, instead of consecutive ones, so use `sampler="balanced"`; all pairs of a batch are compared;
    `oim` is constant, while the program changes it every epoch; there is no optical flow.

    Args:
        frames: of a snippet.
        oim: weight of the identity loss.
        pair: weight of the pair loss.
        negatives: weight of all negatives over that of all positives.
        scale, momentum: of OIM.
    """

    reads_features: ClassVar[bool] = True
    uncaptured: ClassVar[str] = "CAE counts the frames of every label in a batch on the host"

    def __init__(
        self,
        context: Context,
        frames: int = 8,
        oim: float = 1.0,
        pair: float = 10.0,
        negatives: float = 3.0,
        scale: float = 30.0,
        momentum: float = 0.5,
    ) -> None:
        super().__init__(context)
        if not isinstance(context.net, CAENet):
            raise TypeError(f"CAE needs a net such as cae-resnet50, not {type(context.net).__name__}")
        self.body = context.net
        self.frames: int = integer(1)("CAE's frames", frames)
        self.weight_oim: float = number(0)("CAE's oim", oim)
        self.weight_pair: float = number(0)("CAE's pair", pair)
        self.negatives: float = number(0, above=True)("CAE's negatives", negatives)
        self.oim = OIM("CAE", self.body, scale, momentum)

    def loss(self, batch: Batch, step: int) -> Tensor:
        values, queries, keys = self.body.attended(batch.inputs)
        sets = frame_sets(batch.target, self.frames)
        snippets, labels = self_pooled(values[sets], queries[sets], keys[sets]), batch.target[sets[:, 0]]
        identity = self.oim.loss(values, batch.target)
        if len(sets) < 3:  # the batch norm of the pair classifier needs more than one pair
            return self.weight_oim * identity
        a, b = torch.ones(len(sets), len(sets), device=labels.device).triu(1).nonzero().T
        same = labels[a] == labels[b]
        pairs = pair_loss(self.body.same(snippets[a], snippets[b]), same, self.negatives)
        return self.weight_oim * identity + self.weight_pair * pairs


def pair_loss(logits: Tensor, same: Tensor, negatives: float = 3.0) -> Tensor:
    """Return the cross entropy of pairs (P, 2), negatives together weighing `negatives` times the positives.

    Without positives it is 0.

    >>> logits = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> pair_loss(logits, torch.tensor([True, False, False]))  # log 2, whatever the weights
    tensor(0.6931)
    """
    losses = functional.cross_entropy(at_least_float32(logits), same.long(), reduction="none")
    positive, negative = same.sum(), (~same).sum()
    w = torch.where(same, 1.0, negatives * positive / negative.clamp_min(1))
    return (w * losses).sum() / w.sum().clamp_min(1)
