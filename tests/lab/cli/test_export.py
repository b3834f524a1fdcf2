from __future__ import annotations

from pathlib import Path

import pytest
import torch


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_model_is_exported_and_checked(reweigh, finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.pt"
    ended = reweigh("export", finished, "--format", "torchscript", "-o", output, "--json")
    assert ended.code == 0, ended.stderr
    assert (ended.json["rows"], ended.json["reads"]) == (64, "float64 features (N, 64)")
    assert torch.jit.load(output)(torch.zeros(2, 64).double()).shape == (2, 10)
    wrong = reweigh("export", finished, "--format", "torchscript", "-o", tmp_path / "a.onnx")
    assert (wrong.code, (tmp_path / "a.onnx").exists()) == (2, False)
