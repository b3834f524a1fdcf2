"""The criterion in C++ (reweigh.ops.cpu) beside float64, and whatever layout, threads or defaults there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from beside_float64 import OTHER, TOLERANCE, draw, needs_compiler, result
from reweigh.criterion import Criterion
from reweigh.criterion.call import Call
from reweigh.weightings import (
    CCE,
    DM,
    GCE,
    MAE,
    Beta,
    Curve,
    Exponential,
    Focal,
    Normal,
    PerClass,
    Tapered,
    Uniform,
    Weighting,
)

SHAPES = [(64, 600), (33, 1000), (1, 40000), (16500, 2)]
WEIGHTINGS: list[Weighting] = [
    CCE(),
    MAE(),
    3 * GCE(0.7),
    DM(0.5, 8),
    DM(0, 16),
    Normal(0.3, 8),
    Exponential(-1.0),
    Focal(2.0),
    Tapered(DM(1, 16), 1e-3),
    Beta(0.5, 2),
    OTHER,
    Curve(((0.0, 0.1), (0.4, 2.0), (1.0, 0.0))),
]
CPU = torch.device("cpu")


@pytest.fixture
def _only_in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("plain torch was asked")

    for name in ("plainly", "margin_and_pull"):
        monkeypatch.setattr(f"reweigh.criterion.call.{name}", refuse)


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("setting", [{}, {"normalise": "batch", "taper": 0.1}, {"normalise": "unit"}], ids=str)
@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_beside_float64(
    shape: tuple[int, int], weighting: Weighting, setting: dict[str, Any], dtype: torch.dtype
) -> None:
    criterion = Criterion(weighting, **setting)
    logits, target = draw(*shape, CPU, dtype)
    logits[0, (target[0] + 1) % shape[1]] = -torch.inf if shape[1] > 2 else 0.0
    incoming = torch.tensor(1.5)
    value, gradient = result(criterion, logits, target, incoming)
    expected_value, expected = reference(criterion, logits.double(), target, incoming.double())
    assert gradient.dtype == dtype
    assert (gradient.double() - expected).norm() <= TOLERANCE[dtype] * expected.norm()
    torch.testing.assert_close(value.double(), expected_value, rtol=2e-6, atol=2e-6)


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
def test_in_float16() -> None:
    """With gradients that its numbers can show."""
    criterion = Criterion(CCE())
    logits, target = draw(64, 600, CPU, torch.float16)
    _, gradient = result(criterion, logits, target, torch.tensor(1000.0))
    _, expected = reference(criterion, logits.double(), target, torch.tensor(1000.0, dtype=torch.float64))
    assert gradient.dtype == torch.float16
    assert (gradient.double() - expected).norm() <= TOLERANCE[torch.float16] * expected.norm()


def reference(
    criterion: Criterion,
    logits: Tensor,
    target: Tensor,
    incoming: Tensor,
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Through margins, with the whole graph."""
    z, ignore_index = logits.requires_grad_(), criterion.ignore_index
    call = Call(criterion.options, weight, ignore_index, 0.0, sample_weight, None, False)
    with torch.enable_grad():
        value = call.by_margins(z, target)
    (gradient,) = torch.autograd.grad(value, z, incoming)
    return value.detach(), gradient


