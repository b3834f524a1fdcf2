"""Local intrinsic dimensionality, by maximum likelihood from nearest neighbours (Ma 2018)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev

import torch
from torch import Tensor


def intrinsic_dimension(features: Tensor, k: int = 20) -> Tensor:
    """(B,) LID = -1 / mean_j log(r_j / r_k) over the distances r_1 <= ... <= r_k within the batch, itself excluded.

    Args:
        features: (B, d), B > k.
        k: neighbours.
    """
    if len(features) <= k:
        raise ValueError(f"k is {k}, so the batch needs more than {k} rows, not {len(features)}")
    points = features.detach().flatten(1).double()
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)
    nearest = distances.topk(k, largest=False).values.sort(1).values
    farthest = nearest[:, -1:].clamp_min(1e-30)  # identical images
    return -1 / (nearest / farthest + 1e-8).log().mean(1).clamp_max(-1e-8)


def turns(dimensions: Sequence[float], start: int, window: int = 5) -> bool:
    """Whether the last dimension stands out: more than two deviations above the mean of the `window` before it.

    Never before epoch start + window, epochs counted from 0, nor where a dimension is not finite: training diverged.

    >>> turns([9, 8, 7, 6, 5, 10], start=0), turns([9, 8, 7, 6, 5, 4], start=0), turns([9, 8, 7, 6, 5, 10], start=1)
    (True, False, False)
    """
    epoch = len(dimensions) - 1
    if epoch < start + window or not all(map(math.isfinite, dimensions[-window - 1 :])):
        return False
    before = dimensions[-window - 1 : -1]
    return dimensions[-1] - fmean(before) > 2 * pstdev(before)
