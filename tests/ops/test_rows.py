"""rows.cu beside the float64 reference: the single pass over rows in shared memory, which only a GPU has."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from beside_float64 import TOLERANCE
from reweigh.criterion import Criterion
from reweigh.weightings import CCE, DM, GCE, Focal, Normal, Tapered, Weighting

# fewer rows than multiprocessors, and so many that slots are used several times; rows that begin anywhere
SHAPES = [
    (1, 21841, torch.float32),
    (700, 21841, torch.float32),
    (300, 20000, torch.float32),
    (300, 50304, torch.bfloat16),
    (300, 40003, torch.float16),
    # parts for several blocks
    (1, 60007, torch.bfloat16),
    (300, 151936, torch.bfloat16),
    (100, 160001, torch.float32),
]


@pytest.fixture(autouse=True)
def _there() -> None:
    rows = pytest.importorskip("reweigh.ops.rows")
    if rows._compiled(torch.cuda.current_device(), torch.float32, rows.Parts(1, 11), (0, 0, 0), 1)[0] is None:
        pytest.skip("needs a Hopper or newer, and torch 2.9 or newer with NVRTC")


def draw(n: int, c: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    rng = torch.Generator("cuda").manual_seed(n + c)
    logits = (torch.randn(n, c, generator=rng, device="cuda") * 3).to(dtype)
    target = torch.randint(c, (n,), generator=rng, device="cuda")
    logits[torch.arange(n), target] += 8 * torch.rand(n, generator=rng, device="cuda").to(dtype)
    return logits, target


def result(criterion: Criterion, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().requires_grad_()
    value = criterion(leaf.view_as(leaf), target)
    incoming = torch.linspace(1, 2, value.numel(), device="cuda").view_as(value)
    (gradient,) = torch.autograd.grad(value, leaf, incoming.to(value.dtype))
    return value.detach().double(), gradient


def check(criterion: Criterion, logits: Tensor, target: Tensor) -> None:
    launch, tiles = (pytest.importorskip(f"reweigh.ops.{name}") for name in ("launch", "tiles"))
    rows = pytest.importorskip("reweigh.ops.rows")
    at = tiles.layout(logits, criterion.inplace, target, None, None)
    form = launch.Form(1, 0.5, 8.0)
    assert isinstance(launch.fused(at, launch.Weights(form, 5e-7, False, "mean", -100)).one, rows.Rows)
    expected_value, expected = result(criterion, logits.double(), target)
    value, gradient = result(criterion, logits.clone() if criterion.inplace else logits, target)
    assert gradient.dtype == logits.dtype
    assert (gradient.double() - expected).norm() <= TOLERANCE[logits.dtype] * expected.norm()
    torch.testing.assert_close(value, expected_value, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("n", "c", "dtype"), SHAPES, ids=str)
def test_shapes_and_types(n: int, c: int, dtype: torch.dtype) -> None:
    check(Criterion(DM(0.5, 8), normalise=None), *draw(n, c, dtype))


@pytest.mark.parametrize(
    "weighting", [CCE(), GCE(0.7), Normal(0.3, 6), Focal(2.0), Tapered(DM(0.5, 8), 1e-3)], ids=repr
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weightings_and_reductions(weighting: Weighting, reduction: Any) -> None:
    logits, target = draw(280, 21841, torch.float32)
    target[::5] = -100
    check(Criterion(weighting, normalise=None, reduction=reduction), logits, target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_masked_classes_and_ignored_rows(dtype: torch.dtype) -> None:
    logits, target = draw(9, 45001 if dtype == torch.bfloat16 else 21841, dtype)
    logits[:, 5:5000] = -math.inf
    target[:5] = 7
    target[5:] = torch.tensor([0, 5000, 5002, 20000])
    logits[0] = -math.inf
    logits[0, 7] = 1.0  # nothing to turn to
    logits[1, 7] = 90.0
    logits[2, 7] = -90.0
    target[3] = -100
    logits[3, :3] = math.nan  # ignored
    target[4] = -100
    criterion = Criterion(DM(0.5, 8), normalise=None)
    _, gradient = result(criterion, logits, target)
    assert not gradient[[0, 3, 4]].any()
    assert not gradient[5:, 5:5000].any()
    check(criterion, logits[[0, 1, 2, 5, 6, 7, 8]].contiguous(), target[[0, 1, 2, 5, 6, 7, 8]])


def test_nan_and_unknown_labels_show() -> None:
    logits, target = draw(8, 21841, torch.float32)
    logits[1, 900] = math.nan
    target[2] = 21841
    logits[[3, 5], [0, 21840]] = math.nan  # at the ends, which are read apart
    _, gradient = result(Criterion(CCE(), reduction="sum"), logits, target)
    assert gradient[[1, 2, 3, 5]].isnan().all()
    assert gradient[[0, 4, 6, 7]].isfinite().all()


def test_in_place_of_strided_rows() -> None:
    wide, target = draw(300, 21900, torch.float32)
    check(Criterion(DM(0.5, 8), normalise=None, inplace=True), wide[:, :21841], target % 21841)


def test_nothing_valid() -> None:
    logits, target = draw(4, 21841, torch.float32)
    value, gradient = result(Criterion(DM(0.5, 8), normalise=None), logits, torch.full_like(target, -100))
    assert value == 0
    assert not gradient.any()


def test_the_same_bytes_every_time() -> None:
    logits, target = draw(700, 21841, torch.float32)
    criterion = Criterion(DM(0.5, 8), normalise=None)
    first, second = (result(criterion, logits, target) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
