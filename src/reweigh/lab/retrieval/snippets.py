"""Compare tracklets as CAE does (Chen 2018): split them into snippets, and average the closest pairs of snippets.

distance of two snippets      the pair classifier's probability of "two people"
distance of two tracklets     the mean over the snippet pairs up to the 20th percentile of their distances
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reweigh.lab.data.mars import Tracklets
from reweigh.lab.nets.cae import CAENet, self_pooled
from reweigh.lab.record.files import Lock, make_folder, replace_file
from reweigh.lab.retrieval.cache import cache_settings
from reweigh.lab.retrieval.features import BATCH, check_frames, loader_of
from reweigh.lab.train.model import Card

SIZE, STRIDE = 8, 4  # frames per snippet, and between the starts of two snippets
PERCENTILE = 20.0
PAIRS = 2**22  # snippet pairs compared at once


def windows(length: int, size: int = SIZE, stride: int = STRIDE) -> NDArray[np.int64]:
    """Return the (S, size) frames of each snippet of a tracklet; a shorter tracklet repeats its frames.

    Frames after the last full snippet, fewer than `stride`, are not used.

    >>> windows(13)
    array([[ 0,  1,  2,  3,  4,  5,  6,  7],
           [ 4,  5,  6,  7,  8,  9, 10, 11]])
    >>> windows(3)
    array([[0, 1, 2, 0, 1, 2, 0, 1]])
    """
    if length < 1 or size < 1 or stride < 1:
        raise ValueError(f"length, size and stride must be 1 or more, not {length}, {size} and {stride}")
    start = np.arange(0, max(1, length - size + 1), stride)
    return (start[:, None] + np.arange(size)) % length


def competitive(distances: Tensor, percentile: float = PERCENTILE) -> Tensor:
    """Return the mean of the values up to a percentile (interpolated linearly) of the last dimension.

    >>> competitive(torch.arange(1.0, 11.0))  # the percentile is 2.8
    tensor(1.5000)
    """
    ordered = distances.sort(-1).values
    place = percentile / 100 * (ordered.shape[-1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[-1] - 1)
    limit = torch.lerp(ordered[..., below], ordered[..., above], place - below)
    near = ordered <= limit[..., None]
    return (ordered * near).sum(-1) / near.sum(-1)


def extract_snippets(
    net: CAENet,
    card: Card,
    tracklets: Tracklets,
    cache: str | os.PathLike[str],
    *,
    workers: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Tensor]:
    """Return the snippets (S, D) of each tracklet on `device`; the cache has a file per tracklet.

    Arguments as in `extract_features`.
    """
    check_frames(tracklets, on_disk=True)
    settings = cache_settings(net, card, tracklets, "mean", 1) | {"fusion": "snippets", "size": SIZE, "stride": STRIDE}
    folder = Path(cache) / hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    make_folder(folder)
    net, result = net.to(device).eval(), []
    total, done = int(tracklets.lengths.sum()), 0
    with Lock(folder):
        for row, length in enumerate(tracklets.lengths.tolist()):
            path = folder / f"{row:06d}.safetensors"
            try:
                snippets = safetensors.torch.load_file(path)["snippets"]
            except (OSError, KeyError, safetensors.SafetensorError):  # missing or damaged
                snippets = snippets_of(net, card, tracklets, row, workers, device).cpu()
                content = safetensors.torch.save({"snippets": snippets})
                replace_file(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
            result.append(snippets.to(device))
            done += length
            progress(done, total)
    return result


@torch.no_grad()
def snippets_of(
    net: CAENet, card: Card, tracklets: Tracklets, row: int, workers: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """Return the (S, D) snippets of one tracklet."""
    loader = loader_of(card, tracklets.of(row), workers, device)
    parts = [net.attended(batch.inputs) for batch in loader.evaluation(BATCH)]
    values, queries, keys = (torch.cat(columns).float() for columns in zip(*parts, strict=True))
    frames = torch.from_numpy(windows(len(values))).to(values.device)
    return self_pooled(values[frames], queries[frames], keys[frames])


def tracklet_distances(
    net: CAENet,
    queries: Sequence[Tensor],
    gallery: Sequence[Tensor],
    *,
    percentile: float = PERCENTILE,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.float32]:
    """Return (Q, G) distances of tracklets, each given as its snippets (S, D) on the net's device.

    The pair classifier is a norm and a linear layer over squared differences. In evaluation mode this is a weighted
    squared distance, so all pairs are computed by one matrix product.
    """
    weight, bias = _pair_weights(net)
    groups: dict[int, list[int]] = {}  # tracklets with equally many snippets are compared together
    for row, snippets in enumerate(gallery):
        groups.setdefault(len(snippets), []).append(row)
    distances = torch.empty(len(queries), len(gallery), device=weight.device)
    for i, query in enumerate(queries):
        for count, rows in groups.items():
            step = max(1, PAIRS // (count * len(query)))
            for chunk in (rows[k : k + step] for k in range(0, len(rows), step)):
                others = torch.cat([gallery[row] for row in chunk])
                logits = _weighted_squares(query, others, weight) + bias
                pairs = logits.sigmoid().view(len(query), len(chunk), count).transpose(0, 1).flatten(1)
                distances[i, chunk] = competitive(pairs, percentile)
        progress(i + 1, len(queries))
    return distances.cpu().numpy()


@torch.no_grad()
def _pair_weights(net: CAENet) -> tuple[Tensor, Tensor]:
    """Return w, b with logit("two people") - logit("one person") = Σ w (x - y)² + b, in evaluation mode."""
    norm, linear = net.pair
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(linear, nn.Linear)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    direction = linear.weight[0] - linear.weight[1]
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    shift = norm.bias - scale * norm.running_mean
    return direction * scale, linear.bias[0] - linear.bias[1] + direction @ shift


def _weighted_squares(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """Return (A, B) Σ_k w_k (a_k - b_k)²."""
    return (a.square() @ weight)[:, None] + b.square() @ weight - 2 * (a * weight) @ b.T
