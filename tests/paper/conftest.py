"""Tiny runs, findings without runs, and data in official layouts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paper.findings import Finding
from paper.quick import write_data
from reweigh.lab.record import Header
from reweigh.lab.spec import Run

ROOT = Path(__file__).resolve().parents[2]
TINY: dict[str, Any] = {
    "data": "toy-pictures.npz",
    "net": "mlp-8",
    "noise": "symmetric",
    "rate": 0.4,
    "iterations": 8,
    "batch_size": 50,
    "evaluate_every": 4,
    "device": "cpu",
}


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with toy data."""
    folder = tmp_path_factory.mktemp("toy")
    write_data(folder)
    return folder


@pytest.fixture
def tiny(toy: Path) -> Callable[..., Run]:
    """Return a function from a weighting and fields to a tiny run."""
    return lambda weighting="CCE", **fields: Run(**(TINY | {"data_root": str(toy), "weighting": weighting} | fields))


@pytest.fixture
def measured() -> Callable[..., Finding]:
    """Return a function that makes findings without training."""

    def make(run: Run, columns: dict[str, list[float | None]] | None = None, **metrics: float) -> Finding:
        header = Header(run, "d" * 64, "l" * 64, 200, {}, ({"commit": "c0ffee", "torch": "2.6", "device": "cpu"},))
        return Finding(run.folder_name(), header, metrics, columns or {}, 1.0)

    return make


@pytest.fixture(scope="session")
def layouts() -> Any:
    """Return the writers of official layouts from the tests of the data."""
    spec = importlib.util.spec_from_file_location("data_layouts", ROOT / "tests" / "lab" / "data" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
