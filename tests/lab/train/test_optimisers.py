"""Optimisers against their formulas, Caffe's included."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paper.protocols import paper
from reweigh.lab.spec import Run, parse
from reweigh.lab.train.optimisers import build_optimiser, parameter_groups, restore, set_learning_rate
from reweigh.lab.train.schedules import learning_rate

CURVATURE = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
CENTRE = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)


class Point(nn.Module):
    """Parameters of a quadratic."""

    def __init__(self, start: Sequence[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start, dtype=torch.float64))


def run_of(**values: Any) -> Run:
    return Run.from_mapping({"data": "d", "net": "n", "weighting": "CCE", "weight_decay": 0} | values)


def descend(run: Run, start: Sequence[float], gradient: Callable[[Tensor], Tensor], rates: Sequence[float]) -> Tensor:
    point = Point(start)
    optimiser = build_optimiser(point, run)
    for step, lr in enumerate(rates):
        point.w.grad = gradient(point.w.detach())
        set_learning_rate(optimiser, lr, step, caffe_momentum=run.caffe_momentum)
        optimiser.step()
    return point.w.detach()


def toy(w: Tensor) -> Tensor:
    return 2 * (w - 0.3)


def quadratic(w: Tensor) -> Tensor:
    return CURVATURE * (w - CENTRE)


DROP = [0.1] * 5 + [0.01] * 5


def test_momentum_of_caffe_and_torch_through_a_drop() -> None:
    assert descend(run_of(caffe_momentum=True), [1.0], toy, DROP).item() == pytest.approx(-0.648176, abs=5e-7)
    assert descend(run_of(), [1.0], toy, DROP).item() == pytest.approx(-0.068816, abs=5e-7)


def test_momentum_of_caffe_and_torch_under_inv() -> None:
    run = paper("imdb", weighting="CCE")  # its solver: decay 2e-3, gamma 1e-5
    rates = [learning_rate(run.lr, parse(run.schedule), step, run.iterations) for step in range(100)]
    assert descend(run, [1.0], toy, rates).item() == pytest.approx(0.3026496, abs=5e-8)
    torchs = replace(run, caffe_momentum=False)
    assert descend(torchs, [1.0], toy, rates).item() == pytest.approx(0.3026488, abs=5e-8)


def caffe(kind: str, start: Tensor, rates: Sequence[float], decay: float, mu: float = 0.9) -> Tensor:
    """Caffe's solvers, written out."""
    w, velocity = start.clone(), torch.zeros_like(start)
    m, v = torch.zeros_like(start), torch.zeros_like(start)
    for t, lr in enumerate(rates, start=1):
        g = quadratic(w) + decay * w
        if kind == "adam":
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            w = w - lr * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (v.sqrt() + 0.1)
        else:
            old, velocity = velocity, mu * velocity + lr * g
            w = w - (velocity if kind == "momentum" else (1 + mu) * velocity - mu * old)
    return w


START = [1.0, 1.0, 1.0]
TWENTY = [0.1] * 10 + [0.01] * 10


@pytest.mark.parametrize("kind", ["momentum", "nesterov"])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_twenty_steps_are_caffes_only_with_the_rescale(kind: str, decay: float) -> None:
    expected = caffe(kind, torch.tensor(START, dtype=torch.float64), TWENTY, decay)
    run = run_of(optimiser=kind, weight_decay=decay, caffe_momentum=True)
    assert (descend(run, START, quadratic, TWENTY) - expected).abs().max() < 1e-7
    plain = run_of(optimiser=kind, weight_decay=decay)
    assert (descend(plain, START, quadratic, TWENTY) - expected).abs().max() > 1e-3
    # while the rate rests, there is nothing to rescale
    resting = caffe(kind, torch.tensor(START, dtype=torch.float64), TWENTY[:10], decay)
    assert (descend(plain, START, quadratic, TWENTY[:10]) - resting).abs().max() < 1e-12


def test_adam_of_caffe_is_its_formula() -> None:
    expected = caffe("adam", torch.tensor(START, dtype=torch.float64), TWENTY, 0.01)
    run = run_of(optimiser="adam-caffe", eps=0.1, weight_decay=0.01)
    assert (descend(run, START, quadratic, TWENTY) - expected).abs().max() < 1e-12


@pytest.mark.parametrize(("steps", "ratio"), [(1, 0.329), (10, 0.520), (100, 0.841)])
def test_adam_of_caffe_moves_less_than_torchs(steps: int, ratio: float) -> None:
    moves = [
        1 - descend(run_of(optimiser=name, eps=0.1), [1.0], toy, [0.01] * steps).item()
        for name in ("adam-caffe", "adam")
    ]
    assert moves[0] / moves[1] == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize(
    ("values", "reference"),
    [
        ({"optimiser": "sgd"}, lambda p: torch.optim.SGD(p, weight_decay=0.1)),
        ({"optimiser": "momentum", "momentum": 0.8}, lambda p: torch.optim.SGD(p, momentum=0.8, weight_decay=0.1)),
        ({"optimiser": "nesterov"}, lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True, weight_decay=0.1)),
        ({"optimiser": "nesterov", "momentum": 0}, lambda p: torch.optim.SGD(p, weight_decay=0.1)),
        (
            {"optimiser": "adam", "betas": [0.8, 0.99], "eps": 0.1},
            lambda p: torch.optim.Adam(p, betas=(0.8, 0.99), eps=0.1, weight_decay=0.1),
        ),
        ({"optimiser": "adamw"}, lambda p: torch.optim.AdamW(p, weight_decay=0.1)),
    ],
)
def test_the_others_are_torchs(values: dict[str, Any], reference: Any) -> None:
    point = Point(START)
    optimiser = reference(point.parameters())
    for lr in TWENTY:
        point.w.grad = quadratic(point.w.detach())
        optimiser.param_groups[0]["lr"] = lr
        optimiser.step()
    mine = descend(run_of(weight_decay=0.1, **values), START, quadratic, TWENTY)
    assert torch.equal(mine, point.w.detach())


