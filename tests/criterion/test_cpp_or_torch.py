"""What the criterion in C++ (reweigh.ops.cpu) leaves to plain torch, and how it comes to be there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from beside_float64 import draw, needs_compiler, result
from odd_rows import ODD, spoil
from reweigh.criterion import Criterion
from reweigh.ops import cpu
from reweigh.ops.forms import OTHER
from reweigh.weightings import CCE, DM, Beta, Weighting, as_weighting

CPU = torch.device("cpu")


def in_torch(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **call: Any) -> tuple[Tensor, Tensor]:
    with monkeypatch.context() as patched:
        patched.setattr(cpu, "ALLOWED", False)
        return result(*arguments, **call)


CASES = [
    *ODD,
    "unknown",
    "impossible",
    "nothing counts",
    "all ignored",
    "one weight for all",
    "a weight in float32",
    "infinite weight",
    "infinite factor",
    "infinite factor of an ignored label",
]


@needs_compiler
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("normalise", [None, "batch"])
def test_what_is_not_plain_is_noticed(case: str, normalise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = draw(64, 600, CPU)
    weighting: Weighting = DM(0.5, 8)
    call: dict[str, Any] = {}
    if case == "all ignored":
        target[:] = -100
    elif case in ("infinite factor", "infinite factor of an ignored label"):
        call["sample_weight"] = torch.ones(64).index_fill(0, torch.tensor([2]), torch.inf)
        target[2] = -100 if "ignored" in case else target[2]
    elif case in ODD:
        spoil(case, logits, target)
    elif case == "unknown":
        target[63] = 600
    elif case == "impossible":
        logits[3, target[3]] = -torch.inf
    elif case == "one weight for all":
        weighting = as_weighting(lambda p: torch.tensor(2.0))
    elif case == "a weight in float32":
        weighting = as_weighting(lambda p: p.float())
    elif case == "infinite weight":
        weighting = as_weighting(lambda p: 1e308 + 1e308 * p)
    else:
        weighting = Beta(300, 1)
        logits[torch.arange(64), target] -= 60
    criterion = Criterion(weighting, normalise=normalise)
    if case == "unknown":
        with pytest.raises(ValueError, match="target"):
            result(criterion, logits, target)
        return
    expected = in_torch(monkeypatch, criterion, logits, target, **call)
    for got, wanted in zip(result(criterion, logits, target, **call), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0, equal_nan=True)


@needs_compiler
def test_factors_below_0_are_refused_as_shares() -> None:
    logits, target = draw(64, 600, CPU)
    weight = torch.ones(600).index_fill(0, torch.tensor([599]), -1.0)
    with pytest.raises(ValueError, match="weight must be >= 0"):
        Criterion(DM(0.5, 8), weight=weight)(logits, target)
    with pytest.raises(ValueError, match="sample_weight must be >= 0"):
        Criterion(DM(0.5, 8))(logits, target, sample_weight=-torch.ones(64))


@needs_compiler
def test_what_is_left_to_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = draw(64, 600, CPU)
    form = Criterion(CCE()).options.form or OTHER

    def taken(z: Tensor, y: Tensor = target, weight: Tensor | None = None, sample: Tensor | None = None) -> bool:
        ways: Any = (form, None, 0.0, False, "mean")
        return cpu.in_cpp(z, y, weight, sample, -100, *ways) is not None

    assert taken(logits)
    assert not taken(logits.double())
    assert not taken(logits[:6], target[:6])
    assert not taken(torch._neg_view(logits))
    assert not taken(torch._efficientzerotensor(64, 600))
    by_class, by_row = torch.ones(600), torch.ones(64)
    assert taken(logits, weight=by_class, sample=by_row)
    for weight in (by_row, by_class.double().requires_grad_(), by_class.int(), torch._neg_view(by_class)):
        assert not taken(logits, weight=weight)
    for sample in (by_class, by_row[:, None], by_row[:1].expand(64), torch._efficientzerotensor(64)):
        assert not taken(logits, sample=sample)
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


@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize(("module", "name", "value"), [(cpu.sys, "platform", "win32"), (cpu, "ALLOWED", False)])
def test_nothing_is_tried(module: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(cpu, "_compiled", lambda _: pytest.fail("it was tried"))
    assert cpu.program() is None
    assert cpu.compiler_version() is None


def test_a_compiler_tells_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(name: str, says: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)

    monkeypatch.setattr(cpu.sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert cpu.compiler_version() is None
    install("g++", "echo its 12.2 && echo and more")
    assert cpu.compiler_version() == "its 12.2"
    monkeypatch.setenv("CXX", "mine")
    install("mine", "[ $1 = --version ] && echo my 1.0")
    assert cpu.compiler_version() == "my 1.0"
    install("mine", "exit 1")
    assert cpu.compiler_version() == "its 12.2"


@needs_compiler
@pytest.mark.usefixtures("_anew")
def test_after_a_compiler_that_cannot_do_it_comes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    assert cpu.program() is not None


@needs_compiler
@pytest.mark.usefixtures("_anew")
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cpu.program() is not None
    assert not list(tmp_path.iterdir())
    assert result(Criterion(CCE()), *draw(64, 600, CPU))[0].isfinite()
