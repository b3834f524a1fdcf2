"""Checkpoints: cut anywhere, flipped anywhere, on full disks, with hostile content."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.errors import DataError
from reweigh.lab.record import RecordError
from reweigh.lab.train.checkpoint import load, previous, save

FULL = Path("/dev/full")


def state_of(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "weights": {"w": torch.full((3, 4), float(step)), "n": torch.tensor(step)},
        "best": (0.5, None),
    }


def step_of(path: Path) -> int:
    loaded = load(path)
    assert loaded is not None
    return int(loaded.state["step"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of step 2, with that of step 1 before it."""
    path = tmp_path / "checkpoint.pt"
    save(path, state_of(1))
    save(path, state_of(2))
    return path


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert load(path) is None
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimiser = torch.optim.Adam(net.parameters())
    net(torch.randn(5, 3, generator=torch.Generator().manual_seed(0))).sum().backward()
    optimiser.step()
    state = {
        "net": net.state_dict(),
        "optimiser": optimiser.state_dict(),
        "step": 3,
        "name": "x",
        "raw": b"\0",
        "none": None,
    }
    save(path, state)
    loaded = load(path)
    assert loaded is not None
    assert (loaded.path, loaded.note) == (path, None)
    assert loaded.state["step"] == 3
    assert all(torch.equal(value, loaded.state["net"][name]) for name, value in net.state_dict().items())
    optimiser.load_state_dict(loaded.state["optimiser"])
    assert not previous(path).exists()


def test_the_one_before_is_kept(path: Path) -> None:
    assert step_of(path) == 2
    assert step_of(previous(path)) == 1
    save(path, state_of(3))
    assert (step_of(path), step_of(previous(path))) == (3, 2)
    assert sorted(item.name for item in path.parent.iterdir()) == ["checkpoint.previous.pt", "checkpoint.pt"]


def test_cut_anywhere_the_one_before_is_used(path: Path) -> None:
    content = path.read_bytes()
    for size in [*range(120), *range(120, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:size])
        loaded = load(path)
        assert loaded is not None
        assert loaded.state["step"] == 1
        assert loaded.path == previous(path)
        assert loaded.note is not None
        assert "resuming from checkpoint.previous.pt" in loaded.note
        assert str(path) in loaded.note


def test_flipped_anywhere_the_one_before_is_used(path: Path) -> None:
    content = path.read_bytes()
    draw = random.Random(0)
    bits = [*range(60 * 8), *(draw.randrange(len(content) * 8) for _ in range(400))]
    for bit in bits:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert step_of(path) == 1


def test_longer_is_damaged_too(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")
    assert step_of(path) == 1


def test_a_damaged_one_does_not_push_out_the_good_one_before(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    save(path, state_of(3))
    assert (step_of(path), step_of(previous(path))) == (3, 1)


def test_damaged_files_are_an_error_not_a_fresh_start(path: Path) -> None:
    path.write_bytes(b"")
    previous(path).write_bytes(b"reweigh checkpoint 1\n" + bytes(40))
    with pytest.raises(
        DataError, match=r"no good checkpoint: .*checkpoint\.pt: .*; .*checkpoint\.previous\.pt: damaged"
    ):
        load(path)


def test_killed_between_the_two_renames(path: Path) -> None:
    path.replace(previous(path))
    loaded = load(path)
    assert loaded is not None
    assert loaded.state["step"] == 2
    assert loaded.note is not None
    assert "there is no such file; resuming from" in loaded.note


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RecordError, match=r"cannot write .*checkpoint\.pt: .*unchanged") as caught:
            save(path, state_of(3))
    assert caught.value.errno == code
    assert (step_of(path), step_of(previous(path))) == (2, 1)
    assert not list(path.parent.glob("*.part"))
    save(path, state_of(4))
    assert (step_of(path), step_of(previous(path))) == (4, 2)


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full is a Linux device")
def test_a_really_full_device(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda count: "0")
    path.with_name(f"checkpoint.pt.{os.getpid()}-0.part").symlink_to(FULL)
    with pytest.raises(RecordError, match="No space left on device"):
        save(path, state_of(3))
    assert (step_of(path), step_of(previous(path))) == (2, 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {"b": np.float64(1)}]}, r"state\['a'\]\[1\]\['b'\] is a float64"),
        ({"a": object()}, r"state\['a'\] is a object"),
        ({"a": {1, 2}}, "is a set"),
        ({"a": np.zeros(3)}, "is a ndarray"),
        ({"a": defaultdict(int)}, "is a defaultdict"),
        ({"a": torch.__version__}, "is a TorchVersion"),
        ({(1, object()): 1}, "a key of state"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(path: Path, value: dict[Any, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        save(path, value)
    assert step_of(path) == 2


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("good_zip", [True, False])
def test_a_forged_checkpoint_executes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, good_zip: bool) -> None:
    monkeypatch.chdir(path.parent)
    buffer = io.BytesIO()
    if good_zip:
        torch.save({"step": 9, "x": Evil()}, buffer)
    else:
        pickle.dump(Evil(), buffer)
    content = buffer.getvalue()
    path.write_bytes(b"reweigh checkpoint 1\n" + hashlib.sha256(content).digest() + content)
    loaded = load(path)
    assert loaded is not None
    assert (loaded.state["step"], "weights_only" in (loaded.note or "")) == (1, False)
    assert "checkpoint.pt: cannot be loaded safely: " in (loaded.note or "")
    assert not Path("executed").exists()


def test_other_content_under_a_good_digest(path: Path) -> None:
    buffer = io.BytesIO()
    torch.save([1, 2], buffer)
    content = buffer.getvalue()
    path.write_bytes(b"reweigh checkpoint 1\n" + hashlib.sha256(content).digest() + content)
    assert step_of(path) == 1


KILLED = """
import sys
from pathlib import Path
import torch
from reweigh.lab.train.checkpoint import save
path = Path(sys.argv[1])
print("ready", flush=True)
for step in range(int(sys.argv[2]), 1_000_000):
    save(path, {"step": step, "w": torch.full((1000,), float(step))})
    print(step, flush=True)
"""


def test_kill_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    path, step = tmp_path / "checkpoint.pt", 0
    draw = random.Random(1)
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path), str(step)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        saved = [int(process.stdout.readline()) for _ in range(draw.randrange(2, 9))][-1]
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        loaded = load(path)
        assert loaded is not None
        step = loaded.state["step"]
        assert step >= saved - 1  # at worst the names were just moving on
        assert torch.equal(loaded.state["w"], torch.full((1000,), float(step)))
