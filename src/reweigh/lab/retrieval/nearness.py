"""How near every query is to every item of the gallery, block by block, as one integer that is never tied.

Nearness is an int32 *level*, larger is nearer. A cosine is computed in float64 and rounded to steps of 2^-30, so that
equal features tie exactly, however they were cut into blocks; a distance is compared as float32. A tie goes to the item
that stands first in the gallery. Both are held by the key

    key = -level * 2^32 + gallery row,        nearest item = smallest key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STEPS = 2**30  # of a cosine from 0 to 1
PAIRS = 4096  # compared together when single pairs are asked for
NEVER = torch.iinfo(torch.int64).max
"""The key of what is not ranked at all."""


class Rows(Protocol):
    """Features that are read in slices: an array, a tensor, a memory map, or a reader of one's own."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


Features: TypeAlias = NDArray[Any] | Tensor | Rows


class Block(Protocol):
    """Some consecutive items of the gallery, compared with queries: levels."""

    def rows(self, queries: slice) -> Tensor:
        """(queries, items of the block) int32."""

    def pairs(self, queries: Tensor, items: Tensor) -> Tensor:
        """(n,) int32, of `n` queries with as many items, counted from the block's first."""


class Nearness(Protocol):
    """All of a gallery, read in blocks."""

    queries: int
    items: int
    device: torch.device

    def block(self, rows: slice) -> Block:
        """The items at `rows`."""

    def value(self, level: Tensor) -> Tensor:
        """The similarity, or the negated distance, that a level stands for, as float32."""


class Cosine:
    """The cosine similarity of features, which are L2-normalised here; that of a zero vector is 0.

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
        """The items at `rows`."""
        items = self._unit(self._gallery[rows], "gallery", rows.start)
        if len(items) != rows.stop - rows.start or items.shape[1] != self._queries.shape[1]:
            raise ValueError(
                f"gallery_features[{rows.start}:{rows.stop}] is {tuple(items.shape)}; "
                f"expected ({rows.stop - rows.start}, {self._queries.shape[1]}), as the queries are wide"
            )
        return CosineBlock(self._queries, items)

    def value(self, level: Tensor) -> Tensor:
        """The cosine."""
        return (level.double() / STEPS).float()

    def _unit(self, features: Any, called: str, first: int) -> Tensor:
        tensor: Tensor = features if isinstance(features, Tensor) else torch.from_numpy(np.array(features))
        if tensor.ndim != 2 or not tensor.is_floating_point():
            raise ValueError(f"{called}_features must be (N, D) floats, not {tuple(tensor.shape)} of {tensor.dtype}")
        tensor = tensor.detach().to(self.device).double()  # in this order: half as much travels
        norms = torch.linalg.vector_norm(tensor, dim=1, keepdim=True)
        if not norms.isfinite().all():
            row = first + int(norms.isfinite().logical_not().int().argmax())
            raise ValueError(f"{called}_features: row {row} is not finite")
        unit: Tensor = tensor / norms.clamp_min(torch.finfo(torch.float64).tiny)
        return unit


class CosineBlock(NamedTuple):
    """Unit vectors of all queries and of the block's items."""

    queries: Tensor
    items: Tensor

    def rows(self, queries: slice) -> Tensor:
        """(queries, items) int32."""
        return (self.queries[queries] @ self.items.T).mul_(STEPS).round_().int()

    def pairs(self, queries: Tensor, items: Tensor) -> Tensor:
        """(n,) int32."""
        parts = slices(len(queries), PAIRS)
        cosines = [torch.linalg.vecdot(self.queries[queries[n]], self.items[items[n]]) for n in parts]
        return torch.cat(cosines).mul_(STEPS).round_().int()


class Given:
    """Distances that were computed elsewhere, (Q, G); an array or a memory map."""

    def __init__(self, distances: NDArray[Any] | Tensor, device: torch.device | str = "cpu") -> None:
        if distances.ndim != 2:
            raise ValueError(f"distances must be (Q, G), not {tuple(distances.shape)}")
        self.queries, self.items = len(distances), int(distances.shape[1])
        self.device = torch.device(device)
        self._distances = distances

    def block(self, rows: slice) -> GivenBlock:
        """The items at `rows`."""
        part = self._distances[:, rows]
        tensor = part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
        tensor = tensor.to(self.device, torch.float32)
        if tensor.isnan().any():
            query, item = tensor.isnan().nonzero()[0].tolist()
            raise ValueError(f"distances: NaN at query {query}, gallery row {rows.start + item}")
        return GivenBlock(_ordered((0.0 - tensor).view(torch.int32)))  # 0.0 - 0.0 is 0.0, where -0.0 would sort apart

    def value(self, level: Tensor) -> Tensor:
        """The negated distance."""
        return _ordered(level).view(torch.float32)


class GivenBlock(NamedTuple):
    """The levels of all queries and the block's items."""

    levels: Tensor

    def rows(self, queries: slice) -> Tensor:
        """(queries, items) int32."""
        return self.levels[queries]

    def pairs(self, queries: Tensor, items: Tensor) -> Tensor:
        """(n,) int32."""
        return self.levels[queries, items]


def _ordered(bits: Tensor) -> Tensor:
    """The bits of float32 numbers as int32 in the numbers' order; its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@dataclass(frozen=True)
class Chunks:
    """How much is compared at once: memory grows with `queries` x `gallery`, time hardly changes."""

    queries: int = 256
    gallery: int = 4096

    def __post_init__(self) -> None:
        if self.queries < 1 or self.gallery < 1:
            raise ValueError(f"chunks must be 1 or more, not {self.queries} queries x {self.gallery} items")


def slices(total: int, size: int) -> Iterator[slice]:
    """0 to `total` in steps of `size`.

    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def keys(level: Tensor, rows: Tensor) -> Tensor:
    """The int64 keys of levels of nearness to the gallery's `rows`.

    >>> keys(torch.tensor([5, 7, 5, -1]), torch.arange(4)).argsort().tolist()
    [1, 0, 2, 3]
    """
    return (level.long().neg_() << 32).add_(rows)


def unkeyed(key: Tensor) -> tuple[Tensor, Tensor]:
    """The level and the row of a key.

    >>> unkeyed(keys(torch.tensor([-3]), torch.tensor([7])))
    (tensor([-3], dtype=torch.int32), tensor([7]))
    """
    return (key >> 32).neg_().int(), key & 0xFFFFFFFF
