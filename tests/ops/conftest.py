"""The property suite runs over two backends: plain torch, and the Triton kernels.

Kernels run on a GPU, or in Triton's interpreter on the CPU: that in a process of its own (test_interpreter.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for torch's deterministic mode


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            for message in (".*deterministic:UserWarning", "There is a performance drop", "TRITON_DEFAULT_FP_FUSION"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{message}"))
            if item.path.name == "test_gpu.py" and not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(params=["plain", "triton"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        if INTERPRETED:
            pytest.skip("runs where there is no interpreter")
        monkeypatch.setattr("reweigh.ops.ENABLED", False)
    elif not (INTERPRETED or torch.cuda.is_available()):
        pytest.skip("no GPU; test_interpreter.py runs it in Triton's interpreter")
    elif INTERPRETED:
        monkeypatch.setattr("reweigh.ops.DEVICES", ("cpu",))
    return str(request.param)


@pytest.fixture
def device(backend: str) -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu")


@pytest.fixture(autouse=True)
def _nothing_left_unwritten() -> object:
    """Fill torch.empty with NaN, so that an entry that no kernel wrote shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["at once", "in passes"])
def _passes(request: pytest.FixtureRequest, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a single launch; or in one pass, or two under batch normalisation."""
    if backend == "plain":
        if request.param == "in passes":
            pytest.skip("plain torch has one way")
        return
    launch = pytest.importorskip("reweigh.ops.launch")
    monkeypatch.setattr(launch, "AT_ONCE", 2**17 if request.param == "at once" else 0)
