"""Competitive snippet similarity with attention, CAE (Chen 2018)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from reweigh.checks import integer, number
from reweigh.lab.batches import Batch
from reweigh.lab.methods.oim import OIM, frame_sets
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching
from reweigh.lab.nets.cae import CAENet, self_pooled
from reweigh.margin import at_least_float32


class CAE(Teaching):
    """L = oim OIM(frames) + pair BCE(pairs of snippets), for a net such as "cae-resnet50".

    Snippets are self-pooled, both of a pair, as in the released program, whose co-attention is never called. In its
    cross entropy over pairs the negatives together weigh `negatives` times as much as the positives; `pair` is its 100
    times the 1/10 that its weights sum to. Chosen here: a snippet is `frames` frames of one label in the batch, of
    whatever tracklet, instead of consecutive ones, so take `sampler="balanced"`; all pairs of a batch are compared;
    `oim` is constant, where the program's changes from epoch to epoch; there is no optical flow.

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
        if len(sets) < 3:  # one pair is no batch for the norm in the pair classifier
            return self.weight_oim * identity
        a, b = torch.ones(len(sets), len(sets), device=labels.device).triu(1).nonzero().T
        same = labels[a] == labels[b]
        pairs = pair_loss(self.body.same(snippets[a], snippets[b]), same, self.negatives)
        return self.weight_oim * identity + self.weight_pair * pairs


def pair_loss(logits: Tensor, same: Tensor, negatives: float = 3.0) -> Tensor:
    """Cross entropy of pairs (P, 2), negatives together weighing `negatives` times the positives; 0 without positives.

    >>> logits = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    >>> pair_loss(logits, torch.tensor([True, False, False]))  # log 2, whatever the weights
    tensor(0.6931)
    """
    losses = functional.cross_entropy(at_least_float32(logits), same.long(), reduction="none")
    positive, negative = same.sum(), (~same).sum()
    w = torch.where(same, 1.0, negatives * positive / negative.clamp_min(1))
    return (w * losses).sum() / w.sum().clamp_min(1)
