"""Where there is no GPU, the kernels' tests run in Triton's interpreter.

In a process of its own: the interpreter is chosen when triton is imported, and for good.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


@pytest.mark.timeout(900)  # hundreds of tests
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: the kernels' tests run for real")
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="this is the interpreter already")
def test_kernels_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", str(HERE)]
    # numpy, which computes here, speaks up about the infinities that the kernels count on
    command += ["-W", "ignore::RuntimeWarning"]
    done = subprocess.run(
        command, cwd=HERE.parent.parent, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


def test_turned_off_by_the_environment() -> None:
    program = "from reweigh import ops; print(ops.ENABLED)"
    settings = {**os.environ, "REWEIGH_KERNELS": "off"}
    done = subprocess.run([sys.executable, "-c", program], env=settings, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
