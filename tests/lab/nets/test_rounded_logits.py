from __future__ import annotations

import pytest
import torch

from reweigh.lab.nets import build
from reweigh.lab.nets.net import rounded


@pytest.mark.parametrize("compiled", [False, True])
def test_logits_can_be_rounded_to_see_what_it_costs(compiled: bool) -> None:
    net, x = build("mlp-8", 3, 5, generator=torch.Generator().manual_seed(0)), torch.randn(4, 5)
    exact = net(x)
    net.rounds_logits = True
    if compiled:
        net.compile(dynamic=False)
    rounded = net(x)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact.bfloat16().float(), rtol=0, atol=0)
    incoming = torch.randn_like(rounded)
    (gradient,) = torch.autograd.grad(rounded, net.fc.bias, incoming)
    torch.testing.assert_close(gradient, incoming.bfloat16().float().sum(0), rtol=0, atol=1e-6)


def test_rounding_is_an_operator_as_torch_wants_them() -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.reweigh.rounded.default, (x,))
    for kind in (torch.float32, torch.bfloat16):
        y = x.detach().to(kind)
        assert torch.equal(rounded(y), y.bfloat16().to(kind))
