"""The gradient stored in the forward pass equals that of the differentiable formula, up to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from reweigh.criterion import Criterion
from reweigh.weightings import CCE, DM, Beta, Curve, Focal, PerClass, Tapered

SHAPES: list[tuple[int, ...]] = [(5,), (7, 5), (1, 2), (3, 5, 2, 2), (0, 5)]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"reduction": "none"},
    {"normalise": None, "reduction": "sum"},
    {"normalise": "unit", "taper": 0.1},
    {"normalise": "class"},
    {"value": "objective"},
    {"ignore_index": 1},
]
WEIGHTINGS = [
    DM(0.5, 8),
    CCE(),
    Focal(2.0),
    Tapered(DM(1, 16), 1e-3),
    PerClass(DM(torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0]), 4)),
]


def result(criterion: Criterion, logits: Tensor, target: Tensor, **call: Any) -> tuple[Tensor, Tensor]:
    z = logits.clone().requires_grad_()
    value = criterion(z, target, **call)
    incoming = torch.linspace(0.5, 2, value.numel()).reshape(value.shape)
    (gradient,) = torch.autograd.grad(value, z, incoming.to(value.dtype))
    return value.detach(), gradient


def by_formula(criterion: Any, logits: Tensor, target: Tensor, **call: Any) -> tuple[Tensor, Tensor]:
    """Return the value, and the gradient by the formula that `create_graph=True` differentiates."""
    z = logits.clone().requires_grad_()
    value = criterion(z, target, **call)
    incoming = torch.linspace(0.5, 2, value.numel()).reshape(value.shape)
    (gradient,) = torch.autograd.grad(value, z, incoming.to(value.dtype), create_graph=True)
    return value.detach(), gradient.detach()


def same(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=16 * torch.finfo(got.dtype).eps, atol=1e-37)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_stored_gradient_equals_the_formula(
    shape: tuple[int, ...], weighting: Any, setting: dict[str, Any], dtype: torch.dtype
) -> None:
    classes = shape[0] if len(shape) == 1 else shape[1]
    if isinstance(weighting, PerClass) and (classes != 5 or "value" in setting or setting.get("normalise") == "unit"):
        pytest.skip("PerClass has parameters for five classes, and neither a scalar objective nor a scalar integral")
    rng = torch.Generator().manual_seed(0)
    logits = (5 * torch.randn(shape, generator=rng)).to(dtype)
    target = torch.randint(classes, shape[:1] * (len(shape) > 1) + shape[2:], generator=rng)
    if logits.numel():
        logits.view(-1)[0] = -torch.inf
    criterion = Criterion(weighting, **setting)
    expected = by_formula(criterion, logits, target)
    for got, wanted in zip(result(criterion, logits, target), expected, strict=True):
        same(got, wanted)


SPECIAL = ("ignored", "one class", "no class", "lowest", "nan", "infinite")


def make_special(case: str, logits: Tensor, target: Tensor) -> None:
    """Modify one of the first four rows in place."""
    if case == "ignored":
        target[2] = -100
    elif case == "one class":
        logits[1, torch.arange(logits.shape[1]) != target[1]] = -torch.inf
    elif case == "no class":
        logits[1] = -torch.inf
    elif case == "lowest":
        logits[1] = torch.finfo(logits.dtype).min
    elif case == "nan":
        logits[3, 0] = torch.nan
    else:
        logits[3, target[3]] = torch.inf


CASES = [*SPECIAL, "zero weights", "infinite weight", "uint8"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_special_rows_and_types(case: str, normalise: Any) -> None:
    logits, target = torch.randn(6, 4, generator=torch.Generator().manual_seed(4)), torch.arange(6) % 4
    weighting: Any = DM(0.5, 8)
    if case in SPECIAL:
        make_special(case, logits, target)
    elif case == "zero weights":
        weighting = Curve(((0.0, 0.0), (0.999, 0.0), (1.0, 1.0)))
    elif case == "infinite weight":
        weighting = Beta(0.5, 1.0)
        logits[0, target[0]] = -torch.inf
    else:
        target = target.to(torch.uint8)
    criterion = Criterion(weighting, normalise=normalise)
    expected = by_formula(criterion, logits, target)
    for got, wanted in zip(result(criterion, logits, target), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0, equal_nan=True)


def test_class_weights_sample_weights_and_log_normaliser() -> None:
    rng = torch.Generator().manual_seed(1)
    logits, target = torch.randn(6, 4, generator=rng), torch.tensor([0, 1, 2, 3, -100, 1])
    criterion = Criterion(DM(0.5, 8), weight=torch.tensor([1.0, 0.0, 2.0, 3.0]))
    call = {"sample_weight": torch.rand(6, generator=rng), "log_normaliser": torch.tensor(1.5)}
    expected = by_formula(criterion, logits, target, **call)
    for got, wanted in zip(result(criterion, logits, target, **call), expected, strict=True):
        same(got, wanted)


def test_second_backward_pass_and_second_derivative() -> None:
    logits = torch.randn(4, 3, dtype=torch.double, generator=torch.Generator().manual_seed(2)).requires_grad_()
    target = torch.tensor([0, 1, 2, 0])
    value = Criterion(CCE())(logits, target)
    first, second = (torch.autograd.grad(value, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    exact = torch.autograd.functional.hessian(lambda z: torch.nn.functional.cross_entropy(z, target), logits.detach())
    (slope,) = torch.autograd.grad(value, logits, create_graph=True)
    rows = [torch.autograd.grad(entry, logits, retain_graph=True)[0] for entry in slope.flatten()]
    torch.testing.assert_close(torch.stack(rows).reshape(exact.shape), exact)


@pytest.mark.parametrize(("beta", "factor"), [(110, 1e-12), (-110, 1e12)])
def test_weights_beyond_float32_are_scaled_before_rounding(beta: float, factor: float) -> None:
    logits, target = torch.randn(4, 3, generator=torch.Generator().manual_seed(6)), torch.tensor([0, 1, 2, 0])
    criterion = Criterion(DM(0, beta), normalise=None)

    def scaled(z: Tensor, y: Tensor) -> Tensor:
        return factor * criterion(z, y)

    expected = by_formula(scaled, logits, target)
    for got, wanted in zip(result(scaled, logits, target), expected, strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=0)
        assert torch.isfinite(got).all()


@pytest.mark.parametrize("normalise", [None, "batch"])
def test_weights_beyond_float64(normalise: Any) -> None:
    logits, target = torch.randn(6, 4, generator=torch.Generator().manual_seed(8)), torch.arange(6) % 4
    criterion = Criterion(DM(0, 2000), normalise=normalise)
    expected = by_formula(criterion, logits, target)
    for got, wanted in zip(result(criterion, logits, target), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_scalar_log_weight_of_any_dtype(normalise: Any, dtype: torch.dtype) -> None:
    class Constant(CCE):
        def log_weight(self, log_p: Tensor, log_q: Tensor) -> Tensor:
            return log_p.new_zeros((), dtype=dtype)

    logits, target = torch.randn(4, 3, generator=torch.Generator().manual_seed(7)), torch.tensor([0, 1, 2, 0])
    criterion = Criterion(Constant(), normalise=normalise)
    expected = by_formula(criterion, logits, target)
    for got, wanted in zip(result(criterion, logits, target), expected, strict=True):
        same(got, wanted)


def test_batched_gradients() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(5)).requires_grad_()
    values = Criterion(DM(0.5, 8), reduction="none")(logits, torch.tensor([0, 1, 2, 0]))
    one_by_one = torch.stack([torch.autograd.grad(value, logits, retain_graph=True)[0] for value in values])
    (batched,) = torch.autograd.grad(values, logits, torch.eye(4), is_grads_batched=True, retain_graph=True)
    mapped = torch.func.vmap(lambda g: torch.autograd.grad(values, logits, g, retain_graph=True)[0])(torch.eye(4))
    torch.testing.assert_close(batched, one_by_one, rtol=0, atol=0)
    torch.testing.assert_close(mapped, one_by_one, rtol=0, atol=0)


def test_gradient_of_sample_weights() -> None:
    logits, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    weights = torch.ones(4, requires_grad=True)
    Criterion(CCE(), reduction="sum")(logits, target, sample_weight=weights).backward()
    assert weights.grad is not None
    torch.testing.assert_close(weights.grad, torch.nn.functional.cross_entropy(logits, target, reduction="none"))


@pytest.mark.parametrize("normalise", [None, "unit", "batch"])
def test_gradient_is_independent_of_the_value(normalise: Any) -> None:
    logits, target = torch.randn(6, 4, generator=torch.Generator().manual_seed(3)), torch.arange(6) % 4
    cross_entropy = Criterion(DM(0.5, 8), normalise=normalise)
    objective = Criterion(DM(0.5, 8), normalise=normalise, value="objective")
    same(result(cross_entropy, logits, target)[1], result(objective, logits, target)[1])