@pytest.mark.parametrize("name", ["momentum", "nesterov", "adam", "adam-caffe", "adamw"])
def test_saved_and_loaded_in_the_middle_of_a_drop_changes_nothing(name: str) -> None:
    run = run_of(optimiser=name, caffe_momentum=name in ("momentum", "nesterov"))
    whole = descend(run, START, quadratic, TWENTY)
    point = Point(START)
    optimiser = build_optimiser(point, run)
    for step, lr in enumerate(TWENTY):
        if step == 10:  # the rate changes right here
            state = copy.deepcopy(optimiser.state_dict())
            resumed = Point(point.w.tolist())
            optimiser = build_optimiser(resumed, run)
            optimiser.load_state_dict(state)
            point = resumed
        point.w.grad = quadratic(point.w.detach())
        set_learning_rate(optimiser, lr, step, caffe_momentum=run.caffe_momentum)
        optimiser.step()
    assert torch.equal(point.w.detach(), whole)


def test_a_rate_kept_in_a_tensor_is_filled_in_place() -> None:
    point = Point(START)
    rate = torch.tensor(0.1)
    optimiser = torch.optim.SGD(point.parameters(), lr=rate)
    set_learning_rate(optimiser, 0.01, 3)
    assert optimiser.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.01)


@pytest.mark.parametrize("lr", [0.1, 0.5])
def test_a_rate_kept_in_a_tensor_is_read_once(lr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it waits for the device; 0.5 is the same in float32, so that nothing is ever filled in."""
    reads, read = list[Tensor](), Tensor.__float__
    monkeypatch.setattr(Tensor, "__float__", lambda self: reads.append(self) or read(self))
    optimiser = torch.optim.SGD(Point(START).parameters(), lr=torch.tensor(lr))
    for step in range(3):
        set_learning_rate(optimiser, lr, step)
    assert len(reads) == 1


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_state_from_a_cpu_loads_into_weights_of_another_layout(name: str) -> None:
    """As on a GPU, whose fused steps walk through parameters, gradients and velocities in the order of memory."""
    run, draws = run_of(optimiser=name, lr=0.1), torch.Generator().manual_seed(0)
    plain = nn.Conv2d(3, 4, 3, bias=False)
    moved = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    gradients = [torch.randn(plain.weight.shape, generator=draws) for _ in range(2)]
    first = build_optimiser(plain, run)
    plain.weight.grad = gradients[0]
    first.step()
    moved.load_state_dict(plain.state_dict())
    second = build_optimiser(moved, run)
    second.param_groups[0] |= {"fused": True, "foreach": False}
    restore(second, copy.deepcopy(first.state_dict()))
    plain.weight.grad = gradients[1]
    moved.weight.grad = gradients[1].contiguous(memory_format=torch.channels_last)
    first.step()
    second.step()
    torch.testing.assert_close(moved.weight, plain.weight)


def test_caffes_momentum_needs_a_rate() -> None:
    with pytest.raises(ValueError, match="lr is 0"):
        descend(run_of(caffe_momentum=True), [1.0], toy, [0.1, 0.0])


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.group = nn.GroupNorm(2, 4)
        self.fc = nn.Linear(4, 2)
        self.gain = nn.Parameter(torch.ones(3))  # one-dimensional, and neither a bias nor of a norm
        self.tied = self.fc
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_all_parameters_decay_unless_exempt() -> None:
    net = Body()
    (group,) = parameter_groups(net, 0.1)
    assert len(group["params"]) == 9
    decayed, free = parameter_groups(net, 0.1, exempt=True)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    assert {names[id(p)] for p in decayed["params"]} == {"conv.weight", "fc.weight", "gain"}
    assert {names[id(p)] for p in free["params"]} == {
        "conv.bias", "norm.weight", "norm.bias", "group.weight", "group.bias", "fc.bias",
    }  # fmt: skip
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)


def test_exempt_parameters_do_not_shrink() -> None:
    for exempt in (False, True):
        net = nn.Linear(2, 2)
        before = copy.deepcopy(net.state_dict())
        optimiser = build_optimiser(net, run_of(weight_decay=0.5, decay_exempt=exempt))
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        set_learning_rate(optimiser, 0.1, 0)
        optimiser.step()
        assert torch.allclose(net.weight, before["weight"] * 0.95)
        assert torch.allclose(net.bias, before["bias"] * (1 if exempt else 0.95))


def test_a_net_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="no trainable parameters"):
        parameter_groups(nn.ReLU(), 0.1)
