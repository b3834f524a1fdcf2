"""CAE's comparison of tracklets (Chen 2018): cut them into snippets, and let only the nearest pairs of snippets count.

distance of two snippets      the pair classifier's probability of "two people"
distance of two tracklets     the mean of those of its snippet pairs that are within their 20th percentile
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
from reweigh.lab.retrieval.cache import describe
from reweigh.lab.retrieval.features import BATCH, check_frames, loader_of
from reweigh.lab.train.model import Card

SIZE, STRIDE = 8, 4  # frames of a snippet, and from one to the next
PERCENTILE = 20.0
PAIRS = 2**22  # snippet pairs compared at once


def windows(length: int, size: int = SIZE, stride: int = STRIDE) -> NDArray[np.int64]:
    """(S, size) frames of each snippet of a tracklet; one that is shorter than a snippet repeats its frames.

    Frames after the last whole snippet, fewer than `stride`, are left out.

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
    """The mean over the last dimension of what is not above its percentile, which is interpolated linearly.

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
    """The snippets (S, D) of every tracklet on `device`, from the cache as far as they are there: a file for each.

    Arguments as in `reweigh.lab.retrieval.cache.extract`.
    """
    check_frames(tracklets, there=True)
    settings = describe(net, card, tracklets, "mean", 1) | {"fusion": "snippets", "size": SIZE, "stride": STRIDE}
    folder = Path(cache) / hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    make_folder(folder)
    net, found = net.to(device).eval(), []
    total, done = int(tracklets.lengths.sum()), 0
    with Lock(folder):
        for row, length in enumerate(tracklets.lengths.tolist()):
            path = folder / f"{row:06d}.safetensors"
            try:
                snippets = safetensors.torch.load_file(path)["snippets"]
            except (OSError, KeyError, safetensors.SafetensorError):  # not there, or damaged
                snippets = snippets_of(net, card, tracklets, row, workers, device).cpu()
                content = safetensors.torch.save({"snippets": snippets})
                replace_file(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
            found.append(snippets.to(device))
            done += length
            progress(done, total)
    return found


@torch.no_grad()
def snippets_of(
    net: CAENet, card: Card, tracklets: Tracklets, row: int, workers: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """(S, D) snippets of one tracklet."""
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
    """(Q, G) distances of tracklets, each given as its snippets (S, D) on the net's device.

    In evaluation the pair classifier, a norm and a linear layer over squared differences, is a weighted squared
    distance: so all pairs are one product of matrices.
    """
    weight, bias = _pair_weights(net)
    groups: dict[int, list[int]] = {}  # tracklets with as many snippets are compared together
    for row, snippets in enumerate(gallery):
        groups.setdefault(len(snippets), []).append(row)
    found = torch.empty(len(queries), len(gallery), device=weight.device)
    for i, query in enumerate(queries):
        for count, rows in groups.items():
            step = max(1, PAIRS // (count * len(query)))
            for chunk in (rows[k : k + step] for k in range(0, len(rows), step)):
                others = torch.cat([gallery[row] for row in chunk])
                apart = _weighted_squares(query, others, weight) + bias
                pairs = apart.sigmoid().view(len(query), len(chunk), count).transpose(0, 1).flatten(1)
                found[i, chunk] = competitive(pairs, percentile)
        progress(i + 1, len(queries))
    return found.cpu().numpy()


@torch.no_grad()
def _pair_weights(net: CAENet) -> tuple[Tensor, Tensor]:
    """w, b with logit("two people") - logit("one person") = Σ w (a - b)² + b, for the net in evaluation."""
    norm, linear = net.pair
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(linear, nn.Linear)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    turn = linear.weight[0] - linear.weight[1]
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    shift = norm.bias - scale * norm.running_mean
    return turn * scale, linear.bias[0] - linear.bias[1] + turn @ shift


def _weighted_squares(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """(A, B) Σ_k w_k (a_k - b_k)²."""
    return (a.square() @ weight)[:, None] + b.square() @ weight - 2 * (a * weight) @ b.T
