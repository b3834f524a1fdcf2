"""Diversity-regularised spatiotemporal attention (Li 2018), as far as it was released."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from reweigh.checks import integer, number, one_of
from reweigh.lab.batches import Batch
from reweigh.lab.methods.oim import OIM, frame_sets
from reweigh.lab.methods.protocol import Context
from reweigh.lab.methods.teaching import Teaching
from reweigh.lab.nets.drsa import DRSANet
from reweigh.margin import at_least_float32


class DRSA(Teaching):
    """L = OIM(video features) + diversity Q, for a net such as "drsa-resnet50".

    Q keeps the attention maps of a frame apart: see `overlap`. A video is `frames` frames of one label in the batch,
    and its feature the mean of theirs. Chosen here, because it was not released: the temporal attention (the gates of
    `reweigh.lab.nets.drsa`), and which frames make a video: those of one label in the batch, of whatever tracklet,
    instead of N frames spread over one; so take `sampler="balanced"`.

    Args:
        frames: N frames of a video.
        diversity: weight of Q.
        over: "batch" is one norm for the whole batch, as the released trainer has it, "frame" the mean of the norms.
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
    """(B,) Q² = ‖√A √Aᵀ - I‖² of each frame's maps A, (B, K, positions): 0 if and only if no two maps meet.

    >>> overlap(torch.eye(3)[None]), overlap(torch.full((1, 2, 4), 0.25))
    (tensor([0.]), tensor([2.]))
    """
    a = root(at_least_float32(attention))
    with torch.autocast(a.device.type, enabled=False):
        gram = a @ a.transpose(1, 2)
    # rows of A sum to 1, so the diagonal is 1 but for rounding
    off = gram - torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
    return off.square().sum((1, 2))


def root(x: Tensor) -> Tensor:
    """√x, with derivative 0 at 0."""
    return torch.where(x > 0, x.clamp_min(torch.finfo(x.dtype).tiny).sqrt(), 0.0)
