"""Captured methods on a GPU give the results of uncaptured ones, in every mode, and resume exactly."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from finished import learnt
from reweigh.lab.batches import Resident
from reweigh.lab.record import read_header
from reweigh.lab.run import Interrupted, Speed, Update, execute
from reweigh.lab.spec import Run
from reweigh.lab.train.captured import create_velocities, make_evaluator
from reweigh.lab.train.evaluate import evaluate

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PLAIN = Speed(capture=False, kernels=False, compile=False)
MASK = "[[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]"
METHODS = [  # an epoch is 8 iterations, a run 36
    "ClassBalanced(0.9)",
    "LDAM(drw_at=2)",
    "OHEM(0.5)",
    "SelfPaced(0.7)",
    "SelfPaced(threshold=1.5, divide_by='kept')",
    "SPCL(0.7)",
    "SPCL(threshold=3)",
    "ActiveBias(warm_up=2)",
    "ActiveBias('closeness', warm_up=1, mean_over='batch')",
    "PrunedGCE(k=0.2, start=1, every=2)",
    "LearningToReweight(20)",
    "MetaWeightNet(inner_lr=0.05, clean_batch=20)",
    "MetaWeightNet(clean_batch=20, normalise=True)",
    "D2L(start=0, window=2, k=5)",
    "MentorNetPD",
    "MentorNetPD(mentor='net', mentor_steps=20)",
    "MentorNetDD(dump_epochs=2, mentor_steps=20, burn_in=40)",
    "SAdaptation(warm_up=2)",
    "SAdaptation('complex', warm_up=1, top=3)",
    f"Masking({MASK}, warm_up=2, pretrain=10, average=0.5)",
    f"Masking({MASK}, warm_up=0, pretrain=10, clip=0.01)",
    "MDYRH(warm_up=2)",
    "MDDYRSH(warm_up=1, soft_from=3, cooling=3)",
    "CoTeaching(0.4, warm_up=4)",
    "Decoupling(warm_up=12)",
    "SIGUA(0.4, warm_up=3)",
    "SIGUABC(symmetric(0.4), warm_up=1)",
    "ProSelfLC",
    "ELR(lam=1)",
    "ELR(half=True)",
    "ANL(5, 5, 1e-4)",
    "OSMCAA",
    "SoftLabels('{folder}/soft.npy')",
    "JointLabels('{folder}/labels.npy', begin=2, slots=3)",
    "Curriculum('{folder}/difficulty.npy')",
]
WITH_STATE = [  # of every kind: per example, an average, a second net, an optimiser, draws, a table, other labels
    "ELR(lam=1)",
    "SelfPaced(0.7)",
    "CoTeaching(0.4, warm_up=4)",
    "MetaWeightNet(clean_batch=20)",
    f"Masking({MASK}, warm_up=2, pretrain=10, average=0.5)",
    "MDYRH(warm_up=2)",
    "JointLabels('{folder}/labels.npy', begin=2, slots=3)",
]
MODES = {
    "fp32": ("fp32", Speed(compile=False)),
    "bf16": ("bf16", Speed(compile=False)),
    "compiled": ("bf16", Speed(compile=True)),
}


def run_of(folder: Path, method: str | None = None, **change: Any) -> Run:
    """A small run on pictures of four classes that differ in brightness, with all that can be recorded."""
    rng = np.random.default_rng(0)
    n = 640
    y = np.arange(n) % 4
    x = np.clip(rng.normal(60 + 45 * y[:, None, None, None], 40, (n, 32, 32, 3)), 0, 255).astype(np.uint8)
    np.savez(folder / "images.npz", x_train=x[:320], y_train=y[:320], x_test=x[320:], y_test=y[320:])
    np.save(folder / "soft.npy", rng.dirichlet(np.ones(4), 256))
    np.save(folder / "difficulty.npy", rng.random(256))
    base: dict[str, Any] = {
        "data": str(folder / "images.npz"),
        "net": "resnet20",
        "method": None if method is None else method.replace("{folder}", str(folder)),
        "weighting": "DM(0.5, linear(2, 8))" if method is None else None,
        "noise": "symmetric",
        "rate": 0.2,
        "validation": 0.2,
        "iterations": 36,
        "batch_size": 32,
        "augment": "pad-crop-flip",
        "evaluate_every": 9,
        "record_p": True,
        "record_margins": True,
        "device": "cuda",
        "deterministic": True,
    }
    return Run(**(base | change))


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """Which files are not the same, by name: their contents would fill the screen."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def interrupted(run: Run, root: Path, speed: Speed, stops: tuple[int, ...]) -> Path:
    """The run, stopped at these iterations and taken up again."""
    for stop in stops:
        done = [0]

        def watch(update: Update, done: list[int] = done) -> None:
            done[0] = update.step

        with pytest.raises(Interrupted):
            execute(run, root, watch=watch, should_stop=lambda d=done, s=stop: d[0] >= s, speed=speed)
    return execute(run, root, speed=speed)


