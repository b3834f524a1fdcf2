"""Own Python files: weightings, losses, methods and nets, and the refusal to execute what nobody asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reweigh.errors import DataError
from reweigh.lab import own
from reweigh.lab.predict import predict
from reweigh.lab.record import read_header, read_result
from reweigh.lab.run import execute
from reweigh.lab.spec import Run
from reweigh.lab.train.model import load_model

CODE = """
from pathlib import Path

import torch
from torch import nn
from reweigh.lab.methods.base import BaseMethod

Path(__file__).with_name("executed").touch()

def curve(p, k=1.0):
    return 0.1 + k * p * (1 - p)

def both(p, q):
    return 4 * p * q

def smooth(logits, target, share=0.1):
    return nn.functional.cross_entropy(logits, target, label_smoothing=share, reduction="none")

class Scaled(BaseMethod):
    def __init__(self, context, k: float = 2.0):
        super().__init__(context)
        self.k = k

    def loss(self, batch, step):
        return self.k * nn.functional.cross_entropy(self.net(batch.inputs), batch.target)

class Net(nn.Module):
    def __init__(self, shape, num_classes, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward(self, x):
        return self.layers(x)

class Headless(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, num_classes))
"""
SMALL = {"data": "digits", "iterations": 4, "evaluate_every": 2, "device": "cpu"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_with(**fields: object) -> Run:
    code = own.code_hash({"my.py": Path("my.py").read_text()})
    return Run.from_mapping(SMALL | {"net": "mlp-8", "code_hash": code, "own_code": True} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"weighting": "my.py:curve"},
        {"weighting": "my.py:curve(k=2) + 0.5 * CCE"},
        {"weighting": "my.py:curve(k=linear(1, 3))"},
        {"weighting": "my.py:both", "net": "my.py:Net(16)"},
        {"loss": "my.py:smooth(share=0.2)"},
        {"method": "my.py:Scaled(k=3)"},
    ],
)
def test_own_code_trains_and_is_recorded(here: Path, fields: dict[str, str]) -> None:
    run = run_with(**fields)
    folder = execute(run, here / "runs")
    header = read_header(folder)
    assert header.details["code"] == {"my.py": CODE}
    assert header.run.hash() == run.hash()
    assert not header.run.own_code, "a permission is not stored"
    assert (read_result(folder) or {})["final"]["step"] == 4
    again = execute(run, here / "again")
    assert (again / "rows.jsonl").read_bytes() == (folder / "rows.jsonl").read_bytes()


def test_a_model_of_an_own_net_needs_a_permission_but_not_the_file(here: Path) -> None:
    folder = execute(run_with(net="my.py:Net(width=16)", weighting="CCE"), here / "runs")
    np.savez(here / "new.npz", x=np.ones((3, 64), np.float32))
    (here / "my.py").unlink()
    (here / "executed").unlink()
    with pytest.raises(DataError, match=r"needs the code in my\.py, which it would execute; read it, then add"):
        predict(folder, here / "new.npz")
    assert not (here / "executed").exists()
    assert len(predict(folder, here / "new.npz", own_code=True).classes) == 3
    assert load_model(folder, own_code=True)[0].classifier.in_features == 16


def test_nothing_is_executed_without_a_permission(here: Path) -> None:
    run = replace(run_with(weighting="my.py:curve"), own_code=False)
    with pytest.raises(ValueError, match="read it, then add --own-code"):
        execute(run, here / "runs")
    assert not (here / "executed").exists()
    assert not (here / "runs").exists()


def test_a_changed_file_is_refused(here: Path) -> None:
    run = run_with(weighting="my.py:curve")
    (here / "my.py").write_text(CODE + "# changed\n")
    with pytest.raises(DataError, match=r"my\.py: has changed: its sha256 is"):
        execute(run, here / "runs")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weighting": "my.py:curv"}, "my.py has no function or class 'curv'; did you mean 'curve'"),
        ({"weighting": "my.py:curve(z=1)"}, "has no argument 'z'"),
        ({"method": "my.py:smooth"}, "is a function; a method is a class"),
        ({"net": "my.py:Headless", "weighting": "CCE"}, "its last linear layer must be a part of it with 10 outputs"),
        ({"net": "my.py:curve", "weighting": "CCE"}, "net my.py:curve: curve"),
    ],
)
def test_wrong_names_and_arguments(here: Path, fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("'z'", "'z'")):
        execute(run_with(**fields), here / "runs")
    assert not (here / "runs").exists()


def test_the_hash_is_required_and_has_no_effect_without_own_code() -> None:
    with pytest.raises(ValueError, match=r"my\.py:curve without code_hash"):
        Run(data="digits", net="mlp-8", weighting="my.py:curve")
    with pytest.raises(ValueError, match=r"code_hash is .* no effect"):
        Run(data="digits", net="mlp-8", weighting="CCE", code_hash="0" * 12)
