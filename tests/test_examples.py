"""The examples run and print the output shown in their docstrings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def output(name: str) -> str:
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # the networks are too small for more
    command = [sys.executable, EXAMPLES / name]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=one_thread).stdout


def test_drop_in() -> None:
    cce, gce, dm = (float(line.split()[-2]) for line in output("drop_in.py").splitlines())
    assert min(gce, dm) > cce + 5  # exact accuracies depend on the machine


def test_what_does_it_emphasise() -> None:
    name = "what_does_it_emphasise.py"
    shown = [line.strip() for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()]
    assert set(output(name).splitlines()) <= set(shown)


@pytest.mark.slow
def test_finetune_language_model() -> None:
    pytest.importorskip("transformers")
    lines = output("finetune_language_model.py").splitlines()
    exact = [float(line.split()[-2]) for line in lines if line.endswith("%")]
    knows, nll, *robust = exact[:5]
    assert knows > 95
    assert min(robust) > nll + 5
    assert exact[6] > max(exact[7:])  # from scratch NLL is best
    assert [line.split("(")[0].strip() for line in lines if "arXiv" in line] == ["MAE", "CCE"]


@pytest.mark.slow
def test_noisy_table() -> None:
    pytest.importorskip("sklearn", minversion="1.6")
    blocks = output("noisy_table.py").split("next digit")
    accuracy = [float(line.split("%")[0].split()[-1]) for line in blocks[1].splitlines()[1:]]
    linear, cleaned, _, gce, auto, _ = accuracy
    assert cleaned > linear + 5
    assert min(gce, auto) > linear + 20
