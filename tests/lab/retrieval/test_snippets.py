"""CAE's snippets: windows of tracklets, and distances from pairs of snippets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reweigh.lab.nets import build
from reweigh.lab.nets.cae import CAENet
from reweigh.lab.retrieval.snippets import competitive, tracklet_distances, windows


@pytest.mark.parametrize("length", [1, 7, 8, 9, 12, 40])
def test_windows_stay_in_the_tracklet(length: int) -> None:
    frames = windows(length)
    assert frames.shape == (max(1, (length - 8) // 4 + 1), 8)
    assert frames.min() == 0
    assert frames.max() < length
    assert length - 1 - frames.max() < 4


def test_windows_refuse_empty_tracklets() -> None:
    with pytest.raises(ValueError, match="length, size and stride must be 1 or more, not 0, 8 and 4"):
        windows(0)


def test_competitive_is_the_mean_of_the_lowest_fifth() -> None:
    assert competitive(torch.arange(1.0, 11.0)).item() == 1.5
    assert competitive(torch.tensor([3.0])).item() == 3.0
    assert competitive(torch.tensor([2.0, 2.0, 2.0])).item() == 2.0
    distances = torch.rand(50, 37, generator=torch.Generator().manual_seed(0))
    limit = np.percentile(distances.numpy(), 20, axis=1, keepdims=True)
    expected = [row[row <= bound].mean() for row, bound in zip(distances.numpy(), limit, strict=True)]
    np.testing.assert_allclose(competitive(distances).numpy(), expected, rtol=1e-6)


def test_distances_are_those_of_the_pair_classifier() -> None:
    draws = torch.Generator().manual_seed(1)
    net = build("cae-linear", 3, 5, generator=draws)
    assert isinstance(net, CAENet)
    net.train()
    net.same(torch.randn(64, 128, generator=draws), torch.randn(64, 128, generator=draws))  # statistics to norm with
    net.eval()
    tracklets = [torch.randn(count, 128, generator=draws) for count in (1, 3, 2, 3)]
    found = tracklet_distances(net, tracklets[:2], tracklets)
    with torch.no_grad():
        for i, query in enumerate(tracklets[:2]):
            for j, other in enumerate(tracklets):
                a, b = query.repeat_interleave(len(other), 0), other.repeat(len(query), 1)
                expected = competitive(net.same(a, b).softmax(1)[:, 0])
                assert found[i, j] == pytest.approx(expected.item(), rel=1e-4)
