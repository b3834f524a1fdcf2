"""The attack works, and a few cases of each kind end well; `make test-attack` is the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="needs ptrace on x86-64")
def test_a_few_cases_of_every_attack() -> None:
    command = [sys.executable, "-m", "attack", "--cases", "12", "--seed", "1"]
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "| kill train | 12 | 12 recovered | none |" in done.stdout
