"""`recommend` returns published or measured settings with their source."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch

from paper.protocols import BETA, published_dm
from reweigh import DM, Criterion
from reweigh.recommendation import Recommendation, recommend

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("num_classes", [2, 3, 10, 14, 100, 1000])
@pytest.mark.parametrize("rate", [None, 0.0, 0.1, 0.4, 0.8])
def test_every_recommendation_trains(num_classes: int, rate: float | None) -> None:
    setting = recommend(num_classes, rate)
    criterion = Criterion(setting.weighting, normalise=setting.normalise, taper=setting.taper)
    logits = torch.randn(8, num_classes, generator=torch.Generator().manual_seed(0)).requires_grad_()
    criterion(logits, torch.arange(8) % num_classes).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert len(setting.source) > 40


def test_numpy_numbers_are_accepted() -> None:
    assert recommend(np.int64(10), np.float32(0.4)).weighting == recommend(10, 0.4).weighting


def test_published_settings_equal_those_of_the_paper() -> None:
    for rate in (0.2, 0.4, 0.6):
        assert recommend(100, rate).weighting == DM(0.5, BETA["cifar100"][0.5][rate])
    for rate in (0, 0.2, 0.4):
        assert published_dm("imdb", rate) == "DM(0, {:g})".format(BETA["imdb"][0][rate])
        assert recommend(2, rate).weighting == DM(0, BETA["imdb"][0][rate])


def test_source_states_the_difference_in_noise_rate() -> None:
    assert "you have 50 %" in recommend(10, 0.5).source
    assert "noise rate is unknown" in recommend(10).source
    assert isinstance(recommend(10), Recommendation)


def test_source_quotes_the_committed_results() -> None:
    record = json.loads((ROOT / "paper" / "results" / "cifar10_headline.json").read_text(encoding="utf-8"))

    def final(row: str) -> str:
        ends = [
            100 * entry["finding"]["columns"]["test_accuracy"][-1]
            for entry in record["entries"]
            if (entry["row"], entry["column"]) == (row, "lr 0.1")
        ]
        assert len(ends) == 3
        return f"{statistics.mean(ends):.1f} ± {statistics.stdev(ends):.1f} %"

    source = recommend(10, 0.4).source
    assert f"DM(0.5, 12) ended at {final('DM(0.5, 12)')} and DM(1, 16) at {final('DM(1, 16)')} (three seeds)" in source
    assert "taper inside DN" in source


@pytest.mark.parametrize(("num_classes", "rate"), [(1, None), (True, None), (10, 1.0), (10, -0.1)])
def test_bad_arguments_raise(num_classes: int, rate: float | None) -> None:
    with pytest.raises(ValueError, match="expected"):
        recommend(num_classes, rate)
