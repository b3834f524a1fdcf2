"""The kernels' gradient and value beside the float64 reference, over shapes, types, strides and edges."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import torch

from float64_reference import OTHER, TOLERANCE, check, draw, result
from reweigh.criterion import Criterion
from reweigh.weightings import (
    CCE,
    DM,
    GCE,
    MAE,
    MSE,
    Beta,
    Exponential,
    Focal,
    Normal,
    Tapered,
    Uniform,
    Weighting,
)

HALF = torch.bfloat16

WEIGHTINGS = [
    DM(0.5, 8),
    DM(0, -3),
    DM(1, 24),
    Exponential(2),
    Normal(0.3, 6),
    Beta(2.5, 1.5),
    Uniform(),
    CCE(),
    MAE(),
    MSE(),
    GCE(0.7),
    Focal(2.0),
    Focal(0.5, detach=True),
    Tapered(DM(0.5, 8), 1e-3),
]


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("normalise", [None, "unit"])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
def test_weightings_that_a_kernel_weighs(weighting: Weighting, normalise: Any, device: torch.device) -> None:
    check(Criterion(weighting, normalise=normalise), *draw(6, 10, device))


@pytest.mark.parametrize("weighting", [*WEIGHTINGS[:1], Normal(0.7, -2), CCE(), WEIGHTINGS[-1]], ids=repr)
def test_batch_normalisation(weighting: Weighting, device: torch.device) -> None:
    check(Criterion(weighting, normalise="batch"), *draw(6, 10, device))


SHAPES = [(1, 2), (5, 2), (65, 3), (3, 100), (2, 1000), (2, 4096), (2, 4104), (2, 9001), (2, 33000)]


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_and_types(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
    if dtype == torch.float16 and shape[1] > 1000:
        pytest.skip("as bfloat16")
    check(Criterion(DM(0.5, 8), normalise="unit"), *draw(*shape, device, dtype))


@pytest.mark.parametrize("shape", [(1100, 3), (130, 40)], ids=str)
@pytest.mark.parametrize(("weighting", "normalise"), [(DM(0.5, 24), "batch"), (OTHER, "batch"), (OTHER, None)], ids=str)
def test_many_rows(weighting: Weighting, normalise: Any, shape: tuple[int, int], device: torch.device) -> None:
    logits, target = draw(*shape, device)
    target[::7] = -100
    check(Criterion(weighting, normalise=normalise), logits * 0.3, target)
    if normalise is None:  # a mean may divide by less than nothing
        sample = torch.linspace(-1, 0.5, len(logits), device=device)
        check(Criterion(weighting, normalise=None), logits * 0.3, target, sample_weight=sample)
        check(Criterion(weighting, normalise=None, reduction="sum"), logits * 0.3, target, sample_weight=sample)


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("shape", [(70, 3), (9, 2100)], ids=str)
def test_means_over_some_rows(shape: tuple[int, int], device: torch.device) -> None:
    if (
        os.environ.get("TRITON_INTERPRET") == "1"
        and shape[0] == 9
        and pytest.importorskip("triton").__version__ < "3.3"
    ):
        pytest.skip("Triton 3.2's interpreter stores a single number that its mask hides")
    logits, target = draw(*shape, device)
    criterion = Criterion(DM(0.5, 8), normalise=None)
    check(criterion, logits, target)
    target[::4] = -100
    check(criterion, logits, target, torch.tensor(0.5, device=device))


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=str)
def test_strided_rows(dtype: torch.dtype, device: torch.device) -> None:
    wide, target = draw(8, 48, device, dtype)
    for logits in (wide[:, 8:24], wide[:, 3:16], wide[::2, :40], wide[0:1, :20].expand(4, 20)):
        check(Criterion(CCE()), logits, target[: len(logits)] % logits.shape[1])


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("weighting", [GCE(0.7), Focal(2.0), OTHER], ids=repr)
def test_weights_reductions_and_incoming_gradients(
    weighting: Weighting, reduction: Any, normalise: Any, device: torch.device
) -> None:
    if reduction == "sum" and normalise == "batch":
        pytest.skip("refused: batch normalisation is its own divisor")
    logits, target = draw(9, 10, device)
    target[[1, 4]] = 3
    weight = torch.linspace(0.1, 2, 10, device=device)
    sample = torch.linspace(0, 1, 9, device=device)
    incoming = torch.linspace(-1, 2, 9, device=device) if reduction == "none" else torch.tensor(-0.25, device=device)
    settings: dict[str, Any] = {"normalise": normalise, "reduction": reduction, "ignore_index": 3}
    check(Criterion(weighting, **settings), logits, target, incoming)
    check(Criterion(weighting, weight=weight, **settings), logits, target, incoming, sample_weight=sample)
    check(Criterion(weighting, **settings), logits, target, incoming, sample_weight=sample.double())


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("weighting", [CCE(), Focal(2.0), OTHER], ids=repr)
def test_negative_sample_weights(weighting: Weighting, device: torch.device) -> None:
    sample = torch.tensor([-1.0, 2.0, -0.5, 1.0, 0.0, 3.0], device=device)
    check(Criterion(weighting), *draw(6, 10, device), sample_weight=sample)


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("dtype", [torch.float32, HALF], ids=str)
def test_masked_classes_and_far_margins(normalise: Any, dtype: torch.dtype, device: torch.device, backend: str) -> None:
    logits, target = draw(8, 12, device, dtype)
    logits[:, 5] = -math.inf
    logits[0] = -math.inf
    logits[0, target[0]] = 1.0  # nothing to turn to
    logits[1, target[1]] = -math.inf
    logits[2, target[2]] = 90.0
    logits[3, target[3]] = -90.0
    target[4] = -100
    if backend == "triton":  # which does not even read an ignored row; torch multiplies it by 0
        logits[4, :3] = math.nan
    criterion = Criterion(MAE(), normalise=normalise, reduction="none")
    _, gradient = result(criterion, logits, target)
    known = [0, 2, 3, 5, 6, 7]
    assert not gradient[[0, 4]].any()
    assert not gradient[:, 5].any()
    check(Criterion(MAE(), normalise=normalise), logits[known], target[known])
    # a target of -inf has w(0), for MAE nothing, and for CCE all there is
    _, gradient = result(Criterion(CCE(), reduction="sum"), logits[1:2], target[1:2])
    assert gradient.abs().sum().item() == pytest.approx(2, rel=1e-2)


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize(
    "weighting", [CCE(), DM(0.5, 8), MAE(), GCE(0.7), GCE(0.1), Beta(1.5, 2), Focal(2.0), MAE() + GCE(0.1)], ids=repr
)
def test_a_batch_of_labels_that_are_masked_out(weighting: Weighting, device: torch.device) -> None:
    logits, target = draw(6, 10, device)
    logits[torch.arange(6), target] = -math.inf
    _, gradient = result(Criterion(weighting, normalise="batch", taper=0.0), logits, target)
    share = 1 / 6 if weighting(0.0) > 0 else 0.0
    assert gradient.abs().sum(1).tolist() == pytest.approx([share] * 6, rel=1e-5)


@pytest.mark.usefixtures("_passes")
def test_norm_is_the_weight_to_the_ends(device: torch.device) -> None:
    others = torch.randn(61, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own = torch.linspace(-90, 90, 61, dtype=torch.float64) + others.logsumexp(1)
    logits = torch.cat((own[:, None], others), 1).float().to(device)
    target = torch.zeros(61, dtype=torch.long, device=device)
    for weighting in (CCE(), GCE(0.7), DM(0.5, 8), Beta(2.5, 1.5), Focal(2.0), OTHER):
        criterion = Criterion(weighting, normalise=None, taper=0.0, reduction="sum")
        _, gradient = result(criterion, logits, target)
        _, exact = result(criterion, logits.double(), target)
        torch.testing.assert_close(gradient.double().abs().sum(1), exact.abs().sum(1), rtol=1e-6, atol=1e-37)


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("weighting", [DM(0.5, 8), Tapered(DM(0.5, 8), 4.0), Beta(2.0, 2.0)], ids=repr)
def test_fitted_rows_share_a_batch_although_their_weights_underflow(weighting: Weighting, device: torch.device) -> None:
    logits = torch.zeros(3, 5, device=device)
    logits[:, 0] = torch.tensor([2000.0, 2000.0, 2001.0])
    criterion = Criterion(weighting, normalise="batch", taper=0.0)
    _, gradient = result(criterion, logits, torch.zeros(3, dtype=torch.long, device=device))
    assert gradient.abs().sum().item() == pytest.approx(1.0)


@pytest.mark.usefixtures("_passes")
def test_large_common_offsets_cost_nothing(device: torch.device) -> None:
    logits, target = draw(5, 10, device)
    logits = (logits * 8).round() / 8
    criterion = Criterion(DM(0.5, 8), normalise=None)
    _, near = result(criterion, logits, target)
    _, far = result(criterion, logits + 2.0**20, target)
    torch.testing.assert_close(far, near)


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("normalise", [None, "batch"])
@pytest.mark.parametrize("weighting", [DM(0.5, 8), Focal(2.0), OTHER], ids=repr)
@pytest.mark.parametrize("rows", [4, 1100])
def test_nothing_valid_and_nothing_weighed_give_zero(
    rows: int, weighting: Weighting, normalise: Any, device: torch.device
) -> None:
    logits, target = draw(rows, 10, device)
    criterion = Criterion(weighting, normalise=normalise)
    value, gradient = result(criterion, logits, torch.full_like(target, -100))
    assert value == 0
    assert not gradient.any()
    _, gradient = result(criterion, logits, target, sample_weight=torch.zeros(rows, device=device))
    assert not gradient.any()


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("weighting", [CCE(), Focal(2.0), OTHER], ids=repr)
def test_nan_and_unknown_labels_show(weighting: Weighting, device: torch.device) -> None:
    logits, target = draw(4, 2, device)
    logits[1, 1 - target[1]] = math.nan
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    unknown = device.type == "cuda" or (interpreted and weighting is not OTHER)  # else refused: labels can be read
    if unknown:
        target[2] = 7
    _, gradient = result(Criterion(weighting, reduction="sum"), logits, target)
    assert gradient[1].isnan().all()
    assert gradient[2].isnan().all() == unknown
    assert gradient[[0, 3]].isfinite().all()


@pytest.mark.usefixtures("_passes")
@pytest.mark.parametrize("weighting", [CCE(), Focal(2.0), OTHER], ids=repr)
def test_integer_types_of_targets(weighting: Weighting, device: torch.device) -> None:
    logits, target = draw(6, 300, device)
    target = target % 100
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32):
        narrow, criterion = target.to(dtype), Criterion(weighting, reduction="none")
        if dtype == torch.uint8:
            narrow[:2] = 156  # what -100 would be in eight bits
        value, gradient = result(criterion, logits, narrow)
        expected_value, expected = result(criterion, logits, narrow.long())
        assert torch.equal(value, expected_value)
        assert torch.equal(gradient, expected)
        # differentiated again
        z = logits.clone().requires_grad_()
        first, second = (
            torch.autograd.grad(criterion(z, y).sum(), z, create_graph=True)[0] for y in (narrow, narrow.long())
        )
        assert torch.equal(first, second)


@pytest.mark.parametrize("by_class", [False, True])
def test_narrow_targets_of_many_rows_beside_one_factor(by_class: bool, device: torch.device) -> None:
    """What Triton 3.3 to 3.6 did not compile: one program for more rows than it has threads."""
    logits, target = draw(500, 6, device)
    weight, sample = torch.rand(6, device=device) + 0.5, torch.rand(500, device=device) + 0.5
    criterion = Criterion(DM(0.5, 8.0), reduction="none", weight=weight if by_class else None)
    factor = {"sample_weight": None if by_class else sample}
    value, gradient = result(criterion, logits, target.int(), **factor)
    expected_value, expected = result(criterion, logits, target, **factor)
    assert torch.equal(value, expected_value)
    assert torch.equal(gradient, expected)


def test_strided_targets(device: torch.device) -> None:
    logits, target = draw(6, 10, device)
    _, expected = result(Criterion(CCE()), logits, target)
    _, gradient = result(Criterion(CCE()), logits, torch.stack((target, target), 1)[:, 0])
    assert torch.equal(gradient, expected)
