from __future__ import annotations

import torch

from reweigh.nets import build


def test_logits_can_be_rounded_to_see_what_it_costs() -> None:
    net, x = build("mlp-8", 3, 5, generator=torch.Generator().manual_seed(0)), torch.randn(4, 5)
    exact = net(x)
    net.rounds_logits = True
    rounded = net(x)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact.bfloat16().float(), rtol=0, atol=0)
    incoming = torch.randn_like(rounded)
    (gradient,) = torch.autograd.grad(rounded, net.fc.bias, incoming)
    torch.testing.assert_close(gradient, incoming.bfloat16().float().sum(0), rtol=0, atol=1e-6)