SCALES: list[dict[str, Any]] = [
    {"normalise": None, "reduction": "none"},
    {"normalise": None, "reduction": "sum"},
    {"normalise": None, "reduction": "mean"},
    {"normalise": "batch", "reduction": "none"},
    {"normalise": "batch", "reduction": "mean"},
]


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
@pytest.mark.parametrize("by_row", [None, "positive", "any sign", "mostly 0"])
@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 7])
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8), OTHER], ids=repr)
def test_labels_that_do_not_count_once(
    weighting: Weighting, scale: dict[str, Any], ignore_index: int, by_class: bool, by_row: str | None
) -> None:
    logits, target = draw(64, 600, CPU)
    target[::5] = ignore_index
    weight = torch.linspace(0, 2, 600) if by_class else None
    s = None if by_row is None else torch.linspace(0.5, 3, 64, dtype=torch.float64)
    if s is not None and by_row == "any sign":
        if scale["normalise"] == "batch":
            pytest.skip("a share of a batch has no sign")
        s[1::3] *= -0.5
    if s is not None and by_row == "mostly 0":
        s[4:] = 0
        logits[9] = torch.nan
    criterion = Criterion(weighting, ignore_index=ignore_index, weight=weight, **scale)
    incoming = torch.linspace(0.5, 2, 64) if scale["reduction"] == "none" else torch.tensor(1.5)
    value, gradient = result(criterion, logits, target, incoming, sample_weight=s)
    logits = logits.nan_to_num().double()
    expected_value, expected = reference(criterion, logits, target, incoming.double(), weight, s)
    assert (gradient.double() - expected).norm() <= TOLERANCE[torch.float32] * expected.norm()
    torch.testing.assert_close(value.double(), expected_value, rtol=2e-6, atol=2e-6)


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("ahead", [-800.0, -60.0, 0.0, 30.0, 60.0, 800.0])
@pytest.mark.parametrize("weighting", [CCE(), Uniform()], ids=repr)
def test_no_digits_are_lost_far_out(weighting: Weighting, ahead: float, offset: float) -> None:
    criterion = Criterion(weighting, taper=0)
    logits, target = draw(64, 600, CPU)
    logits = (logits * 64).round() / 64 + offset  # so that the offset rounds nothing off
    logits[torch.arange(64), target] += ahead
    _, gradient = result(criterion, logits, target)
    _, expected = reference(criterion, logits.double(), target, torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(gradient.double(), expected, rtol=16 * torch.finfo(torch.float32).eps, atol=1e-37)


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
@pytest.mark.parametrize("weighting", [CCE(), DM(0.5, 8)], ids=repr)
def test_the_number_of_threads_changes_no_bit(weighting: Weighting, threads: Iterator[int]) -> None:
    logits, target = draw(67, 600, CPU)
    found = [result(Criterion(weighting), logits, target) for _ in threads]
    assert len(found) == 3
    for value, gradient in found[1:]:
        assert torch.equal(value, found[0][0])
        assert torch.equal(gradient, found[0][1])


@pytest.fixture
def threads() -> Iterator[Iterator[int]]:
    """1, 2 and 3, and torch has as many meanwhile."""
    before = torch.get_num_threads()

    def several() -> Iterator[int]:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            yield number

    yield several()
    torch.set_num_threads(before)


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize(
    "weighting",
    [PerClass(DM(torch.linspace(0, 2, 600), 4)), DM(torch.linspace(0, 2, 64), 4), lambda p, q: p * q + 0.1],
    ids=["by class", "by row", "a function"],
)
def test_any_weighting(weighting: Any, scale: dict[str, Any]) -> None:
    logits, target = draw(64, 600, CPU)
    target[::5] = -100
    criterion = Criterion(weighting, **scale)
    incoming = torch.linspace(0.5, 2, 64) if scale["reduction"] == "none" else torch.tensor(1.5)
    value, gradient = result(criterion, logits, target, incoming)
    expected_value, expected = reference(criterion, logits.double(), target, incoming.double())
    assert (gradient.double() - expected).norm() <= TOLERANCE[torch.float32] * expected.norm()
    torch.testing.assert_close(value.double(), expected_value, rtol=2e-6, atol=2e-6)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows apart": lambda z: torch.cat((z, z + 1), 1)[:, : z.shape[1]],
    "rows overlap": lambda z: z.reshape(-1).as_strided((z.shape[0] - 1, z.shape[1]), (7, 1)),
    "one row": lambda z: z[:1].expand(z.shape),
    "columns": lambda z: z.t().contiguous().t(),
    "every other": lambda z: z.repeat_interleave(2, 1)[:, ::2],
}


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_wherever_rows_lie(layout: str, dtype: torch.dtype) -> None:
    logits, target = draw(64, 600, CPU, dtype)
    z = LAYOUTS[layout](logits)
    target = target[: len(z)]
    for got, wanted in zip(
        result(Criterion(DM(0.5, 8)), z, target),
        result(Criterion(DM(0.5, 8)), z.clone(memory_format=torch.contiguous_format), target),
        strict=True,
    ):
        assert torch.equal(got, wanted)


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
def test_whatever_torch_makes_by_default() -> None:
    logits, target = draw(64, 600, CPU)
    expected = result(Criterion(DM(0.5, 8)), logits, target)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):
            found = result(Criterion(DM(0.5, 8)), logits, target)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@needs_compiler
@pytest.mark.usefixtures("_only_in_cpp")
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_several_gradients_at_once(reduction: Any) -> None:
    logits, target = draw(64, 600, CPU)
    z = logits.requires_grad_()
    value = Criterion(DM(0.5, 8), reduction=reduction)(z, target)
    one = torch.ones_like(value)
    several, incoming = torch.stack((one, -2 * one)), torch.tensor([1.0, -2.0])
    (found,) = torch.autograd.grad(value, z, several, retain_graph=True, is_grads_batched=True)
    (gradient,) = torch.autograd.grad(value, z, one)
    torch.testing.assert_close(found, incoming[:, None, None] * gradient)


@needs_compiler
def test_a_second_derivative_and_a_second_backward_pass() -> None:
    logits, target = draw(64, 600, CPU)
    z = logits.requires_grad_()
    value = Criterion(CCE())(z, target)
    first, again = (torch.autograd.grad(value, z, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, again)
    (gradient,) = torch.autograd.grad(value, z, create_graph=True)
    (curvature,) = torch.autograd.grad(gradient[:, 0].sum(), z)
    plain = torch.nn.functional.cross_entropy(z, target)
    (expected,) = torch.autograd.grad(plain, z, create_graph=True)
    (wanted,) = torch.autograd.grad(expected[:, 0].sum(), z)
    torch.testing.assert_close(curvature, wanted, rtol=1e-4, atol=1e-8)
