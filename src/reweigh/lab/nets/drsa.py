"""DRSA's net (Li 2018): several attention maps over a frame, one embedding for each."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.bn_inception import BNInception
from reweigh.lab.nets.net import Net
from reweigh.lab.nets.resnet import ResNet


class DRSANet(Net):
    """A body's feature maps, K spatial attentions over them, and K unit embeddings, each multiplied by its gate.

    Attention: conv1x1 to 64 - BN - ReLU - conv1x1 to K - BN - softmax over positions. A part's feature is the mean of
    the body's under its attention, embedded linearly and brought to unit length. The temporal attention was not
    released; here it is a gate g = sigmoid(u_k · part_k + b_k) for each part and frame, so that the feature of a video,
    the mean of g part over its frames, is what averaging the features of frames gives.

    Args:
        body: a net with `maps`: a ResNet or BN-Inception; its classifier is dropped.
        num_classes: C.
        parts: K; the released default is 3, the paper's 6.
        width: numbers in an embedding.
        dropout: before the classifier.
    """

    def __init__(self, body: Net, num_classes: int, parts: int = 6, width: int = 128, *, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        if not isinstance(body, ResNet | BNInception):
            raise ValueError(
                f"drsa- needs a net with feature maps, a ResNet or bn-inception, not {type(body).__name__}"
            )
        channels = body.classifier.in_features
        del body.fc
        self.body = body
        self.attention = nn.Sequential(
            nn.Conv2d(channels, 64, 1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, parts, 1),
            nn.BatchNorm2d(parts),
        )
        self.embed = nn.Linear(channels, width)
        self.gate = nn.Linear(width, parts)
        self.fc = nn.Linear(parts * width, num_classes)

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parts' features (N, K, width) and the attention (N, K, positions) that pooled them."""
        maps = self.body.maps(x)
        attention = self.attention(maps).flatten(2).softmax(-1)
        pooled = attention @ maps.flatten(2).transpose(1, 2).to(attention.dtype)
        return functional.normalize(self.embed(pooled), dim=-1), attention

    def gated(self, parts: Tensor) -> Tensor:
        """Return (N, K width): every part times its gate."""
        gates = ((parts * self.gate.weight).sum(-1) + self.gate.bias).sigmoid()
        return (gates[..., None] * parts).flatten(1)

    def features(self, x: Tensor) -> Tensor:
        """(N, K width)."""
        return self.gated(self.attend(x)[0])
