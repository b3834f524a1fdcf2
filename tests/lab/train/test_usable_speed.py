"""The GPU settings that a method can use, tested without a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.lab.batches import Resident, Shuffled
from reweigh.lab.run import Speed
from reweigh.lab.train.captured import CapturedStep, Step, make_step, usable_speed
from reweigh.lab.train.step import EagerStep


def eager_of(method: Any, optimiser: torch.optim.Optimizer) -> EagerStep:
    batches = Resident(np.zeros((8, 2), np.float32), np.arange(8) % 2, order=Shuffled(8, 4, 0))
    batches.device = torch.device("cuda")  # as far as the choice is concerned
    settings: dict[str, Any] = {"total": 10, "learning_rate": lambda step: 0.1, "autocast": nullcontext}
    return EagerStep(method, batches, optimiser, **settings)


def fastest(eager: EagerStep, speed: Speed) -> tuple[Step, str | None]:
    used, note = usable_speed(eager, speed)
    return make_step(eager, used), note


def test_second_derivatives_use_only_torch() -> None:
    net = nn.Linear(2, 2)
    kind = type("Twice", (), {"differentiates_twice": True, "capture_key": lambda self, step: None, "trainable": net})
    eager = eager_of(kind(), torch.optim.SGD(net.parameters(), lr=0.1))
    iteration, note = fastest(eager, Speed(compile=True))
    assert isinstance(iteration, CapturedStep)
    assert note == "not compiled, without own convolutions: Twice differentiates twice"
    assert usable_speed(eager, Speed(compile=True)) == (Speed(True, False, False), note)
    assert fastest(eager, Speed(kernels=False, compile=False))[1] is None


def test_a_method_has_the_reason_why_it_is_not_captured() -> None:
    net = nn.Linear(2, 2)
    kind = type("Video", (), {"uncaptured": "Video sorts frames", "trainable": net, "predictor": net})
    eager = eager_of(kind(), torch.optim.SGD(net.parameters(), lr=0.1))
    assert fastest(eager, Speed(False, False, False))[1] is None
    assert fastest(eager, Speed(True, False, False))[1] == "not captured: Video sorts frames"
    assert usable_speed(eager, Speed(True, True, True))[0] == Speed(False, True, True)


def test_the_trained_nets_are_compiled_not_the_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a resume of Masking, whose average predicts; both of two nets that teach each other."""
    compiled: list[nn.Module] = []
    monkeypatch.setattr("reweigh.lab.train.captured.compile_net", compiled.append)
    net, other = nn.Linear(2, 2), nn.Linear(2, 2)
    for trainable in (net, nn.ModuleList([net, other]), nn.ModuleDict({"net": net, "channel": other})):
        kind = type("Averaged", (), {"capture_key": None, "trainable": trainable, "predictor": nn.Linear(2, 2)})
        fastest(eager_of(kind(), torch.optim.SGD(net.parameters(), lr=0.1)), Speed(True, False, True))
    assert compiled == [net, net, other, net]


def test_a_net_whose_features_a_method_reads_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reweigh.lab.train.captured.compile_net", lambda net: pytest.fail("compiled"))
    net = nn.Linear(2, 2)
    kind = type("Reading", (), {"reads_features": True, "capture_key": None, "trainable": net, "predictor": net})
    eager = eager_of(kind(), torch.optim.SGD(net.parameters(), lr=0.1))
    note = "not compiled: Reading reads the net's features, and only the net as a whole is compiled"
    assert fastest(eager, Speed(True, False, True))[1] == note
    assert usable_speed(eager, Speed(True, True, True)) == (Speed(True, True, False), note)
    assert usable_speed(eager, Speed(True, True, False)) == (Speed(True, True, False), None)


def test_one_note_names_all_unused_settings() -> None:
    """As DRSA and CAE, which read the net's features and cannot be captured either."""
    net = nn.Linear(2, 2)
    kind = type("Video", (), {"reads_features": True, "uncaptured": "Video sorts frames", "trainable": net})
    found, note = usable_speed(eager_of(kind(), torch.optim.SGD(net.parameters(), lr=0.1)), Speed(True, True, True))
    assert found == Speed(False, True, False)
    assert note == (
        "not compiled: Video reads the net's features, and only the net as a whole is compiled; "
        "not captured: Video sorts frames"
    )
