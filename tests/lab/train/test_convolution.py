"""Small convolutions are convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from reweigh.lab.nets.registry import build
from reweigh.lab.train.convolution import use_small_convolutions

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@GPU
@pytest.mark.parametrize("channels", [16, 32, 64])
def test_small_convolutions_are_convolutions(channels: int) -> None:
    torch.manual_seed(0)
    ours = nn.Conv2d(channels, channels, 3, padding=1, bias=False).cuda().to(memory_format=torch.channels_last)
    assert use_small_convolutions(ours) == 1
    for n, side in ((5, 7), (64, 16), (20, 32)):
        x = torch.randn(n, channels, side, side, device="cuda").bfloat16().to(memory_format=torch.channels_last)
        given, g = x.clone().requires_grad_(), torch.randn_like(x)
        with torch.autocast("cuda", torch.bfloat16):
            y = ours(given)
        ours.zero_grad()
        y.backward(g)
        assert given.grad is not None
        assert ours.weight.grad is not None
        exact = x.double().requires_grad_()
        weight = ours.weight.detach().bfloat16().double().requires_grad_()
        nn.functional.conv2d(exact, weight, padding=1).backward(g.double())
        expected = nn.functional.conv2d(exact, weight, padding=1)
        assert exact.grad is not None
        assert weight.grad is not None
        for found, right, error in (
            (y, expected, 3e-3),
            (given.grad, exact.grad, 3e-3),
            (ours.weight.grad, weight.grad, 1e-5),
        ):
            assert (found.double() - right).norm() / right.norm() < error
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.equal(ours(x), y)


def test_small_convolutions_are_left_alone_elsewhere() -> None:
    net = build("resnet20", 10, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 32, 32)
    before = net(x)
    assert use_small_convolutions(net) in (0, 16)
    torch.testing.assert_close(net(x), before)
