"""The gradient: its L1 norm is w, its components sum to 0, and it agrees with high precision."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reweigh
from instances import INSTANCES, WEIGHTINGS, name
from reweigh import CCE, DM, Criterion, Weighting
from reweigh.emphasis import integral, potential
from reweigh.margin import margin, unit_direction
from reweigh.weightings import FromLoss

# Tolerances of a few operations in each type; absolute ones near its smallest subnormal number.
RELATIVE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 4e-6, torch.float64: 1e-11}
ABSOLUTE = {torch.float16: 3e-7, torch.bfloat16: 1e-37, torch.float32: 1e-37, torch.float64: 1e-300}


def gradient(weighting: Weighting, logits: torch.Tensor, target: torch.Tensor, **settings: object) -> torch.Tensor:
    logits = logits.detach().clone().requires_grad_()
    Criterion(weighting, **settings)(logits, target).sum().backward()  # type: ignore[arg-type]
    assert logits.grad is not None
    assert logits.grad.dtype == logits.dtype
    return logits.grad


def with_margins(margin: torch.Tensor, num_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits with the given target margins and unequal other logits."""
    others = torch.randn(len(margin), num_classes - 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own = margin.double() + others.logsumexp(1)
    return torch.cat((own[:, None], others), 1), torch.zeros(len(margin), dtype=torch.long)


@pytest.mark.parametrize("num_classes", [2, 7])
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_l1_norm_is_the_weight_and_components_sum_to_0(weighting: Weighting, num_classes: int) -> None:
    # f(p) knows 1 - p only to the precision of float64
    reach = 15 if isinstance(weighting, FromLoss) else 90
    logits, target = with_margins(torch.linspace(-90, reach, 120), num_classes)
    logits = logits.float()
    grads = gradient(weighting, logits, target, normalise=None, taper=0.0, reduction="sum").double()
    m = margin(logits.double(), target)
    w = weighting(m.sigmoid(), (-m).sigmoid())
    # the float32 sum over classes has an error of 2e-7, which weights with |β| = 200 amplify
    rtol = 5e-6 if "200" in repr(weighting) else 1e-6
    torch.testing.assert_close(grads.abs().sum(1), w, rtol=rtol, atol=1e-37)
    assert (grads.sum(1).abs() <= 1e-6 * w + 1e-37).all()


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_gradient_is_weight_times_direction(weighting: Weighting) -> None:
    logits, target = with_margins(torch.linspace(-30, 30, 61), 5)
    m = margin(logits, target)
    w = weighting(m.sigmoid(), (-m).sigmoid())
    grads = gradient(weighting, logits, target, normalise=None, taper=0.0, reduction="sum")
    torch.testing.assert_close(grads, w[:, None] * unit_direction(logits, target), rtol=1e-9, atol=1e-15)


def exact(row: list[float], target: int, formula: object) -> list[float]:
    """Return w(p) * direction by the paper's equations.

    Uses 400 digits, because log p needs more than 316 if 1 - p is 1e-300.
    """
    with mpmath.workdps(400):
        e = [mpmath.exp(mpmath.mpf(z) - max(row)) for z in row]
        rest = mpmath.fsum(x for j, x in enumerate(e) if j != target)
        total = rest + e[target]
        p, q = e[target] / total, rest / total
        w = formula(p, q, mpmath)  # type: ignore[operator]
        return [float(w / 2 * (e[j] / rest if j != target else -1)) for j in range(len(row))]


rows = st.lists(st.floats(-1e4, 1e4, width=16), min_size=2, max_size=6)


@pytest.mark.parametrize("dtype", RELATIVE, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_against_high_precision(dtype: torch.dtype, data: st.DataObject) -> None:
    instance = data.draw(st.sampled_from([i for i in INSTANCES if "from_loss" not in name(i)]), label="weighting")
    row = torch.tensor(data.draw(rows, label="logits"), dtype=torch.float64).to(dtype)
    target = data.draw(st.integers(0, len(row) - 1), label="target")
    got = gradient(instance.weighting, row, torch.tensor(target), normalise=None, taper=0.0)
    expected = torch.tensor(exact(row.double().tolist(), target, instance.formula), dtype=torch.float64)
    # a weight of e^200 exceeds float32: both are then inf
    limit = torch.finfo(dtype).max
    over = expected.abs() > limit
    assert got[over].isinf().all()
    size = expected[~over].abs().max() if (~over).any() else torch.tensor(0.0)
    conditioning = max(1.0, math.log(max(float(size), 1.0))) * 2  # relative error of exp(x) grows with x
    torch.testing.assert_close(
        got.double()[~over], expected[~over], rtol=RELATIVE[dtype] * conditioning, atol=ABSOLUTE[dtype]
    )


@pytest.mark.parametrize("taper", [5e-9, 5e-7, 1e-2, 1.0])
def test_taper_scales_the_direction_after_normalisation(taper: float) -> None:
    logits, target = with_margins(torch.linspace(-20, 40, 61), 4)
    q = (-margin(logits, target)).sigmoid()
    plain = gradient(DM(0.5, 8), logits, target, normalise="batch", taper=0.0)
    tapered = gradient(DM(0.5, 8), logits, target, normalise="batch", taper=taper)
    torch.testing.assert_close(tapered, plain * (q / (q + taper))[:, None], rtol=1e-9, atol=1e-300)
    inside = gradient(reweigh.Tapered(DM(0.5, 8), taper), logits, target, normalise="batch")
    assert inside.abs().sum() == pytest.approx(1)
    assert tapered.abs().sum() < 1


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=name)
def test_batch_normalised_norms_sum_to_one_at_any_scale(weighting: Weighting) -> None:
    logits, target = with_margins(torch.linspace(-6, 6, 13), 3)
    grads = gradient(weighting, logits, target, normalise="batch", taper=0.0)
    assert grads.abs().sum().item() == pytest.approx(1, rel=1e-9)
    torch.testing.assert_close(gradient(1e6 * weighting, logits, target, normalise="batch", taper=0.0), grads)


def test_large_common_offsets_lose_no_precision() -> None:
    logits, target = with_margins(torch.linspace(-5, 5, 11), 3)
    logits = (logits * 8).round() / 8  # exact in float32, also with the offset
    shifted = (logits + 2.0**20).float()
    assert torch.equal(shifted.double() - 2.0**20, logits)
    torch.testing.assert_close(gradient(DM(0.5, 8), shifted, target), gradient(DM(0.5, 8), logits.float(), target))


def test_value_is_cross_entropy_or_objective() -> None:
    logits, target = with_margins(torch.linspace(-5, 5, 11), 3)
    ce = torch.nn.functional.cross_entropy(logits, target)
    for weighting in (DM(0.5, 8), CCE(), reweigh.GCE(0.7)):
        torch.testing.assert_close(Criterion(weighting)(logits, target), ce)
    p = margin(logits, target).sigmoid()
    objective = Criterion(reweigh.GCE(0.7), value="objective")(logits, target)
    torch.testing.assert_close(objective, ((1 - p**0.7) / 0.7).mean())
    scaled = Criterion(DM(0.5, 8), normalise="unit", taper=1e-3, value="objective", reduction="sum")(logits, target)
    expected = potential(DM(0.5, 8), margin(logits, target), 1e-3) / integral(DM(0.5, 8))
    torch.testing.assert_close(scaled, expected.sum())


@pytest.mark.parametrize("normalise", [None, "unit"])
def test_objective_passes_gradcheck_at_fixed_scale(normalise: str | None) -> None:
    logits, target = with_margins(torch.linspace(-3, 3, 7), 3)
    criterion = Criterion(DM(0.5, 8), normalise=normalise, value="objective")  # type: ignore[arg-type]
    assert torch.autograd.gradcheck(lambda z: criterion(z, target), logits.requires_grad_())
