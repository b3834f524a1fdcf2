"""A small run, and the content of finished folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reweigh.lab.spec import Run


@pytest.fixture
def digits() -> Run:
    """Two and a half epochs of digits with 40 % noisy labels, evaluated twice."""
    return Run(
        data="digits",
        net="mlp-24",
        weighting="CCE",
        noise="symmetric",
        rate=0.4,
        iterations=30,
        batch_size=100,
        evaluate_every=15,
        optimiser="adam",
        lr=0.003,
        schedule="constant",
        device="cpu",
    )


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Read all files below a folder, without locks and durations."""

    def read(root: Path) -> dict[str, bytes]:
        files = {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.name != ".lock"
        }
        for name, content in files.items():
            if name.endswith("result.json"):
                result = json.loads(content)
                del result["seconds"], result["digest"]
                files[name] = json.dumps(result).encode()
        return files

    return read
