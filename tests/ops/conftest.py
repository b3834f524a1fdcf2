"""Kernels run on a GPU, or in Triton's interpreter on the CPU: that in a process of its own (test_interpreter.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
ANYWHERE = ("test_interpreter.py", "test_compile.py")
ONLY_GPU = ("test_gpu.py",)
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch's deterministic mode asks for
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
RUNNABLE = INTERPRETED or torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs_kernels = pytest.mark.skip(reason="no GPU; test_interpreter.py runs it in Triton's interpreter")
    needs_gpu = pytest.mark.skip(reason="needs a GPU")
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"))
        if item.path.parent != HERE or item.path.name in ANYWHERE:
            continue
        if item.path.name in ONLY_GPU and not torch.cuda.is_available():
            item.add_marker(needs_gpu)
        elif not RUNNABLE:
            item.add_marker(needs_kernels)


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu" if INTERPRETED else "cuda")


@pytest.fixture(autouse=True)
def _kernels_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reweigh.ops.DEVICES", ("cuda", "cpu") if INTERPRETED else ("cuda",))


@pytest.fixture(autouse=True)
def _nothing_left_unwritten() -> object:
    """torch.empty is full of NaN: an entry that no kernel wrote shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["at once", "in passes"])
def _passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a single launch; or in one pass, or two under batch normalisation."""
    launch = pytest.importorskip("reweigh.ops.launch")
    monkeypatch.setattr(launch, "AT_ONCE", 2**17 if request.param == "at once" else 0)
