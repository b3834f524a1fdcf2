"""What every loss keeps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from reweigh import emphasis_of
from reweigh.losses import (
    ANL_CE,
    NCE_AGCE,
    NCE_RCE,
    Backward,
    BalancedSoftmax,
    BootstrapHard,
    BootstrapSoft,
    Brier,
    Forward,
    FullMAE,
    LabelSmoothing,
    LogitAdjustment,
    LogitClip,
    Loss,
)
from reweigh.noise.class_noise import map_matrix, symmetric_matrix

C = 10
COUNTS = torch.arange(1, C + 1)
LOSSES = [
    LabelSmoothing(0.1),
    LabelSmoothing(0.1, sl_compat=True),
    BootstrapSoft(),
    BootstrapHard(),
    Forward(symmetric_matrix(C, 0.4)),
    Forward(map_matrix([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], 0.3)),
    Forward(map_matrix([1] * C, 1.0)),
    Backward(symmetric_matrix(C, 0.4)),
    LogitAdjustment(COUNTS, tau=1.5),
    BalancedSoftmax(COUNTS),
    NCE_RCE(),
    NCE_AGCE(),
    ANL_CE(),
    LogitClip(1.0),
    FullMAE(),
    Brier(),
]
OF_C_CLASSES = (Forward, Backward, LogitAdjustment, BalancedSoftmax)


def draw(n: int = 64, classes: int = C, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(classes, (n,), generator=generator)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_has_a_weight_curve(loss: Loss) -> None:
    emphasis = emphasis_of(loss, C, generator=torch.Generator().manual_seed(0))
    assert emphasis.w.isfinite().all()
    assert emphasis.cosine.abs().max() <= 1 + 1e-9


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_extreme_logits_stay_finite(loss: Loss, autocast: bool) -> None:
    logits = torch.full((2 * C, C), -80.0)
    logits[torch.arange(2 * C), torch.arange(2 * C) % C] = 80.0
    logits.requires_grad_()
    target = torch.arange(2 * C) // 2
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        scaled = logits @ torch.eye(C)
        value = loss(scaled, target)
    value.backward()
    assert scaled.dtype == (torch.bfloat16 if autocast else torch.float32)
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize(
    "loss",
    [
        *(LabelSmoothing(0.0), LabelSmoothing(0.0, sl_compat=True), BootstrapSoft(), BootstrapHard(), LogitClip(1.0)),
        *(Backward(torch.eye(C), clip=0), FullMAE(), Brier()),
    ],
    ids=repr,
)
def test_a_masked_class_is_as_if_absent(loss: Loss) -> None:
    logits, target = draw(n=8)
    target = target.clamp_max(C - 2)
    masked = torch.cat((logits.detach()[:, :-1], torch.full((8, 1), -torch.inf)), 1).requires_grad_()
    without = logits.detach()[:, :-1].requires_grad_()
    fewer = Backward(torch.eye(C - 1), clip=0) if isinstance(loss, Backward) else loss
    values = loss(masked, target), fewer(without, target)
    torch.testing.assert_close(*values)
    given, expected = (torch.autograd.grad(value, z)[0] for value, z in zip(values, (masked, without), strict=True))
    torch.testing.assert_close(given[:, :-1], expected)
    assert not given[:, -1].any()


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not isinstance(loss, LogitClip)], ids=repr)
def test_a_target_that_is_masked_out_has_the_limit(loss: Loss) -> None:
    """(Logits that are clipped have another one: their norm, of which a masked class is no part, grows on the way.)"""
    logits, target = draw(n=8)
    found = []
    for own in (-1e9, -torch.inf):
        z = logits.detach().double().scatter(1, target[:, None], own).requires_grad_()
        value = loss(z, target)
        found.append((value.detach(), *torch.autograd.grad(value, z)))
    (near, gradient_near), (value, gradient) = found
    torch.testing.assert_close(gradient, gradient_near, rtol=1e-6, atol=1e-6)
    if value.isinf():  # as cross entropy is
        assert near > 1e6
    else:
        torch.testing.assert_close(value, near, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if type(loss) not in OF_C_CLASSES], ids=repr)
def test_a_single_class_has_no_gradient(loss: Loss) -> None:
    logits = torch.tensor([[-3.0], [0.0], [5.0]], requires_grad=True)
    value = loss(logits, torch.zeros(3, dtype=torch.long))
    value.backward()
    assert value == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradcheck_and_reductions(loss: Loss) -> None:
    logits, target = draw(n=4)
    assert torch.autograd.gradcheck(lambda z: loss(z, target), (logits,))
    rows = loss.rows(logits, target)
    torch.testing.assert_close(loss(logits, target), rows.mean())
    assert loss(logits[:0], target[:0]) == 0
