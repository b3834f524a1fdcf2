"""A captured run gives the results of the uncaptured one; a run that cannot be captured says why."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from finished import learnt
from reweigh.lab.methods.criterion import ByCriterion
from reweigh.lab.record import read_header
from reweigh.lab.run import Interrupted, Speed, Update, execute
from reweigh.lab.run.parts import criterion_of
from reweigh.lab.spec import Run
from reweigh.lab.train.captured import CapturedStep, compile_net, make_evaluator, make_step, own_stream, usable_speed
from reweigh.lab.train.evaluate import evaluate
from reweigh.lab.train.optimisers import build_optimiser, restore, set_learning_rate
from reweigh.lab.train.step import EagerStep

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PLAIN = Speed(capture=False, kernels=False, compile=False)


def images(path: Path, n: int = 600) -> str:
    """Pictures of four classes that differ in brightness, and a test part of the same kind."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    x = np.clip(rng.normal(60 + 45 * y[:, None, None, None], 40, (n, 32, 32, 3)), 0, 255).astype(np.uint8)
    np.savez(path, x_train=x[: n // 2], y_train=y[: n // 2], x_test=x[n // 2 :], y_test=y[n // 2 :])
    return str(path)


def small(tmp_path: Path, **change: Any) -> Run:
    base: dict[str, Any] = {
        "data": images(tmp_path / "images.npz"),
        "net": "resnet20",
        "weighting": "DM(0.5, linear(2, 8))",
        "noise": "symmetric",
        "rate": 0.2,
        "iterations": 24,
        "batch_size": 32,
        "augment": "pad-crop-flip",
        "evaluate_every": 8,
        "device": "cuda",
        "deterministic": True,
    }
    return Run(**(base | change))


@GPU
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"normalise": "class"},
        {"weighting": "CCE", "optimiser": "adam", "lr": 1e-3},
        {"weighting": "GCE(0.7)", "optimiser": "nesterov", "caffe_momentum": True, "schedule": "step(0.1, at=[0.5])"},
        {"taper": "linear(0.1, 0)", "sampler": "balanced", "optimiser": "adamw", "lr": 1e-3},
        {"weighting": None, "loss": "BootstrapSoft(0.8)"},
    ],
    ids=str,
)
def test_captured_is_uncaptured_bit_for_bit(tmp_path: Path, change: dict[str, Any]) -> None:
    run = small(tmp_path, **change)
    notes: list[str | None] = []
    captured = execute(run, tmp_path / "captured", watch=lambda update: notes.append(update.note))
    assert not any(notes)
    assert read_header(captured).environments[-1]["captured"]
    assert learnt(captured) == learnt(execute(run, tmp_path / "plain", speed=PLAIN))


@GPU
def test_a_captured_run_resumes_exactly(tmp_path: Path) -> None:
    run = small(tmp_path)
    unbroken = learnt(execute(run, tmp_path / "unbroken"))
    for stop in (2, 5, 13):
        done = [0]

        def watch(update: Update, done: list[int] = done) -> None:
            done[0] = update.step

        with pytest.raises(Interrupted):
            execute(run, tmp_path / "broken", watch=watch, should_stop=lambda d=done, s=stop: d[0] >= s)
    assert learnt(execute(run, tmp_path / "broken")) == unbroken


@GPU
@pytest.mark.parametrize("speed", [Speed(compile=False), Speed(compile=True)], ids=["captured", "compiled"])
def test_in_bfloat16_the_difference_is_that_of_another_seed(tmp_path: Path, speed: Speed) -> None:
    def accuracy(seed: int, how: Speed, root: str) -> float:
        run = small(tmp_path, seed=seed, precision="bf16", deterministic=False, iterations=60, weighting="CCE")
        result = json.loads((execute(run, tmp_path / root, speed=how) / "result.json").read_text())
        return float(result["final"]["test_cross_entropy"])

    plain = np.array([accuracy(seed, PLAIN, "plain") for seed in range(5)])
    fast = np.array([accuracy(seed, speed, "fast") for seed in range(5)])
    assert abs(fast.mean() - plain.mean()) < 3 * max(plain.std(ddof=1), fast.std(ddof=1)) / np.sqrt(5) + 1e-3


# Without a GPU


def eager_on_the_cpu() -> EagerStep:
    net = nn.Linear(2, 2)
    run = Run(data="digits", net="linear", weighting="CCE", device="cpu")
    from reweigh.lab.batches import Resident, Shuffled

    batches = Resident(np.zeros((8, 2), np.float32), np.arange(8) % 2, order=Shuffled(8, 4, 0))
    method = ByCriterion(net, criterion_of(run, torch.device("cpu"))[0])
    return EagerStep(
        method,
        batches,
        build_optimiser(net, run),
        total=10,
        learning_rate=lambda step: 0.1,
        autocast=lambda: torch.autocast("cpu", enabled=False),
    )


