"""The criterion in C++ (reweigh.kernels.cpu) beside float64, beside plain torch, and what it leaves to that."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from beside_float64 import TOLERANCE, draw, result
from odd_rows import ODD, spoil
from reweigh.criterion import Criterion, functional
from reweigh.kernels import cpu
from reweigh.weighting import CCE, DM, GCE, MAE, Beta, Exponential, Focal, Normal, Tapered, Uniform, Weighting

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
]
CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(cpu.program() is None, reason="no g++, or no threads of GNU's OpenMP in torch")


@pytest.fixture
def _only_in_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("plain torch was asked")

    monkeypatch.setattr(functional, "plainly", refuse)


def in_torch(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> tuple[Tensor, Tensor]:
    with monkeypatch.context() as patched:
        patched.setattr(cpu, "ALLOWED", False)
        return result(*arguments)


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


def reference(criterion: Criterion, logits: Tensor, target: Tensor, incoming: Tensor) -> tuple[Tensor, Tensor]:
    """Through margins, with the whole graph."""
    z = logits.requires_grad_()
    with torch.enable_grad():
        value = functional._Call(criterion.options, None, -100, 0.0, None, None, False).by_margins(z, target)
    (gradient,) = torch.autograd.grad(value, z, incoming)
    return value.detach(), gradient


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


CASES = [*ODD, "unknown", "impossible", "nothing counts"]


@needs_compiler
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_what_is_not_plain_is_noticed(case: str, normalise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = draw(64, 600, CPU)
    weighting: Weighting = DM(0.5, 8)
    if case in ODD:
        spoil(case, logits, target)
    elif case == "unknown":
        target[63] = 600
    elif case == "impossible":
        logits[3, target[3]] = -torch.inf
    else:
        weighting = Beta(300, 1)
        logits[torch.arange(64), target] -= 60
    criterion = Criterion(weighting, normalise=normalise)
    if case == "unknown":
        with pytest.raises(ValueError, match="target"):
            result(criterion, logits, target)
        return
    expected = in_torch(monkeypatch, criterion, logits, target)
    for got, wanted in zip(result(criterion, logits, target), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0, equal_nan=True)


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
def test_several_gradients_at_once() -> None:
    logits, target = draw(64, 600, CPU)
    z = logits.requires_grad_()
    incoming = torch.tensor([1.0, -2.0])
    value = Criterion(DM(0.5, 8))(z, target)
    (several,) = torch.autograd.grad(value, z, incoming, retain_graph=True, is_grads_batched=True)
    (one,) = torch.autograd.grad(value, z)
    torch.testing.assert_close(several, incoming[:, None, None] * one)


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


@needs_compiler
def test_what_is_left_to_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = draw(64, 600, CPU)
    form = Criterion(CCE()).options.form
    assert form is not None

    def taken(z: Tensor, y: Tensor = target) -> bool:
        return cpu.weigh_rows(z, y, form, 0.0, False) is not None

    assert taken(logits)
    assert not taken(logits.double())
    assert not taken(logits.t().contiguous().t())
    assert not taken(logits[:8], target[:8])
    assert not taken(torch._neg_view(logits))
    assert not taken(torch._efficientzerotensor(64, 600))
    monkeypatch.setattr(cpu, "ALLOWED", False)
    assert not taken(logits)


@pytest.fixture
def _anew() -> Iterator[None]:
    """As if nothing had been compiled yet, and again so afterwards."""
    cpu.program.cache_clear()
    yield
    cpu.program.cache_clear()


@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_without_a_compiler(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(cpu, "which", lambda name: f"/usr/bin/{name}" if name == "false" else None)
    assert cpu.program() is None
    value, gradient = result(Criterion(CCE()), *draw(64, 600, CPU))
    assert value.isfinite()
    assert gradient.isfinite().all()


@needs_compiler
@pytest.mark.usefixtures("_anew")
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cpu.program() is not None
    assert not list(tmp_path.iterdir())
    assert result(Criterion(CCE()), *draw(64, 600, CPU))[0].isfinite()