@GPU
@pytest.mark.parametrize("method", METHODS)
def test_a_captured_method_is_the_uncaptured_one_bit_for_bit(tmp_path: Path, method: str) -> None:
    run = run_of(tmp_path, method)
    notes: list[str | None] = []
    captured = execute(run, tmp_path / "captured", watch=lambda update: notes.append(update.note))
    assert not any(notes)
    assert read_header(captured).environments[-1]["captured"]
    plain = execute(run, tmp_path / "plain", speed=PLAIN)
    found = learnt(captured)
    assert {"p.f16", "margins.bin"} <= found.keys()
    assert differing(found, learnt(plain)) == []


@GPU
@pytest.mark.parametrize("method", WITH_STATE)
def test_a_captured_method_resumes_exactly(tmp_path: Path, method: str) -> None:
    run, speed = run_of(tmp_path, method), Speed(compile=False)
    unbroken = learnt(execute(run, tmp_path / "unbroken", speed=speed))
    assert differing(learnt(interrupted(run, tmp_path / "broken", speed, (2, 13, 20))), unbroken) == []


@GPU
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", [None, "ELR(lam=1)"])
def test_resuming_is_exact_in_every_mode(tmp_path: Path, mode: str, method: str | None) -> None:
    precision, speed = MODES[mode]
    run = run_of(tmp_path, method, precision=precision)
    unbroken = execute(run, tmp_path / "unbroken", speed=speed)
    broken = interrupted(run, tmp_path / "broken", speed, (5, 20))
    used = read_header(broken).environments[-1]
    assert (used["captured"], used["own_convolutions"], used["compiled"]) == (True, mode != "fp32", mode == "compiled")
    assert differing(learnt(broken), learnt(unbroken)) == []


@GPU
@pytest.mark.parametrize("method", ["LearningToReweight(20)", "MetaWeightNet(clean_batch=20)"])
def test_second_derivatives_leave_own_convolutions_and_the_compiler_out(tmp_path: Path, method: str) -> None:
    run = run_of(tmp_path, method, precision="bf16")
    notes: list[str | None] = []
    fast = execute(run, tmp_path / "fast", speed=Speed(compile=True), watch=lambda update: notes.append(update.note))
    told = [note for note in notes if note]
    assert len(told) == 1
    assert "differentiates twice" in told[0]
    assert differing(learnt(fast), learnt(execute(run, tmp_path / "plain", speed=PLAIN))) == []


@GPU
@pytest.mark.parametrize("compiled", [False, True], ids=["captured", "compiled"])
def test_a_net_in_three_modes_is_captured_in_bfloat16(tmp_path: Path, compiled: bool) -> None:
    """Training, without gradients, and evaluation, all within an iteration."""
    run = run_of(tmp_path, "MDYRH(warm_up=1)", precision="bf16", deterministic=False)
    notes: list[str | None] = []
    speed = Speed(compile=compiled)
    folder = execute(run, tmp_path / "runs", speed=speed, watch=lambda update: notes.append(update.note))
    assert not any(notes)
    assert np.isfinite(json.loads((folder / "result.json").read_text())["final"]["test_cross_entropy"])


# Without a GPU