def test_on_the_cpu_nothing_is_captured_or_noted() -> None:
    eager = eager_on_the_cpu()
    speed, note = usable_speed(eager, Speed())
    assert (make_step(eager, speed), note) == (eager, None)
    assert Speed().for_run(Run(data="digits", net="linear", weighting="CCE"), torch.device("cpu")).described() == {}
    with own_stream(torch.device("cpu")):
        first = eager(0)
    assert first.ndim == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"average": torch.clone}, "several processes"),
        ({"dropout_seed": 0}, "dropout"),
        ({"method": type("Picky", (), {"predictor": None})()}, "Picky makes decisions on the host"),
    ],
    ids=["ranks", "dropout", "method"],
)
def test_what_cannot_be_captured_says_why(change: dict[str, Any], words: str) -> None:
    eager = eager_on_the_cpu()
    eager.batches.device = torch.device("cuda")  # as far as the choice is concerned
    for name, value in change.items():
        setattr(eager, name, value)
    speed, note = usable_speed(eager, Speed(kernels=False, compile=False))
    assert speed == PLAIN
    assert note is not None
    assert note.startswith("not captured: ")
    assert words in note
    assert usable_speed(eager, PLAIN) == (PLAIN, None)
    assert make_step(eager, PLAIN) is eager


def test_where_capturing_fails_the_run_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(work: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nand a long story")

    monkeypatch.setattr("reweigh.lab.train.captured.Graph", fail)
    plain, ours = eager_on_the_cpu(), eager_on_the_cpu()
    ours.method.trainable.load_state_dict(plain.method.trainable.state_dict())
    captured = CapturedStep(ours)
    assert [captured(step).item() for step in range(8)] == [plain(step).item() for step in range(8)]
    assert captured.note == "not captured: operation not permitted when stream is capturing"


def test_speed_is_chosen_for_the_run() -> None:
    cuda = torch.device("cuda")
    run = Run(data="digits", net="linear", weighting="CCE", precision="bf16", iterations=100_000, batch_size=256)
    assert Speed().for_run(run, cuda) == Speed(True, True, True)
    assert Speed().for_run(replace(run, iterations=100), cuda) == Speed(True, True, False)
    assert Speed().for_run(replace(run, iterations=100), cuda, images=10**7) == Speed(True, True, True)
    assert Speed().for_run(replace(run, deterministic=True), cuda, images=10**7) == Speed(True, True, False)
    assert Speed().for_run(replace(run, deterministic=True), cuda) == Speed(True, True, False)
    assert Speed().for_run(replace(run, precision="fp32"), cuda) == Speed(True, False, False)
    assert Speed(compile=True).for_run(replace(run, precision="fp32"), cuda).compile


def test_scheduled_parameters_in_tensors_are_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(
        data="digits",
        net="linear",
        weighting="DM(linear(0.5, 1), step(2, 5, 2, at=[0.1, 0.2])) + linear(1, 2) * MAE",
        taper="linear(0.1, 0)",
        iterations=100,
    )

    class Elsewhere:
        type = "cuda"  # for `criterion_of`; the tensors themselves stay here

    make = torch.tensor
    monkeypatch.setattr(
        torch,
        "tensor",
        lambda value, *, dtype=None, device=None: make(value, dtype=dtype),
    )
    fixed, set_parameters, obstacle = criterion_of(run, Elsewhere())  # type: ignore[arg-type]
    assert obstacle is None
    rebuilt, _, told = criterion_of(run, torch.device("cpu"))
    assert told is not None
    logits, target = torch.randn(6, 4), torch.arange(6) % 4
    for step in (0, 7, 15, 40, 99):
        set_parameters(step)
        gradients = []
        for at in (fixed, rebuilt):
            z = logits.clone().requires_grad_()
            at(step)(z, target).backward()
            gradients.append(z.grad)
        torch.testing.assert_close(*gradients)


def test_the_evaluator_evaluates_where_nothing_is_captured() -> None:
    eager = eager_on_the_cpu()
    net = eager.method.predictor
    ours = make_evaluator(PLAIN, eager.autocast, 3, lambda: None)(net, eager.batches)
    plain = evaluate(net, eager.batches, 3, net)
    for a, b in zip(ours[:6], plain[:6], strict=True):
        assert torch.equal(a, b)


def test_an_optimiser_keeps_how_it_computes_when_restored() -> None:
    net, run = nn.Linear(2, 2), Run(data="digits", net="linear", weighting="CCE", lr=0.1)
    saved = build_optimiser(net, run).state_dict()
    saved["param_groups"][0] |= {"lr": torch.tensor(0.025), "rate": 0.025, "fused": True}  # as a GPU would save it
    optimiser = build_optimiser(net, run)
    restore(optimiser, saved)
    (group,) = optimiser.param_groups
    assert (group["lr"], group["fused"]) == (0.025, None)
    set_learning_rate(optimiser, 0.05, 0)
    assert group["lr"] == 0.05


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, "own"), ("/tmp/torchinductor_somebody", "own"), ("/data/cache", "/data/cache")],
    ids=["nothing", "torch's own", "the user's"],
)
def test_what_was_compiled_outlasts_temporary_files(
    before: str | None, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "TORCHINDUCTOR_CACHE_DIR"
    monkeypatch.setenv(name, before or "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compile_net(nn.Linear(2, 2))
    assert os.environ[name] == (str(tmp_path / "reweigh" / "compiled") if after == "own" else after)
