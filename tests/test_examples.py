"""The examples run as they are, and say what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def output(name: str) -> str:
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # these nets are too small for two
    command = [sys.executable, EXAMPLES / name]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=one_thread).stdout


def test_drop_in() -> None:
    cce, gce, dm = (float(line.split()[-2]) for line in output("drop_in.py").splitlines())
    assert min(gce, dm) > cce + 5


def test_what_does_it_emphasise() -> None:
    text = output("what_does_it_emphasise.py")
    assert "least cosine 1.000" in text
    assert "as a curve, w(0.5) = 1.500" in text
