"""Compare queries with a gallery block by block, and map similarity and gallery row to one sortable integer.

Similarity is an int32 *level*; larger is more similar. A cosine is computed in float64 and rounded to steps of 2^-30,
so that equal features tie exactly in blocks of any size; a distance is compared as float32. Ties are ordered by gallery
row. Both are combined in the key

    key = -level * 2^32 + gallery row,        most similar item = smallest key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STEPS = 2**30  # levels of a cosine from 0 to 1
PAIRS = 4096  # single pairs compared at once
NEVER = torch.iinfo(torch.int64).max
"""The key of an item that is not ranked."""


class Rows(Protocol):
    """Features that are read in slices: an array, a tensor, a memory map, or any other reader."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


Features: TypeAlias = NDArray[Any] | Tensor | Rows


class Block(Protocol):
    """Consecutive items of the gallery that can be compared with queries."""

    def rows(self, queries: slice) -> Tensor:
        """Return (queries, items of the block) int32 levels."""

    def pairs(self, queries: Tensor, items: Tensor) -> Tensor:
        """Return (n,) int32 levels of n queries and n items, counted from the block's first."""


class Similarity(Protocol):
    """The similarity of queries to a gallery that is read in blocks."""

    queries: int
    items: int
    device: torch.device

    def block(self, rows: slice) -> Block:
        """Return the items at `rows`."""

    def value(self, level: Tensor) -> Tensor:
        """Convert levels to similarity, or negated distance, in float32."""


class CosineSimilarity:
    """The cosine similarity of features; that of a zero vector is 0.

    Args:
        queries: (Q, D).
        gallery: (G, D), read in slices.
        device: where to compute.
    """

    def __init__(self, queries: Features, gallery: Features, device: torch.device | str = "cpu") -> None:
        self.queries, self.items, self.device = len(queries), len(gallery), torch.device(device)
        self._gallery = gallery
        self._queries = self._unit(queries[:], "query", 0)

    def block(self, rows: slice) -> CosineBlock:
        """Return the items at `rows`."""
        items = self._unit(self._gallery[rows], "gallery", rows.start)
        if len(items) != rows.stop - rows.start or items.shape[1] != self._queries.shape[1]:
            raise ValueError(
                f"gallery_features[{rows.start}:{rows.stop}] is {tuple(items.shape)}; "
                f"expected ({rows.stop - rows.start}, {self._queries.shape[1]}) to match the queries"
            )
        return CosineBlock(self._queries, items)

    def value(self, level: Tensor) -> Tensor:
        """Convert levels to cosines."""
        return (level.double() / STEPS).float()

    def _unit(self, features: Any, side: str, first: int) -> Tensor:
        tensor: Tensor = features if isinstance(features, Tensor) else torch.from_numpy(np.array(features))
        if tensor.ndim != 2 or not tensor.is_floating_point():
            raise ValueError(f"{side}_features must be (N, D) floats, not {tuple(tensor.shape)} of {tensor.dtype}")
        tensor = tensor.detach().to(self.device).double()  # moved first, since float32 is half the size
        norms = torch.linalg.vector_norm(tensor, dim=1, keepdim=True)
        if not norms.isfinite().all():
            row = first + int(norms.isfinite().logical_not().int().argmax())
            raise ValueError(f"{side}_features: row {row} is not finite")
        unit: Tensor = tensor / norms.clamp_min(torch.finfo(torch.float64).tiny)
        return unit


class CosineBlock(NamedTuple):
    """Unit vectors of all queries and of a block's items."""

    queries: Tensor
    items: Tensor

    def rows(self, queries: slice) -> Tensor:
        """Return (queries, items of the block) int32 levels."""
        return (self.queries[queries] @ self.items.T).mul_(STEPS).round_().int()

    def pairs(self, queries: Tensor, items: Tensor) -> Tensor:
        """Return (n,) int32 levels of n queries and n items, counted from the block's first."""
        parts = slices(len(queries), PAIRS)
        cosines = [torch.linalg.vecdot(self.queries[queries[n]], self.items[items[n]]) for n in parts]
        return torch.cat(cosines).mul_(STEPS).round_().int()


class GivenDistances:
    """Precomputed distances (Q, G), as an array or a memory map."""

    def __init__(self, distances: NDArray[Any] | Tensor, device: torch.device | str = "cpu") -> None:
        if distances.ndim != 2:
            raise ValueError(f"distances must be (Q, G), not {tuple(distances.shape)}")
        self.queries, self.items = len(distances), int(distances.shape[1])
        self.device = torch.device(device)
        self._distances = distances

    def block(self, rows: slice) -> DistanceBlock:
        """Return the items at `rows`."""
        part = self._distances[:, rows]
        tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
        tensor = tensor.to(self.device, torch.float32)
        if tensor.isnan().any():
            query, item = tensor.isnan().nonzero()[0].tolist()
            raise ValueError(f"distances: NaN at query {query}, gallery row {rows.start + item}")
        return DistanceBlock(_ordered((0.0 - tensor).view(torch.int32)))  # 0.0 - x, so that 0.0 does not become -0.0

    def value(self, level: Tensor) -> Tensor:
        """Convert levels to negated distances."""
        return _ordered(level).view(torch.float32)


class DistanceBlock(NamedTuple):
    """The levels of all queries and a block's items."""

    levels: Tensor

    def rows(self, queries: slice) -> Tensor:
        """Return (queries, items of the block) int32 levels."""
        return self.levels[queries]

    def pairs(self, queries: Tensor, items: Tensor) -> Tensor:
        """Return (n,) int32 levels of n queries and n items, counted from the block's first."""
        return self.levels[queries, items]


def _ordered(bits: Tensor) -> Tensor:
    """Map the bits of float32 numbers to int32 in the same order; it is its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@dataclass(frozen=True)
class Chunks:
    """Numbers of queries and items compared at once; memory grows with their product."""

    queries: int = 256
    gallery: int = 4096

    def __post_init__(self) -> None:
        if self.queries < 1 or self.gallery < 1:
            raise ValueError(f"chunks must be 1 or more, not {self.queries} queries and {self.gallery} items")


def slices(total: int, size: int) -> Iterator[slice]:
    """Split the range from 0 to `total` into slices of `size`.

    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def keys(level: Tensor, rows: Tensor) -> Tensor:
    """Return the int64 keys of similarity levels and gallery rows.

    >>> keys(torch.tensor([5, 7, 5, -1]), torch.arange(4)).argsort().tolist()
    [1, 0, 2, 3]
    """
    return (level.long().neg_() << 32).add_(rows)


def unkeyed(key: Tensor) -> tuple[Tensor, Tensor]:
    """Return the levels and gallery rows of keys.

    >>> unkeyed(keys(torch.tensor([-3]), torch.tensor([7])))
    (tensor([-3], dtype=torch.int32), tensor([7]))
    """
    return (key >> 32).neg_().int(), key & 0xFFFFFFFF