@pytest.mark.parametrize("used", [Speed(True, False, False), Speed(False, True, True)])
def test_a_record_has_the_settings_that_were_used(used: Speed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("reweigh.lab.run.execute")
    monkeypatch.setattr(module, "usable_speed", lambda eager, speed, obstacle: (used, None))
    monkeypatch.setattr(module, "make_step", lambda eager, speed: eager)
    monkeypatch.setattr(module, "make_evaluator", lambda speed, *settings: make_evaluator(PLAIN, *settings))
    run = Run(data="digits", net="mlp-8", weighting="CCE", iterations=2, evaluate_every=2, device="cpu")
    told = read_header(execute(run, tmp_path)).environments[-1]
    assert told.items() >= used.described().items()


def test_a_parameter_may_start_to_learn_later() -> None:
    ends = []
    for fused in (False, True):
        a, b = (nn.Parameter(torch.ones(3)) for _ in range(2))
        optimiser = torch.optim.SGD([a, b], lr=0.1, momentum=0.9, weight_decay=0.01, fused=fused)
        create_velocities(optimiser)
        for step in range(4):
            optimiser.zero_grad()
            torch.autograd.backward((a * a).sum() if step < 2 else (a * a * b).sum())
            optimiser.step()
        ends.append(torch.stack((a, b)).detach())
    torch.testing.assert_close(*ends)


def test_every_net_is_evaluated_by_its_own_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def __init__(self, work: Callable[[], None]) -> None:
            self.replay = work
            work()

    monkeypatch.setattr("reweigh.lab.train.captured.Graph", Graph)
    part = Resident(np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32), np.arange(8) % 2)
    evaluate_part = make_evaluator(Speed(True, False, False), nullcontext, 4, lambda: None)
    for net in (nn.Linear(2, 2), nn.Linear(2, 2)):
        assert torch.equal(evaluate_part(net, part).p, evaluate(net, part, 4, net).p)


def test_an_evaluation_that_cannot_be_captured_is_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(work: Callable[[], None]) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("reweigh.lab.train.captured.Graph", fail)
    part, net = Resident(np.eye(8, 2, dtype=np.float32), np.arange(8) % 2), nn.Linear(2, 2)
    evaluate_part = make_evaluator(Speed(True, False, False), nullcontext, 4, lambda: None)
    for _ in range(2):
        assert torch.equal(evaluate_part(net, part).p, evaluate(net, part, 4, net).p)


class Gradients:
    """Looks at all gradients between iterations for those that were added to and then dropped."""

    def __init__(self) -> None:
        self.leaves: list[Tensor] = []
        self.before: list[tuple[Tensor, Tensor, int]] = []
        self.dropped: list[tuple[int, ...]] = []

    def __call__(self, update: Update) -> None:
        for leaf, gradient, version in self.before:
            if gradient._version != version and leaf.grad is not gradient:
                self.dropped.append(tuple(gradient.shape))
        if update.step % 9 == 1:  # not at every one: there are many objects
            # not of other types: what fake tensors of other tests leave behind in torch 2.6 does not even answer
            self.leaves = [each for each in gc.get_objects() if type(each) in (Tensor, nn.Parameter) and each.is_leaf]
        self.before = [(each, each.grad, each.grad._version) for each in self.leaves if each.grad is not None]


@pytest.mark.parametrize("method", [None, *METHODS])
def test_no_gradient_of_the_iteration_before_is_added_to_and_dropped(tmp_path: Path, method: str | None) -> None:
    """A graph would go on adding to that memory, which by then is someone else's."""
    found = Gradients()
    run = replace(run_of(tmp_path, method), device="cpu", net="mlp-8", augment="none")
    execute(run, tmp_path / "runs", watch=found)
    assert found.before
    assert found.dropped == []


def test_these_runs_can_be_carried_out(tmp_path: Path) -> None:
    """Their words are understood, and what is compared above is recorded."""
    run = replace(run_of(tmp_path, "ELR(lam=1)"), device="cpu", net="cifarnet", iterations=2, evaluate_every=2)
    found = learnt(execute(run, tmp_path / "runs"))
    assert {"rows.jsonl", "result.json", "model.json", "p.f16", "margins.bin"} <= found.keys()
