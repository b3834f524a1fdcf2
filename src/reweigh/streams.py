"""Random generators as a function of (seed, stream, step), so that a resumed run draws the same numbers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch


def mix(seed: int, stream: str, step: int = 0) -> int:
    """Return the 63-bit seed of a stream at a step; streams with different names are independent.

    >>> mix(0, "noise") == mix(0, "noise", 0)
    True
    >>> mix(0, "noise") == mix(0, "order")
    False
    """
    digest = hashlib.sha256(f"{seed}/{stream}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, stream: str, step: int = 0) -> torch.Generator:
    """Return a new CPU `torch.Generator` for a stream and step.

    >>> import torch
    >>> a, b = (torch.rand(3, generator=generator(1, "order", 7)) for _ in range(2))
    >>> bool((a == b).all())
    True
    """
    import torch

    return torch.Generator().manual_seed(mix(seed, stream, step))


def numpy_generator(seed: int, stream: str, step: int = 0) -> np.random.Generator:
    """Return a new `numpy.random.Generator` for a stream and step."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(mix(seed, stream, step)))
