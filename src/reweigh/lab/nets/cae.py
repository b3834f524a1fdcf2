"""CAE's net (Chen 2018): unit embeddings of frames, snippets pooled by attention, and a net that compares snippets."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from reweigh.lab.nets.net import Net


class CAENet(Net):
    """Raw features of a body, an embedding (linear - BN - unit length), self pooling, and a pair classifier.

    The input is RGB alone; the published net also reads optical flow.

    Args:
        body: any net; its classifier is dropped.
        num_classes: C.
        width: numbers in an embedding.
        dropout: before the classifier.
    """

    def __init__(self, body: Net, num_classes: int, width: int = 128, *, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        raw = body.classifier.in_features
        del body.fc
        self.body = body
        self.embed = nn.Sequential(nn.Linear(raw, width), nn.BatchNorm1d(width))
        self.query = nn.Sequential(nn.Linear(raw, width), nn.BatchNorm1d(width))
        self.key = nn.Sequential(nn.Linear(raw, width), nn.BatchNorm1d(width))
        self.pair = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 2))
        self.fc = nn.Linear(width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """(N, width) unit embeddings."""
        return self.embedded(self.body.features(x))

    def embedded(self, raw: Tensor) -> Tensor:
        """Return unit embeddings (N, width) of raw features (N, F)."""
        return functional.normalize(self.embed(raw))

    def attended(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return embeddings, queries and keys of frames, each (N, width), as `self_pooled` takes them."""
        raw = self.body.features(x)
        return self.embedded(raw), self.query(raw), self.key(raw)

    def same(self, a: Tensor, b: Tensor) -> Tensor:
        """Return logits (N, 2) of "two people" and "one person" for snippets a and b, (N, width) each."""
        logits: Tensor = self.pair((a - b).square())
        return logits


def self_pooled(values: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """Pool snippets (S, D) from (S, T, D) values, queries and keys of their T frames.

    The weights are a softmax over the frames of (mean query) key, separately in every dimension.

    >>> import torch
    >>> values = torch.tensor([[[1.0, 4.0], [3.0, 0.0]]])
    >>> self_pooled(values, torch.ones(1, 2, 2), torch.zeros(1, 2, 2))
    tensor([[2., 2.]])
    """
    weights = (queries.mean(1, keepdim=True) * keys).softmax(1)
    return (weights * values).sum(1)
