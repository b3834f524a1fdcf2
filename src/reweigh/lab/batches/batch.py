"""A batch, its labels, and the protocol of images that are decoded on demand."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Batch(NamedTuple):
    """The examples of one step, on one device.

    Attributes:
        inputs: float32, (B, C, H, W) or (B, F).
        target: the given labels, (B,) int64, or (B, C) float for soft labels.
        index: (B,) int64, the positions of these examples in the part.
    """

    inputs: Tensor
    target: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which a batch has no use for


class Images(Protocol):
    """Images that are decoded on demand, such as `reweigh.lab.data`'s `Files`, or a list of arrays."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> NDArray[np.uint8]: ...


def label_tensor(labels: NDArray[Any] | Tensor, n: int, device: torch.device) -> Tensor:
    """Return the labels of `n` examples on `device`: (n,) integers as int64, or (n, C) soft labels as float32.

    >>> label_tensor(np.array([1, 0], np.int32), 2, torch.device("cpu"))
    tensor([1, 0])
    """
    tensor = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels))
    soft = tensor.is_floating_point()
    if tensor.ndim != (2 if soft else 1) or len(tensor) != n or tensor.is_complex():
        raise ValueError(
            f"labels must be ({n},) integers or ({n}, C) floats, one row per example, "
            f"not {tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
        )
    return tensor.to(device, torch.float32 if soft else torch.int64)
