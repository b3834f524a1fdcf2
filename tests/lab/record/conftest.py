"""A small record to write and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reweigh.lab.record import Header, Record
from reweigh.lab.spec import Run

EXAMPLES = 5


@pytest.fixture
def header() -> Header:
    run = Run(data="digits", net="linear", weighting="DM(0.5, 8)")
    return Header(run, "d" * 64, "e" * 64, EXAMPLES, {"measured_rate": 0.25})


@pytest.fixture
def make_run(header: Header) -> Callable[..., Path]:
    """Write a run folder of three evaluations."""

    def make(folder: Path, *, done: bool = True, **extra: bytes) -> Path:
        with Record(folder, header, {"torch": "2"}) as record:
            for step in (10, 20, 30):
                record.append({"step": step, "accuracy": step / 100}, np.full(EXAMPLES, step / 100))
            for name, content in extra.items():
                path = folder / name.replace("__", "/").replace("_", ".")
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
            if done:
                record.finish({"final": {"accuracy": 0.3}, "best": {"accuracy": 0.3}})
        return folder

    return make


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    """What `make_run` writes."""
    return [{"step": step, "accuracy": step / 100} for step in (10, 20, 30)]
