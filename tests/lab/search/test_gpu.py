"""Several trials on one GPU; everything else is tested without one in test_search.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reweigh.lab.record import read_header
from reweigh.lab.search import plan_search, search


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_trials_sharing_a_gpu_give_the_results_of_single_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = tmp_path / "images.npz"
    np.savez(images, x=rng.integers(0, 255, (400, 32, 32, 3), dtype=np.uint8), y=np.arange(400) % 4)
    fields = {
        "data": str(images),
        "net": "resnet20",
        "noise": "symmetric",
        "rate": 0.4,
        "iterations": 60,
        "batch_size": 32,
        "evaluate_every": 30,
        "deterministic": True,
    }
    plan = plan_search(fields, "DM(lam={0, 0.5, 1}, beta={2, 8})", seeds=(0,))
    together = search(plan, tmp_path / "together", workers=3)
    alone = search(plan, tmp_path / "alone", workers=1, where={"device": "cuda:0"})
    assert [trial.state for trial in together.trials] == ["done"] * 6
    for one in together.trials:
        assert read_header(tmp_path / "together" / str(one.run)).environments[-1]["device"].startswith("cuda")
    assert [one.score for one in together.trials] == [one.score for one in alone.trials]
    assert together.accuracy == alone.accuracy
